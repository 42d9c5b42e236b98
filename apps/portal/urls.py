"""The pages below /console/ on a tenant's host. The public hosts have none of them."""

from django.urls import URLPattern, URLResolver, include, path

from apps.portal import home

app_name = "portal"
urlpatterns: list[URLPattern | URLResolver] = [
    path("", home.home, name="home"),
    path("", include("apps.portal.urls_login")),
]
