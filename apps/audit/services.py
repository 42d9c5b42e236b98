"""Writing the trail: one row an effect or refused attempt, in the caller's transaction."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import orjson
import psycopg
from django.db import connection

from apps.audit import personal
from apps.audit.actors import Actor

__all__ = ["Actor", "Entry", "record", "record_many"]
Conn = psycopg.Connection[Any]
ACTION_CHARS, TYPE_CHARS, OBJECT_ID_CHARS, SUBJECT_CHARS, ROLE_CHARS, REQUEST_ID_CHARS = 80, 40, 64, 64, 20, 64

_INSERT = """
INSERT INTO public.audit_auditevent
    (at, tenant_id, actor, role, subject, request_id, personal,
     action, object_type, object_id, allowed, before, after, reason, about, about_personal)
SELECT %(at)s, %(tenant)s, %(actor)s, %(role)s, %(subject)s, %(request)s, %(personal)s,
       action, object_type, object_id, allowed, before::jsonb, after::jsonb, reason, about, about_personal
FROM unnest(%(actions)s::text[], %(types)s::text[], %(ids)s::text[], %(allowed)s::bool[], %(before)s::text[],
            %(after)s::text[], %(reasons)s::text[], %(about)s::text[], %(about_personal)s::bytea[])
    AS row(action, object_type, object_id, allowed, before, after, reason, about, about_personal)
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
    entries: Iterable[Entry], *, actor: Actor, now: datetime, tenant_id: int | None, conn: Conn | None = None
) -> None:
    """Appends rows of one actor and tenant in one statement: through Django's connection, or the one that is given.

    KeyUnknown and KeyringInvalid when personal fields can't be encrypted.
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
            "actions": [one.action[:ACTION_CHARS] for one in rows],
            "types": [one.object_type[:TYPE_CHARS] for one in rows],
            "ids": [str(one.object_id)[:OBJECT_ID_CHARS] for one in rows],
            "allowed": [one.allowed for one in rows],
            "before": [_json(one.before) for one in rows], "after": [_json(one.after) for one in rows],
            "reasons": [one.reason for one in rows],
            "about": [one.about[:SUBJECT_CHARS] for one in rows], "about_personal": about,
        },
    )  # fmt: skip


def django_connection() -> Conn:
    """The psycopg connection under Django's, in Django's current transaction."""
    connection.close_if_health_check_failed()  # Django itself looks only when it opens a cursor
    connection.ensure_connection()
    return cast("Conn", connection.connection)


def _json(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
