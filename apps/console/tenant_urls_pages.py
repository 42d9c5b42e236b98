"""The console's own pages of a tenant, below /t/<slug>/admin/. They come before the stock ones."""

from apps.console.pages import TENANT, patterns
from apps.console.tenant_site import tenant_site
from apps.console.verbs.many import patterns as many
from apps.console.verbs.pages import patterns as verbs

app_name = "console"
urlpatterns = [*patterns(TENANT, tenant_site), *verbs(tenant_site), *many(tenant_site)]
