"""The web's front door: API and console for tenants, the admin for operators, health for probes."""

from django.contrib import admin
from django.urls import include, path

from apps.console import simulate
from apps.console.verbs.pages import patterns as verb_patterns

urlpatterns = [
    path("api/v1/", include("apps.api.urls")),
    path("console/", include("apps.portal.urls")),
    path("admin/simulate/", simulate.page, name="simulate"),
    path("admin/", include(verb_patterns(admin.site))),
    path("admin/", admin.site.urls),
    path("", include("apps.console.urls")),
]
