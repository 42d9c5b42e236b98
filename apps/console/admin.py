"""The admin of the public host: what is shared by all tenants."""

from django.contrib import admin

from apps.console import (  # noqa: F401  they register themselves
    admin_live,
    admin_members,
    admin_people,
    admin_queues,
    admin_signin,
    admin_tenant,
    admin_tenants,
    admin_trail,
)
from apps.console.login import GuardedLogin

admin.site.site_header = admin.site.site_title = "Shardbeat"
admin.site.login_form = GuardedLogin
admin.site.index_title = "Operators"
admin.site.site_url = None
admin.site.disable_action("delete_selected")
