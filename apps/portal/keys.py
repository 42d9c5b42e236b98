"""API keys: who may call, until when, and when they last did. A key's text is on one page, once."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from apps.portal.once import overlap_field, overlap_of, shown_once
from apps.portal.pages import Page
from apps.portal.verbs import Receipt, Subject, VerbPage
from apps.presenting.fields import Field, Form, choices
from apps.presenting.paging import listed, newest
from apps.schedules.timing_trigger import read_instant
from kernel.errors import Faults, NotFound
from tenants.apikeys import apikey_end, apikey_issue, apikey_rotate
from tenants.models import ApiKey
from tenants.permissions import KEY_ROLES

NAME_CHARS = 100


class KeyList(Page):
    """All keys, newest first."""

    actions = {"GET": "apikey.read"}
    section = "keys"

    def get(self, request: HttpRequest) -> HttpResponse:
        found = ApiKey.objects.filter(tenant=self.tenant)
        rows = [{"row": row, "state": state_of(row, self.now)} for row in newest(request, found)]
        return self.page(
            "portal/keys.html", title="API keys", listed=listed(request, rows, key=lambda one: one["row"].pk),
            offers=[self.offer("New key", "portal:key-new", "apikey.create", kind="primary")],
        )  # fmt: skip


class KeyDetail(Page):
    """One key."""

    actions = {"GET": "apikey.read"}
    section = "keys"

    def get(self, request: HttpRequest, key_id: UUID) -> HttpResponse:
        key = access_key(self, key_id)
        state = state_of(key, self.now)
        over = "" if state == "active" else f"It is {state}."
        followed = "It has a successor already." if key.rotated_at else ""
        return self.page(
            "portal/key.html", title=key.name, key=key, state=state,
            successor=ApiKey.objects.filter(tenant=self.tenant, replaces=key.pk).first(),
            offers=[
                self.offer("Rotate", "portal:key-rotate", "apikey.rotate", key.pk, blocked=over or followed),
                self.offer("Revoke", "portal:key-revoke", "apikey.revoke", key.pk, kind="danger",
                           blocked="It is revoked already." if key.revoked_at else ""),
            ],
        )  # fmt: skip


class KeyNew(VerbPage):
    """Making one."""

    actions = {"GET": "apikey.create", "POST": "apikey.create"}
    section = "keys"
    title, button = "New API key", "Make the key"

    def subject(self) -> Subject:  # type: ignore[override]  # its path has no id
        lead = "Whoever has the key may do what its role may, within its scopes. It is shown once."
        return Subject(name="API keys", url=reverse("portal:keys"), lead=lead)

    def fields(self, subject: Subject) -> list[Field]:
        return [
            Field("name", "Name", required=True, help="What it is for, such as deploy."),
            Field("role", "Role", "select", "viewer", options=choices(KEY_ROLES)),
            Field("scopes", "Scopes", "area", rows=2,
                  help="Empty: all that the role may. Else one a line, such as schedule.* or *.read."),
            Field("expires_at", "Ends at", help="Such as 2027-01-01T00:00 in UTC. Empty: when it is revoked."),
        ]  # fmt: skip

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> HttpResponse:
        faults = Faults()
        name, given, scopes = form.text("name"), form.text("expires_at"), form.text("scopes").split()
        if not name or len(name) > NAME_CHARS or any(ord(one) < 32 for one in name):
            faults.add("/name", "type", f"must be one line of 1 to {NAME_CHARS} characters.")
        expires_at = read_instant(given, "/expires_at", "UTC", faults) if given else None
        faults.raise_if_any()
        key, text = apikey_issue(
            tenant=self.tenant, actor=self.actor, name=name, role=form.text("role"), scopes=scopes or None,
            expires_at=expires_at, now=self.now,
        )  # fmt: skip
        return shown_once(self, f"The key {key.name}", text, reverse("portal:key", args=[key.pk]))


class KeyVerb(VerbPage):
    """What the verbs of one share."""

    section = "keys"
    lead = ""

    def subject(self, key_id: UUID) -> Subject:  # type: ignore[override]  # its path has one id
        key = access_key(self, key_id)
        used = f"{key.last_used_at:%Y-%m-%d %H:%M} UTC" if key.last_used_at else "never"
        return Subject(
            name=key.name, url=reverse("portal:key", args=[key.pk]), lead=self.lead, row=key,
            facts=[("Begins with", f"sb_{key.prefix}"), ("Role", key.role), ("Last used", used)],
        )  # fmt: skip


class KeyRotate(KeyVerb):
    """Changing over to a successor."""

    actions = {"GET": "apikey.rotate", "POST": "apikey.rotate"}
    title, button = "Rotate", "Make its successor"
    lead = "A new key with the same name, role and scopes is made and shown once. The present one works on for a while."

    def fields(self, subject: Subject) -> list[Field]:
        return [overlap_field("The present key works on for")]

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> HttpResponse:
        key, text = apikey_rotate(
            tenant=self.tenant, actor=self.actor, key_id=subject.row.pk, overlap=overlap_of(form), now=self.now
        )
        return shown_once(self, f"The successor of {key.name}", text, reverse("portal:key", args=[key.pk]))


class KeyRevoke(KeyVerb):
    """Ending one."""

    actions = {"GET": "apikey.revoke", "POST": "apikey.revoke"}
    title, button, kind = "Revoke", "Revoke the key", "danger"
    lead = "Calls with it are refused from now on. This can't be taken back; make another key instead."

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        apikey_end(tenant=self.tenant, actor=self.actor, key_id=subject.row.pk, now=self.now)
        return Receipt("Revoked. Calls with it are refused.", subject.url)


def access_key(page: Page, key_id: UUID) -> ApiKey:
    """A key of the host's tenant; the same 404 for all that is not there."""
    key = ApiKey.objects.filter(pk=key_id, tenant=page.tenant).first()
    if key is None:
        raise NotFound("There is no such API key.")
    return key


def state_of(key: ApiKey, now: datetime) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "expired" if key.expires_at is not None and key.expires_at <= now else "active"
