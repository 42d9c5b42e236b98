"""The console's own pages below /admin/. They come before the stock ones, which stay where they were."""

from django.contrib import admin

from apps.console.pages import PUBLIC, patterns
from apps.console.verbs.many import patterns as many
from apps.console.verbs.pages import patterns as verbs

app_name = "console"
urlpatterns = [*patterns(PUBLIC, admin.site), *verbs(admin.site), *many(admin.site)]
