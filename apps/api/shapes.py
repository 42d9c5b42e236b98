"""Resources as the API answers them, in one place to import from."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from apps.deadletters.models import DeadLetter
from apps.deadletters.replays import replays_of
from apps.schedules.defined import DefinedSchedule
from apps.schedules.loads import hint_shape, load_hint
from apps.schedules.models import Calendar, Schedule
from apps.schedules.reading import job_shape, jobs_defined, schedule_shapes, schedules_defined
from apps.schedules.timing import TimingInvalid, spec_from_json
from apps.secrets.models import Secret
from tenants import door
from tenants.models import ApiKey, Tenant

__all__ = [
    "apikey_shape",
    "calendar_shape",
    "deadletter_shape",
    "deadletter_shapes",
    "job_shape",
    "jobs_defined",
    "load_hint_shape",
    "schedule_shapes",
    "schedules_defined",
    "secret_shape",
    "signing_shape",
]


def load_hint_shape(found: DefinedSchedule, status: str, *, now: datetime) -> dict[str, Any] | None:
    """What the next runs of a schedule meet; None where nothing is known."""
    if status != Schedule.Status.ACTIVE:
        return None
    with suppress(TimingInvalid):
        spec = spec_from_json(found.definition.spec)
        told = load_hint(door.raw(), spec, key=str(found.schedule.pk), now=now)
        return None if told is None else hint_shape(told)
    return None


def calendar_shape(calendar: Calendar) -> dict[str, Any]:
    """A calendar."""
    return {
        "id": calendar.pk,
        "name": calendar.name,
        **calendar.days,
        "created_at": calendar.created_at,
        "updated_at": calendar.updated_at,
    }


def deadletter_shapes(tenant: Tenant, letters: Sequence[DeadLetter]) -> list[dict[str, Any]]:
    """Dead letters, in order; how often each was replayed takes one statement for all."""
    replays = replays_of(door.raw(), tenant.schema_name, {one.execution_id for one in letters})
    return [_deadletter(one, replays.get(one.execution_id, 0)) for one in letters]


def deadletter_shape(tenant: Tenant, letter: DeadLetter) -> dict[str, Any]:
    """A dead letter."""
    return deadletter_shapes(tenant, [letter])[0]


def _deadletter(letter: DeadLetter, replays: int) -> dict[str, Any]:
    return {
        "id": letter.pk,
        "execution": letter.execution_id,
        "job": letter.job_id,
        "schedule": letter.schedule_id,
        "status": letter.resolution or "open",
        "fingerprint": letter.fingerprint,
        "error": letter.error,
        "attempts": letter.attempts,
        "replays": replays,
        "created_at": letter.created_at,
        "resolved_at": letter.resolved_at,
        "resolved_by": letter.resolved_by or None,
        "note": letter.note or None,
    }


def apikey_shape(key: ApiKey) -> dict[str, Any]:
    """An API key without its text."""
    return {
        "id": key.pk,
        "name": key.name,
        "prefix": f"sb_{key.prefix}",
        "role": key.role,
        "scopes": key.scopes,
        "created_at": key.created_at,
        "created_by": key.created_by or None,
        "replaces": key.replaces,
        "rotated_at": key.rotated_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "last_used_at": key.last_used_at,
    }


def secret_shape(secret: Secret) -> dict[str, Any]:
    """A secret without its value, which nothing shows."""
    return {
        "id": secret.pk,
        "name": secret.name,
        "description": secret.description or None,
        "version": secret.version,
        "value_set_at": secret.value_set_at,
        "last_used_at": secret.last_used_at,
        "created_at": secret.created_at,
        "updated_at": secret.updated_at,
    }


def signing_shape(secret: Secret) -> dict[str, Any]:
    """A signing secret without its text."""
    return {"id": secret.pk, "created_at": secret.created_at, "expires_at": secret.expires_at}
