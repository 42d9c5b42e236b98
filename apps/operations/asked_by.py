"""Who asked for an operation, kept with it: its items are carried out, and stand in the trail, in their name.

Of a person only the number is kept in plain text; the name is encrypted under the person's key, as in the trail.
"""

from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from apps.audit import personal
from apps.audit.services import Actor

Conn = psycopg.Connection[Any]
REQUEST_PREFIX = "operation:"  # what the trail's rows of items have as the id of their request


class _Sealed(NamedTuple):
    personal: bytes | None
    about_personal: None = None


def kept(conn: Conn, actor: Actor, *, tenant_id: int) -> dict[str, Any]:
    """What is stored of an actor. KeyUnknown and KeyringInvalid when the name can't be encrypted."""
    found: dict[str, Any] = {"name": actor.stored, "role": actor.role, "subject": actor.subject}
    if actor.is_person:
        sealed = personal.of_subject(conn, actor.subject, {"name": actor.name}, tenant_id=tenant_id)
        found["sealed"] = sealed.hex() if sealed else ""
    return found


def restored(conn: Conn, stored: dict[str, Any], *, tenant_id: int, operation_id: UUID) -> Actor:
    """The actor that was stored. Where a person's name was erased since, the number takes its place."""
    name = stored["name"]
    if stored.get("sealed"):
        row = _Sealed(bytes.fromhex(stored["sealed"]))
        name = personal.opened(conn, [row])[0].name or name
    return Actor(
        name=name, role=stored["role"], tenant_id=tenant_id, request_id=f"{REQUEST_PREFIX}{operation_id}",
        subject=stored["subject"],
    )  # fmt: skip
