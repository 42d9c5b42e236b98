"""Members and invitations: who belongs to the tenant, with which role, and who may join."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from apps.portal.once import shown_once
from apps.portal.pages import Page
from apps.portal.verbs import Receipt, Subject, VerbPage
from apps.presenting.fields import Field, Form, choices
from apps.presenting.paging import listed, newest
from kernel.errors import Faults, NotFound
from tenants import invitations, people
from tenants.models import Invitation, Member
from tenants.permissions import ROLES

NAME_CHARS = 100
SHOWN_INVITATIONS = 50
ROLE_HELP = (
    "viewer: reads. editor: also makes and changes jobs and schedules. operator: also cancels, runs again and replays. "
    "admin: also keys, people and webhooks."
)


class MemberList(Page):
    """The tenant's people, newest first, and who is invited."""

    actions = {"GET": "member.read"}
    section = "members"

    def get(self, request: HttpRequest) -> HttpResponse:
        found = Member.objects.filter(tenant=self.tenant)
        asked = Invitation.objects.filter(tenant=self.tenant, member=None).order_by("-pk")
        most = SHOWN_INVITATIONS if self.may("invitation.read") else 0
        return self.page(
            "portal/members.html", title="Members",
            listed=listed(request, newest(request, found, by="uid"), key=lambda one: one.uid),
            invitations=[(one, one.status_at(self.now)) for one in asked[:most]],
            offers=[self.offer("Invite", "portal:member-invite", "invitation.create", kind="primary")],
        )  # fmt: skip


class MemberDetail(Page):
    """One member."""

    actions = {"GET": "member.read"}
    section = "members"

    def get(self, request: HttpRequest, member_id: UUID) -> HttpResponse:
        member = access_member(self, member_id)
        mailless = "" if member.email else "There is no e-mail to sign in with."
        return self.page(
            "portal/member.html", title=member.name or member.email or "A member", one=member,
            myself=member.pk == self.inner.member.pk,
            offers=[
                self.offer("Change", "portal:member-change", "member.update", member.uid),
                self.offer("New password", "portal:member-reset", "member.reset", member.uid, blocked=mailless),
                self.offer("Sign out everywhere", "portal:member-signout", "member.sign_out", member.uid),
                self.offer("Remove", "portal:member-remove", "member.remove", member.uid, kind="danger"),
            ],
        )  # fmt: skip


class MemberInvite(VerbPage):
    """Asking somebody in."""

    actions = {"GET": "invitation.create", "POST": "invitation.create"}
    section = "members"
    title, button = "Invite somebody", "Make the invitation"

    def subject(self) -> Subject:  # type: ignore[override]  # its path has no id
        lead = "They open a link, choose a password and are in. The link works once and for some days."
        return Subject(name="Members", url=reverse("portal:members"), lead=lead)

    def fields(self, subject: Subject) -> list[Field]:
        return [
            Field("email", "E-mail", required=True),
            Field("name", "Name"),
            Field("role", "Role", "select", "viewer", options=choices(ROLES), help=ROLE_HELP),
        ]

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> HttpResponse:
        made, token = invitations.invitation_create(
            tenant=self.tenant, actor=self.actor, email=form.text("email"), role=form.text("role"),
            name=checked_name(form), now=self.now, send=invitations.send_invitation,
        )  # fmt: skip
        return link_once(self, f"The invitation of {made.email}", token, reverse("portal:members"))


class InvitationRevoke(VerbPage):
    """Taking an invitation back."""

    actions = {"GET": "invitation.revoke", "POST": "invitation.revoke"}
    section = "members"
    title, button, kind = "Take an invitation back", "Take it back", "danger"

    def subject(self, invitation_id: UUID) -> Subject:  # type: ignore[override]  # its path has one id
        found = Invitation.objects.filter(pk=invitation_id, tenant=self.tenant).first()
        if found is None:
            raise NotFound("There is no such invitation.")
        status = found.status_at(self.now)
        return Subject(
            name="Members", url=reverse("portal:members"), lead="Its link works no more.", row=found,
            facts=[("E-mail", found.email), ("Role", found.role)],
            blocked="" if status == "open" else f"It is {status} already.",
        )  # fmt: skip

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        invitations.invitation_revoke(tenant=self.tenant, actor=self.actor, invitation_id=subject.row.pk, now=self.now)
        return Receipt("Taken back.", subject.url)


