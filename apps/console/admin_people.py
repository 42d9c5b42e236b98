"""Operators' logins: Django's own pages, with our trail."""

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User

from apps.audit.trail import TrailMixin

admin.site.unregister([User, Group])


@admin.register(User)
class OperatorAdmin(TrailMixin, UserAdmin):
    trail_masked = ("password", "password1", "password2")


@admin.register(Group)
class OperatorGroupAdmin(TrailMixin, GroupAdmin):
    pass
