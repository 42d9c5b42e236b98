"""What is below `/t/<slug>`; `TenantPathMiddleware` sets the prefix."""

from django.urls import include, path

from apps.console.tenant_site import tenant_site

urlpatterns = [path("admin/", include("apps.console.tenant_urls_pages")), path("admin/", tenant_site.urls)]
