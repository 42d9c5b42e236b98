"""Writing the trail: one row an effect or refused attempt, in the caller's transaction."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import orjson
import psycopg
from django.db import connection

from apps.audit import personal
from apps.audit.actors import Actor

__all__ = ["Actor", "Entry", "record", "record_by_system", "record_many"]
Conn = psycopg.Connection[Any]
SYSTEM = "system"
ACTION_CHARS, TYPE_CHARS, OBJECT_ID_CHARS, SUBJECT_CHARS, ROLE_CHARS, REQUEST_ID_CHARS = 80, 40, 64, 64, 20, 64

_INSERT = """
INSERT INTO public.audit_auditevent
    (at, tenant_id, actor, role, subject, request_id, personal,
     action, object_type, object_id, allowed, before, after, reason, about, about_personal)
SELECT coalesce(%(at)s, clock_timestamp()), %(tenant)s, %(actor)s, %(role)s, %(subject)s, %(request)s, %(personal)s,
       action, object_type, object_id, allowed, before, after, reason, about, decode(about_personal, 'hex')
FROM json_to_recordset(%(rows)s::json)
    AS row(action text, object_type text, object_id text, allowed bool, before jsonb, after jsonb, reason text,
           about text, about_personal text)
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One row that is to be written. `before` and `after` hold only what changed.

    `about` is the subject ("user:3", "invitation:<id>") of the person that it concerns, and `personal` what it says of
    them: encrypted for that subject, so that it can be destroyed. Nothing personal belongs into the other fields.
    """

    action: str
    object_type: str
    object_id: object
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    reason: str = ""
    allowed: bool = True
    about: str = ""
    personal: Mapping[str, str] | None = None


def record(
    *,
    actor: Actor,
    action: str,
    object_type: str,
    object_id: object,
    now: datetime,
    tenant_id: int | None,
    allowed: bool = True,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    reason: str = "",
    about: str = "",
    personal: Mapping[str, str] | None = None,
) -> None:
    """Appends one row; the parameters are an `Entry`'s."""
    entry = Entry(
        action, object_type, object_id, before=before, after=after, reason=reason, allowed=allowed, about=about,
        personal=personal,
    )  # fmt: skip
    record_many([entry], actor=actor, now=now, tenant_id=tenant_id)


def record_many(
    entries: Iterable[Entry], *, actor: Actor, now: datetime | None, tenant_id: int | None, conn: Conn | None = None
) -> None:
    """Appends rows of one actor and tenant in one statement: through Django's connection, or the one that is given.

    Without `now` they have the database's time. KeyUnknown and KeyringInvalid when personal fields can't be encrypted.
    """
    rows = list(entries)
    if not rows:
        return
    conn = conn or django_connection()
    about = [
        personal.of_subject(conn, one.about, one.personal, tenant_id=tenant_id) if one.about and one.personal else None
        for one in rows
    ]
    conn.execute(
        _INSERT,
        {
            "at": now, "tenant": tenant_id, "actor": actor.stored, "role": actor.role[:ROLE_CHARS],
            "subject": actor.subject[:SUBJECT_CHARS], "request": actor.request_id[:REQUEST_ID_CHARS],
            "personal": personal.of_actor(conn, actor, tenant_id=tenant_id),
            "rows": _json_rows(rows, about, actor.because),
        },
    )  # fmt: skip


def record_by_system(
    conn: Conn, entry: Entry, *, tenant_id: int | None, now: datetime | None = None, name: str = SYSTEM
) -> None:
    """Appends what no person and no key did. It needs no key of the trail, as nothing personal is in it."""
    record_many([entry], actor=Actor(name, ""), now=now, tenant_id=tenant_id, conn=conn)


def django_connection() -> Conn:
    """The psycopg connection under Django's, in Django's current transaction."""
    connection.close_if_health_check_failed()  # Django itself looks only when it opens a cursor
    connection.ensure_connection()
    return cast("Conn", connection.connection)


def _json_rows(rows: Iterable[Entry], about: Iterable[bytes | None], because: str) -> str:
    """All rows as one parameter: measured, arrays of JSON texts cost several times as much to make."""
    told = [
        {
            "action": one.action[:ACTION_CHARS], "object_type": one.object_type[:TYPE_CHARS],
            "object_id": str(one.object_id)[:OBJECT_ID_CHARS], "allowed": one.allowed, "before": one.before,
            "after": one.after, "reason": one.reason or because, "about": one.about[:SUBJECT_CHARS],
            "about_personal": None if sealed is None else sealed.hex(),
        }
        for one, sealed in zip(rows, about, strict=True)
    ]  # fmt: skip
    try:
        return orjson.dumps(told, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # numbers beyond 64 bits, which tenants may have given
        return json.dumps(told, default=str, ensure_ascii=True, allow_nan=False)
