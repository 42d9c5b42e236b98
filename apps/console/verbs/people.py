"""What is ended of a tenant's people: sessions, invitations, keys, the login of their company."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from apps.audit.services import record
from apps.console.roles import PLATFORM
from apps.console.verbs.base import Ask, Line, Preview, Receipt, Verb, version_of
from apps.console.verbs.live import id_of
from apps.console.verbs.registry import register
from apps.presenting.shown import moment
from apps.signin.models import Provider
from kernel.errors import NotFound, Stale
from tenants.apikeys import apikey_end
from tenants.invitations import invitation_revoke
from tenants.models import ApiKey, Invitation, Member, Tenant
from tenants.people import sessions_end

NUMBER_CHARS = 18


class Ending(Verb):
    """What they share: none of it can be taken back."""

    level, hard = PLATFORM, True

    def row(self, ask: Ask) -> Any:
        """NotFound."""
        raise NotImplementedError

    def concerns(self, ask: Ask) -> Tenant | None:
        try:
            found: Tenant = self.row(ask).tenant
        except NotFound:
            return None
        return found

    def known(self, found: Any) -> Any:
        if found is None:
            raise NotFound("There is no such row (any more).")
        return found


@register
class RevokeKey(Ending):
    """The key is refused from now on."""

    name, label = "apikey.revoke", "Revoke"

    def row(self, ask: Ask) -> Any:
        return self.known(ApiKey.objects.select_related("tenant").filter(pk=id_of(ask)).first())

    def look(self, ask: Ask) -> Preview:
        key = self.row(ask)
        used = f"{moment(key.last_used_at)} UTC" if key.last_used_at else "never"
        lines = [
            Line("Tenant", key.tenant.slug), Line("Role", key.role), Line("Last used", used),
            Line("State", "revoked" if key.revoked_at else "valid", None if key.revoked_at else "revoked"),
        ]  # fmt: skip
        refused = "It is revoked already." if key.revoked_at else ""
        warnings = ["Whoever uses it is refused from the next request on. A new key has another text."]
        return Preview(
            f"Revoke key {key}", lines, version_of(key.revoked_at), warnings, refused, _page("apikey", key.pk)
        )

    def do(self, ask: Ask) -> Receipt:
        key = self.row(ask)
        apikey_end(tenant=key.tenant, actor=ask.actor, key_id=key.pk, now=ask.now)
        return Receipt("It is revoked.", _page("apikey", key.pk))


@register
class RevokeInvitation(Ending):
    """Its link leads nowhere any more."""

    name, label = "invitation.revoke", "Revoke"

    def row(self, ask: Ask) -> Any:
        return self.known(Invitation.objects.select_related("tenant").filter(pk=id_of(ask)).first())

    def look(self, ask: Ask) -> Preview:
        found = self.row(ask)
        state = "accepted" if found.accepted_at else "revoked" if found.revoked_at else "open"
        lines = [
            Line("Tenant", found.tenant.slug), Line("Role", found.role),
            Line("Until", f"{moment(found.expires_at)} UTC"),
            Line("State", state, "revoked" if state == "open" else None),
        ]  # fmt: skip
        return Preview(
            f"Revoke the invitation of {found.email}", lines, version_of(state), [],
            "" if state == "open" else f"It was {state} already.", _page("invitation", found.pk),
        )  # fmt: skip

    def do(self, ask: Ask) -> Receipt:
        found = self.row(ask)
        invitation_revoke(tenant=found.tenant, actor=ask.actor, invitation_id=found.pk, now=ask.now)
        return Receipt("It is revoked.", _page("invitation", found.pk))


@register
class SignOut(Ending):
    """All sessions of a member are over."""

    name, label = "member.sign_out", "Sign out everywhere"

    def row(self, ask: Ask) -> Any:
        return self.known(Member.objects.select_related("tenant").filter(pk=_number(ask)).first())

    def look(self, ask: Ask) -> Preview:
        member = self.row(ask)
        lines = [
            Line("Tenant", member.tenant.slug), Line("Role", member.role), Line("Sessions", "as they are", "over"),
        ]  # fmt: skip
        return Preview(
            f"Sign out {member.email or member.uid}", lines, version_of(member.session_epoch),
            ["Signing in again is open to them."], link=_page("member", member.pk),
        )  # fmt: skip

    def do(self, ask: Ask) -> Receipt:
        member = self.row(ask)
        sessions_end(tenant=member.tenant, actor=ask.actor, member_uid=member.uid, now=ask.now)
        return Receipt("All sessions are over.", _page("member", member.pk))


@register
class SwitchOff(Ending):
    """Nobody signs in through a tenant's identity provider any more."""

    name, label = "provider.switch_off", "Switch off"

    def row(self, ask: Ask) -> Any:
        return self.known(Provider.objects.select_related("tenant").filter(pk=_number(ask)).first())

    def look(self, ask: Ask) -> Preview:
        found = self.row(ask)
        lines = [
            Line("Tenant", found.tenant.slug),
            Line("State", "on" if found.enabled else "off", "off" if found.enabled else None),
        ]
        return Preview(
            f"Switch off {found.issuer}", lines, version_of(found.revision),
            ["Its people sign in with passwords, or not at all, until an admin of the tenant switches it on again."],
            "" if found.enabled else "It is off.", f"/admin/signin/provider/{found.pk}/change/",
        )  # fmt: skip

    def do(self, ask: Ask) -> Receipt:
        found = self.row(ask)
        with transaction.atomic():
            changed = Provider.objects.filter(pk=found.pk, enabled=True, revision=found.revision).update(
                enabled=False, revision=found.revision + 1, updated_at=ask.now
            )
            if not changed:
                raise Stale("The provider has changed meanwhile.")
            record(
                actor=ask.actor, action="provider.update", object_type="provider", object_id=found.pk, now=ask.now,
                tenant_id=found.tenant_id, before={"enabled": True}, after={"enabled": False}, reason=ask.reason,
            )  # fmt: skip
        return Receipt("It is off.", f"/admin/signin/provider/{found.pk}/change/")


def _page(table: str, key: object) -> str:
    return f"/admin/tenants/{table}/{key}/change/"


def _number(ask: Ask) -> int:
    """The target as a number; 0, which no row has, where it is none."""
    text = ask.target
    return int(text) if text.isascii() and text.isdigit() and len(text) <= NUMBER_CHARS else 0
