"""Tenants' people, for operators: the same services as the API's, so sessions end and the last admin stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse

from apps.audit.trail import actor_of, database_now
from apps.console.admin_tenants import SmallAdmin
from kernel.errors import ShardbeatError
from tenants.invitations import invitation_create, link, reset_create, send_invitation
from tenants.models import Invitation, Member
from tenants.people import member_change, member_remove
from tenants.permissions import ROLES


class ServiceAdmin(SmallAdmin):
    """Changes go through services, which write the trail; what they refuse is said on the page."""

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return self._or_say(request, lambda: super(ServiceAdmin, self).changeform_view(request, *args, **kwargs))

    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return self._or_say(request, lambda: super(ServiceAdmin, self).delete_view(request, *args, **kwargs))

    def formfield_for_choice_field(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "role":
            kwargs["choices"] = [(one, one) for one in ROLES]
        return super().formfield_for_choice_field(db_field, request, **kwargs)

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> None:  # type: ignore[override]  # the service has
        return

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> None:  # type: ignore[override]  # the service has
        return

    def log_deletions(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:  # type: ignore[override]  # the service has
        return

    def _or_say(self, request: HttpRequest, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except ShardbeatError as error:
            self.message_user(request, error.detail, messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())


@admin.register(Member)
class MemberAdmin(ServiceAdmin):
    """A new one begins as an invitation."""

    list_display = ("email", "name", "tenant", "role", "created_at", "last_login")
    list_filter = ("role",)
    list_select_related = ("tenant", "user")
    search_fields = ("email", "name", "tenant__slug")
    ordering = ("tenant__slug", "email")
    fields = ("tenant", "email", "uid", "name", "role", "created_at", "last_login")
    readonly_fields = ("tenant", "email", "uid", "created_at", "last_login")
    verbs = ("member.sign_out",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    @admin.display(description="last login")
    def last_login(self, obj: Member) -> Any:
        return obj.user.last_login or "-"

    def save_model(self, request: HttpRequest, obj: Any, form: forms.ModelForm[Any], change: bool) -> None:
        changes: dict[str, str] = {
            name: str(form.cleaned_data[name]) for name in ("name", "role") if name in form.changed_data
        }
        member_change(
            tenant=obj.tenant, actor=actor_of(request), member_uid=obj.uid, changes=changes, now=database_now()
        )  # fmt: skip

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        member_remove(tenant=obj.tenant, actor=actor_of(request), member_uid=obj.uid, now=database_now())


@admin.register(Invitation)
class InvitationAdmin(ServiceAdmin):
    """The link is on the page that follows, and in the mail where mail is set up; nowhere else.

    The e-mail of a member makes a link with which that member chooses a new password.
    """

    list_display = ("email", "tenant", "role", "created_at", "created_by", "expires_at", "accepted_at", "revoked_at")
    list_filter = ("role",)
    list_select_related = ("tenant",)
    search_fields = ("email", "tenant__slug")
    autocomplete_fields = ("tenant",)
    ordering = ("-pk",)
    verbs = ("invitation.revoke",)
    shown = (
        "tenant", "email", "name", "role", "member", "created_at", "created_by", "expires_at", "accepted_at",
        "revoked_at",
    )  # fmt: skip

    def get_fields(self, request: HttpRequest, obj: Invitation | None = None) -> tuple[str, ...]:
        return self.shown if obj is not None else ("tenant", "email", "name", "role")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: forms.ModelForm[Any], change: bool) -> None:
        now, actor = database_now(), actor_of(request)
        known = Member.objects.filter(tenant=obj.tenant, email=obj.email.strip().lower()).exclude(email="").first()
        if known is not None:
            made, token = reset_create(
                tenant=obj.tenant, actor=actor, member_uid=known.uid, now=now, send=send_invitation
            )  # fmt: skip
        else:
            made, token = invitation_create(
                tenant=obj.tenant, actor=actor, email=obj.email, role=obj.role, name=obj.name, now=now,
                send=send_invitation,
            )  # fmt: skip
        obj.pk = made.pk
        obj._state.adding = False
        request.new_link = link(obj.tenant, token, asked=request)  # type: ignore[attr-defined]  # for the page below

    def response_add(self, request: HttpRequest, obj: Invitation, post_url_continue: str | None = None) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request), "title": "The link", "opts": self.opts, "invitation": obj,
            "text": request.new_link,  # type: ignore[attr-defined]  # set above
        }  # fmt: skip
        response = TemplateResponse(request, "console/invitation_created.html", context)
        response["Cache-Control"] = "no-store"
        return response
