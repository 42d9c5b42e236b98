"""The web's front door: API and console for tenants, the admin for operators, health for probes."""

from django.contrib import admin
from django.urls import include, path

from apps.console import simulate

urlpatterns = [
    path("api/v1/", include("apps.api.urls")),
    path("console/", include("apps.portal.urls")),
    path("admin/simulate/", simulate.page, name="simulate"),
    path("admin/", include("apps.console.urls_pages")),
    path("admin/", admin.site.urls),
    path("", include("apps.console.urls")),
]
