"""Who acts, and from where: what every service gets and the trail writes down."""

import re
from dataclasses import dataclass, replace
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest

from kernel.clientaddress import client_address

NAME_CHARS = 200
AGENT_CHARS = 120
OPERATOR, MEMBER = "user", "member"  # kinds of subject that are persons
INVITATION = "invitation"  # of somebody who is no member yet
PERSONS = (OPERATOR, MEMBER)
_NOT_SHOWN = re.compile("[^\x20-\x7e\xa0-\u00ff]+")


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asks: `name` is shown ("key:deploy (viewer)", "admin:ada", "command:root"), `role` decides.

    `subject` is who that is for good: "user:3", "member:<id>", "key:<id>", "run"; empty for the system and commands.
    `address` and `agent` say from where. `scopes` narrow the role (tenants.permissions); None does not.
    `because` is why, where somebody was asked: it is the reason of each row of the trail that has none of its own.
    """

    name: str
    role: str
    tenant_id: int | None = None
    request_id: str = ""
    scopes: frozenset[str] | None = None
    subject: str = ""
    address: str = ""
    agent: str = ""
    because: str = ""

    @property
    def is_person(self) -> bool:
        return self.subject.partition(":")[0] in PERSONS

    @property
    def stored(self) -> str:
        """What may stand in plain text wherever it is kept: a machine's name, but of a person only the number."""
        return self.subject if self.is_person else self.name[:NAME_CHARS]


def operator(user_id: int) -> str:
    """The subject of an operator's login."""
    return f"{OPERATOR}:{user_id}"


def member(uid: UUID) -> str:
    """The subject of a tenant's member: what the tenant knows them by, and nobody else does."""
    return f"{MEMBER}:{uid}"


def invitation(invitation_id: UUID) -> str:
    """The subject of somebody who is no member yet."""
    return f"{INVITATION}:{invitation_id}"


def at_request(actor: Actor, request: HttpRequest) -> Actor:
    """The actor with where the request comes from, and its id."""
    return replace(
        actor, address=address_of(request), agent=agent_of(request), request_id=getattr(request, "request_id", "")
    )


def address_of(request: HttpRequest) -> str:
    """The caller's address, as far as we can know."""
    return client_address(
        remote=request.META.get("REMOTE_ADDR", ""), forwarded=request.META.get("HTTP_X_FORWARDED_FOR", ""),
        proxies=settings.TRUSTED_PROXIES,
    )  # fmt: skip


def agent_of(request: HttpRequest) -> str:
    """The program that calls, as it names itself: short, and nothing that is not shown."""
    return _NOT_SHOWN.sub(" ", request.headers.get("User-Agent", ""))[:AGENT_CHARS].strip()
