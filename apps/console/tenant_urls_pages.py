"""The console's own pages of a tenant, below /t/<slug>/admin/. They come before the stock ones."""

from apps.console.pages import TENANT, patterns
from apps.console.tenant_site import tenant_site

app_name = "console"
urlpatterns = patterns(TENANT, tenant_site)
