"""The Celery message of a slot: what a PeriodicTask's texts mean."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson

from apps.due.slots import Slot
from workers.beat_rows import Periodic
from workers.periodic import SLOT_HEADER


class Unsendable(Exception):
    """No message can be made of this task; the reason is for the operator."""


@dataclass(frozen=True, slots=True)
class Message:
    """`options` are those of `apply_async`; after `expires_at` nobody is to start it."""

    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    options: dict[str, Any]
    expires_at: datetime | None


def message_of(task: Periodic, slot: Slot) -> Message:
    """Raises Unsendable where a text is not what it should be."""
    if not task.task.strip():
        raise Unsendable("it names no task")
    headers = _read("headers", task.headers, dict) | {"periodic_task_name": task.name, SLOT_HEADER: slot.id}
    options: dict[str, Any] = {"headers": headers}
    for name in ("queue", "exchange", "routing_key", "priority"):
        value = getattr(task, name)
        if value is not None and value != "":
            options[name] = value
    ends = [] if task.expires_at is None else [task.expires_at]
    if task.expire_s is not None:
        ends.append(slot.slot_at + timedelta(seconds=task.expire_s))
    expires_at = min(ends, default=None)
    if expires_at is not None:
        options["expires"] = expires_at
    return Message(task.task, _read("args", task.args, list), _read("kwargs", task.kwargs, dict), options, expires_at)


def _read(name: str, text: str | None, kind: type) -> Any:
    """The JSON value of a text; blank is empty."""
    if text is None or not text.strip():
        return kind()
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Unsendable(f"{name} is not JSON: {error}") from error
    if not isinstance(value, kind):
        raise Unsendable(f"{name} must be a JSON {'list' if kind is list else 'object'}")
    return value