class MemberVerb(VerbPage):
    """What the verbs of one member share."""

    section = "members"
    lead = ""

    def subject(self, member_id: UUID) -> Subject:  # type: ignore[override]  # its path has one id
        member = access_member(self, member_id)
        return Subject(
            name=member.name or member.email or "A member", url=reverse("portal:member", args=[member.uid]),
            lead=self.lead, facts=[("E-mail", member.email or "none"), ("Role", member.role)], row=member,
            revision=member.revision,
        )  # fmt: skip


class MemberChange(MemberVerb):
    """Another role or name."""

    actions = {"GET": "member.update", "POST": "member.update"}
    title, button = "Change", "Save"
    lead = "A new role counts from the next request on."

    def fields(self, subject: Subject) -> list[Field]:
        return [
            Field("name", "Name", value=subject.row.name),
            Field("role", "Role", "select", subject.row.role, options=choices(ROLES), help=ROLE_HELP),
        ]

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        changes = {"name": checked_name(form), "role": form.text("role")}
        people.member_change(
            tenant=self.tenant, actor=self.actor, member_uid=subject.row.uid, changes=changes, now=self.now,
            expect=expect,
        )  # fmt: skip
        return Receipt("Saved.", subject.url)


class MemberRemove(MemberVerb):
    """Ending a membership."""

    actions = {"GET": "member.remove", "POST": "member.remove"}
    title, button, kind = "Remove", "Remove the member", "danger"
    lead = (
        "Their sessions end with the next request. What they did stays in the trail, and keys that they made stay, too."
    )

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        people.member_remove(
            tenant=self.tenant, actor=self.actor, member_uid=subject.row.uid, now=self.now, expect=expect
        )
        return Receipt(f"{subject.name} is no member any more.", reverse("portal:members"))


class MemberSignOut(MemberVerb):
    """Ending sessions."""

    actions = {"GET": "member.sign_out", "POST": "member.sign_out"}
    title, button = "Sign out everywhere", "End all sessions"
    lead = "All sessions of this person end. They can sign in again."

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> Receipt:
        people.sessions_end(tenant=self.tenant, actor=self.actor, member_uid=subject.row.uid, now=self.now)
        return Receipt("All sessions have ended.", subject.url)


class MemberReset(MemberVerb):
    """A link for a new password."""

    actions = {"GET": "member.reset", "POST": "member.reset"}
    title, button = "New password", "Make the link"
    lead = (
        "A link with which they choose a new password. It works once and for a day; until then the present one works."
    )

    def do(self, subject: Subject, form: Form, expect: set[int] | None) -> HttpResponse:
        _, token = invitations.reset_create(
            tenant=self.tenant, actor=self.actor, member_uid=subject.row.uid, now=self.now,
            send=invitations.send_invitation,
        )  # fmt: skip
        return link_once(self, f"A new password for {subject.name}", token, subject.url)


def access_member(page: Page, member_id: UUID) -> Member:
    """A member of the host's tenant; the same 404 for all that is not there."""
    member = Member.objects.filter(uid=member_id, tenant=page.tenant).first()
    if member is None:
        raise NotFound("There is no such member.")
    return member


def checked_name(form: Form) -> str:
    name = form.text("name")
    faults = Faults()
    if len(name) > NAME_CHARS or any(ord(one) < 32 for one in name):
        faults.add("/name", "type", f"must be one line of at most {NAME_CHARS} characters.")
    faults.raise_if_any()
    return name


def link_once(page: Page, what: str, token: str, url: str) -> HttpResponse:
    """The link of an invitation, on the host that this page is on."""
    text = page.request.build_absolute_uri(f"{invitations.ACCEPT_PATH}?token={token}")
    mailed = "It was mailed, too." if invitations.mails() else "No mail goes out here: hand it over yourself."
    return shown_once(page, what, text, url, hint=f"{mailed} It works once, and can't be shown again.")
