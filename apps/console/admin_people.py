"""Operators' logins: Django's own pages, with our trail."""

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from apps.audit.actors import operator
from apps.audit.seen import SeenMixin
from apps.audit.trail import TrailMixin
from tenants.people import USER_PREFIX

admin.site.unregister([User, Group])


@admin.register(User)
class OperatorAdmin(SeenMixin, TrailMixin, UserAdmin):
    """Those of members are changed under Members alone: their services keep sessions, mails and the trail right."""

    seen_never = ("last_login", "password")  # signing in changes them
    trail_masked = ("password", "password1", "password2")
    trail_personal = ("username", "first_name", "last_name", "email")

    def trail_about(self, obj: Model) -> str:
        return operator(int(obj.pk or 0))

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        return super().get_queryset(request).exclude(username__startswith=USER_PREFIX, is_staff=False)


@admin.register(Group)
class OperatorGroupAdmin(SeenMixin, TrailMixin, GroupAdmin):
    pass
