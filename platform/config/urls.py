"""The web's front door: API and console for tenants, the admin for operators, health for probes."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("api/v1/", include("apps.api.urls")),
    path("console/", include("apps.portal.urls")),
    path("admin/", admin.site.urls),
    path("", include("apps.console.urls")),
]
