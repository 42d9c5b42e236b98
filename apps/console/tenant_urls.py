"""What is below `/t/<slug>`; `TenantPathMiddleware` sets the prefix."""

from django.urls import include, path

from apps.console.tenant_site import tenant_site
from apps.console.verbs.pages import patterns as verb_patterns

urlpatterns = [path("admin/", include(verb_patterns(tenant_site))), path("admin/", tenant_site.urls)]
