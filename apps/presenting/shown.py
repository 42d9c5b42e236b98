"""How values look on the pages: times, states with icon, word and colour, JSON that is cut. Pure."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, NamedTuple

from kernel.printing import LINES, printable

SHOWN_CHARS = 8_000
UNITS = (("d", 86_400, 172_800), ("h", 3_600, 3_600), ("min", 60, 60), ("s", 1, 0))  # name, seconds, used from


class Look(NamedTuple):
    """Of a state: never colour alone."""

    tone: str  # classes tone-ok, tone-bad, tone-warn, tone-run, tone-idle
    icon: str
    word: str


LOOKS = {
    # executions
    "scheduled": Look("idle", "clock", "scheduled"),
    "blocked": Look("warn", "pause", "blocked"),
    "ready": Look("idle", "hourglass", "ready"),
    "queued": Look("run", "hourglass", "queued"),
    "running": Look("run", "play", "running"),
    "succeeded": Look("ok", "check", "succeeded"),
    "dead": Look("bad", "cross", "dead"),
    "cancelled": Look("idle", "stop", "cancelled"),
    "expired": Look("warn", "hourglass", "expired"),
    "skipped": Look("idle", "skip", "skipped"),
    # attempts
    "failed": Look("bad", "cross", "failed"),
    "timed_out": Look("bad", "hourglass", "timed out"),
    "lost": Look("warn", "alert", "lost"),
    "returned": Look("idle", "undo", "returned"),
    # runs of workflows and their steps
    "waiting": Look("idle", "hourglass", "waiting"),
    "cancelling": Look("warn", "stop", "being cancelled"),
    # operations, backfills among them
    "planning": Look("idle", "hourglass", "being planned"),
    "stopped": Look("bad", "stop", "stopped"),
    "undoing": Look("run", "undo", "being undone"),
    "undone": Look("idle", "undo", "undone"),
    # schedules, jobs, keys and the rest
    "active": Look("ok", "check", "active"),
    "paused": Look("warn", "pause", "paused"),
    "completed": Look("idle", "check", "completed"),
    "open": Look("bad", "alert", "open"),
    "half_open": Look("warn", "hourglass", "trying again"),
    "closed": Look("ok", "check", "closed"),
    "replayed": Look("ok", "undo", "replayed"),
    "resolved": Look("ok", "check", "resolved"),
    "revoked": Look("idle", "stop", "revoked"),
    "enabled": Look("ok", "check", "enabled"),
    "disabled": Look("bad", "stop", "disabled"),
    "failing": Look("warn", "alert", "failing"),
    "pending": Look("warn", "hourglass", "pending"),
    "accepted": Look("ok", "check", "accepted"),
    "done": Look("ok", "check", "done"),
    "allowed": Look("ok", "check", "allowed"),
    "refused": Look("bad", "stop", "refused"),
}


def look_of(state: str) -> Look:
    """Of a state that nobody knows, too."""
    return LOOKS.get(state, Look("idle", "dot", state.replace("_", " ")))


def ago(at: datetime, now: datetime) -> str:
    """ "12 s ago", "in 3 min", "now": one unit, rounded down."""
    seconds = (now - at).total_seconds()
    whole = int(abs(seconds))
    if not whole:
        return "now"
    unit, size = next((unit, size) for unit, size, least in UNITS if whole >= least)
    rough = f"{whole // size} {unit}"
    return f"{rough} ago" if seconds > 0 else f"in {rough}"


def moment(at: datetime) -> str:
    """In UTC, to the second."""
    return f"{at:%Y-%m-%d %H:%M:%S}"


def json_text(value: Any) -> str:
    """A decoded value to read. What is longer than SHOWN_CHARS is cut, and says so."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    rest, text = len(text) - SHOWN_CHARS, printable(text[:SHOWN_CHARS], keep=LINES)
    return text if rest <= 0 else f"{text}\n... {rest:,} more characters; the API answers all of it"


def error_line(error: Any) -> str:
    """What an error says, in one line."""
    if not isinstance(error, dict):
        return str(error)[:200] if error else ""
    named = [
        str(error[name]) for name in ("class", "code", "status", "http_status", "message", "detail") if error.get(name)
    ]
    return " · ".join(dict.fromkeys(named))[:300] or str(error)[:200]
