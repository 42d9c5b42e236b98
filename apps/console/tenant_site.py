"""The second admin site: a tenant's own tables, to read. `TenantPathMiddleware` chooses the schema by the path."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from apps.console.bands import band_of
from apps.console.login import GuardedLogin


class TenantSite(admin.AdminSite):
    """Every page names the tenant and wears its colour."""

    index_title = "Tables"
    site_url = None
    login_form = GuardedLogin  # a low operator who is in may post to this site's login, too

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        context = super().each_context(request)
        tenant = getattr(request, "console_tenant", None)
        if tenant is not None:
            context |= {
                "console_tenant": tenant,
                **band_of(tenant),
                "site_header": f"Shardbeat: {tenant.slug}",
                "site_title": f"{tenant.slug} | Shardbeat",
            }
        return context


tenant_site = TenantSite(name="tenant")
tenant_site.disable_action("delete_selected")

from apps.console import (  # noqa: E402  they register on the site above
    admin_secrets,  # noqa: F401
    tenant_admin,  # noqa: F401
    tenant_archive,  # noqa: F401
    tenant_holds,  # noqa: F401
    tenant_letters,  # noqa: F401
    tenant_operations,  # noqa: F401
    tenant_webhooks,  # noqa: F401
    tenant_workflows,  # noqa: F401
)
