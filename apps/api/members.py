"""/members and /invitations: the tenant's people."""

from datetime import datetime
from typing import Any
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_invitation, access_member
from apps.api.documents_people import (
    MEMBER_READ_ONLY,
    InvitationAnswer,
    InvitationInput,
    MemberAnswer,
    MemberChange,
    NewInvitationAnswer,
)
from apps.api.documents_runs import NoInput
from apps.api.endpoint import Endpoint, retry_safe
from apps.api.etags import revisions, tagged
from apps.api.lists import PAGING, newest
from apps.api.openapi import CURSOR_PARAMETER, PAGE_SIZE_PARAMETER, listing, operation, parameter
from apps.api.reading import nothing_of
from apps.schedules.input_fields import Fields
from kernel.errors import Faults
from tenants import invitations
from tenants.emails import MAX_EMAIL_CHARS
from tenants.models import Invitation, Member
from tenants.people import member_change, member_remove, sessions_end
from tenants.permissions import ROLES

TAG, INVITATIONS_TAG = "members", "invitations"
MAX_NAME_CHARS = 100


class MemberList(Endpoint):
    """The tenant's people. Who joins is invited."""

    actions = {"GET": "member.read"}

    @operation(
        "members_list", "List members, newest first", answer=listing(MemberAnswer, "Member"), tag=TAG,
        parameters=[
            parameter("role", choices=ROLES, text="one or several roles, with commas between them"),
            parameter("email", text="all of it, in any case"), PAGE_SIZE_PARAMETER, CURSOR_PARAMETER,
        ],
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        query = self.query("role", "email", *PAGING)
        roles, email = query.choices("role", ROLES), query.text("email")
        found = Member.objects.select_related("user").filter(tenant=self.tenant)
        if roles:
            found = found.filter(role__in=roles)
        if email is not None:
            found = found.filter(email=email.lower())
        return Response(newest(found, query=query, shape=member_shape, by="uid"))


class MemberDetail(Endpoint):
    """One member."""

    actions = {"GET": "member.read", "PATCH": "member.update", "DELETE": "member.remove"}

    @operation("members_read", "Read a member", answer=MemberAnswer, tag=TAG)
    def get(self, request: Request, member_id: UUID) -> Response:
        self.query().finish()
        found = access_member(actor=self.actor, member_id=member_id, need="member.read")
        return tagged(member_shape(found), found.revision)

    @operation(
        "members_patch", "Change a member's role or name; it counts from the next request on", body=MemberChange,
        answer=MemberAnswer, if_match=True, tag=TAG, problems=("grant_too_high", "last_admin"),
    )  # fmt: skip
    def patch(self, request: Request, member_id: UUID) -> Response:
        access_member(actor=self.actor, member_id=member_id, need="member.update")  # 404 before anything of the body
        fields = Fields(self.body, Faults())
        fields.only(("name", "role"), read_only=MEMBER_READ_ONLY)
        changes: dict[str, str] = {}
        if "role" in fields.data:
            changes["role"] = fields.choice("role", ROLES)
        if "name" in fields.data:
            changes["name"] = fields.text("name", most=MAX_NAME_CHARS) or ""
        fields.faults.raise_if_any()
        member = member_change(
            tenant=self.tenant, actor=self.actor, member_uid=member_id, changes=changes, now=self.now,
            expect=revisions(request),
        )  # fmt: skip
        return tagged(member_shape(member), member.revision)

    @operation(
        "members_remove", "End a membership; the person's sessions end with it", status=204, if_match=True, tag=TAG,
        problems=("grant_too_high", "last_admin"),
    )  # fmt: skip
    def delete(self, request: Request, member_id: UUID) -> Response:
        member_remove(
            tenant=self.tenant, actor=self.actor, member_uid=member_id, now=self.now, expect=revisions(request)
        )
        return Response(status=204)


class MemberReset(Endpoint):
    """A new password for who forgot theirs."""

    actions = {"POST": "member.reset"}

    @operation(
        "members_reset", "Make a link with which a member chooses a new password, shown only in this answer",
        body=NoInput, answer=NewInvitationAnswer, status=201, retry_safe=True, tag=TAG,
        problems=("grant_too_high", "member_without_email"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, member_id: UUID) -> Response:
        access_member(actor=self.actor, member_id=member_id, need="member.reset")
        nothing_of(self.body)
        made, token = invitations.reset_create(
            tenant=self.tenant, actor=self.actor, member_uid=member_id, now=self.now, send=invitations.send_invitation
        )
        return Response(_new(made, token, self), status=201)


class MemberSignOut(Endpoint):
    """The end of a person's sessions."""

    actions = {"POST": "member.sign_out"}

    @operation(
        "members_sign_out", "End all sessions of a member", body=NoInput, answer=MemberAnswer, retry_safe=True, tag=TAG
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, member_id: UUID) -> Response:
        access_member(actor=self.actor, member_id=member_id, need="member.sign_out")
        nothing_of(self.body)
        member = sessions_end(tenant=self.tenant, actor=self.actor, member_uid=member_id, now=self.now)
        return tagged(member_shape(member), member.revision)


class InvitationList(Endpoint):
    """All invitations."""

    actions = {"GET": "invitation.read", "POST": "invitation.create"}

    @operation(
        "invitations_list", "List invitations, newest first", tag=INVITATIONS_TAG,
        answer=listing(InvitationAnswer, "Invitation"), parameters=[PAGE_SIZE_PARAMETER, CURSOR_PARAMETER],
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        query = self.query(*PAGING)
        found = Invitation.objects.select_related("member").filter(tenant=self.tenant)
        return Response(newest(found, query=query, shape=lambda row: invitation_shape(row, self.now)))

    @operation(
        "invitations_create", "Invite somebody; the link is shown only in this answer. A former invitation of the same "
        "e-mail ends", body=InvitationInput, answer=NewInvitationAnswer, status=201, retry_safe=True,
        tag=INVITATIONS_TAG, problems=("grant_too_high", "member_exists", "quota_exceeded"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request) -> Response:
        fields = Fields(self.body, Faults())
        fields.only(("email", "role", "name"))
        email = fields.text("email", most=MAX_EMAIL_CHARS, required=True)
        role, name = fields.choice("role", ROLES), fields.text("name", most=MAX_NAME_CHARS)
        fields.faults.raise_if_any()
        made, token = invitations.invitation_create(
            tenant=self.tenant, actor=self.actor, email=email or "", role=role, name=name or "", now=self.now,
            send=invitations.send_invitation,
        )  # fmt: skip
        return Response(
            _new(made, token, self), status=201, headers={"Location": f"{request.path}/{made.pk}"}
        )  # fmt: skip


class InvitationDetail(Endpoint):
    """One invitation."""

    actions = {"GET": "invitation.read", "DELETE": "invitation.revoke"}

    @operation("invitations_read", "Read an invitation", answer=InvitationAnswer, tag=INVITATIONS_TAG)
    def get(self, request: Request, invitation_id: UUID) -> Response:
        self.query().finish()
        found = access_invitation(actor=self.actor, invitation_id=invitation_id, need="invitation.read")
        return Response(invitation_shape(found, self.now))

    @operation("invitations_revoke", "Revoke an invitation at once", status=204, tag=INVITATIONS_TAG)
    def delete(self, request: Request, invitation_id: UUID) -> Response:
        invitations.invitation_revoke(
            tenant=self.tenant, actor=self.actor, invitation_id=invitation_id, now=self.now
        )  # fmt: skip
        return Response(status=204)


def member_shape(member: Member) -> dict[str, Any]:
    """A member, read with its user."""
    return {
        "id": member.uid,
        "email": member.email or None,
        "name": member.name or None,
        "role": member.role,
        "has_password": member.user.has_usable_password(),
        "last_login_at": member.user.last_login,
        "created_at": member.created_at,
    }


def invitation_shape(invitation: Invitation, now: datetime) -> dict[str, Any]:
    """An invitation without its token, read with its member."""
    return {
        "id": invitation.pk,
        "email": invitation.email,
        "name": invitation.name or None,
        "role": invitation.role,
        "member": invitation.member.uid if invitation.member else None,
        "status": invitation.status_at(now),
        "created_at": invitation.created_at,
        "created_by": invitation.created_by,
        "expires_at": invitation.expires_at,
        "accepted_at": invitation.accepted_at,
        "revoked_at": invitation.revoked_at,
    }


def _new(invitation: Invitation, token: str, endpoint: Endpoint) -> dict[str, Any]:
    link = invitations.link(invitation.tenant, token, asked=endpoint.inner)
    return {**invitation_shape(invitation, endpoint.now), "link": link, "mailed": invitations.mails()}
