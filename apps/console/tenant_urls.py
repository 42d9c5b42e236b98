"""What is below `/t/<slug>`; `TenantPathMiddleware` sets the prefix."""

from django.urls import path

from apps.console.tenant_site import tenant_site

urlpatterns = [path("admin/", tenant_site.urls)]
