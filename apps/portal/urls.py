"""The pages below /console/ on a tenant's host. The public hosts have none of them."""

from django.urls import URLPattern, URLResolver, include, path

app_name = "portal"
urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("apps.portal.urls_pages")),
    path("", include("apps.portal.urls_login")),
]
