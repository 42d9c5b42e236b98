"""The few numbers of the admin's first page: shared tables only, each count capped, each with the rows behind it."""

from typing import Any, NamedTuple

from django.db import connection

from apps.audit import chain
from apps.due import slots, watch
from tenants import behind, door

CAP = watch.CAP
LATE_S = 10.0
UNSEALED_MANY = 5_000

# Each part reads one partial index; `ready` has two, by whether its time has come.
_COUNTS = """
SELECT
    (SELECT count(*) FROM (SELECT 1 FROM tickets_ticket WHERE state = 'ready' AND rank IS NOT NULL LIMIT %(cap)s) a),
    (SELECT count(*) FROM (SELECT 1 FROM tickets_ticket WHERE state = 'ready' AND rank IS NULL LIMIT %(cap)s) a),
    (SELECT count(*) FROM (SELECT 1 FROM tickets_ticket WHERE state = 'queued' LIMIT %(cap)s) a),
    (SELECT count(*) FROM (SELECT 1 FROM tickets_ticket WHERE state = 'running' LIMIT %(cap)s) a),
    (SELECT count(*) FROM tickets_worker WHERE expires_at > clock_timestamp()),
    (SELECT count(*) FROM (SELECT 1 FROM due_beatslot WHERE started_at IS NULL AND sends > %(sends)s LIMIT %(cap)s) a)
"""


class Line(NamedTuple):
    """One line of the table. `state` is ok or bad; `url` leads to the rows."""

    name: str
    value: str
    state: str
    url: str


def overview() -> list[Line]:
    """The state of the platform now."""
    seen = watch.look(door.raw())
    with connection.cursor() as cursor:
        cursor.execute(_COUNTS, {"cap": CAP + 1, "sends": slots.SENDS_MAX})
        ranked, unranked, queued, running, workers, given_up = cursor.fetchone()
    late_s = seen.late.total_seconds()
    others = behind.other_version(door.raw())
    waiting, alarms = chain.waiting(door.raw(), most=CAP + 1), chain.alarms(door.raw(), most=CAP + 1)
    return [
        _line("Dispatchers alive", seen.dispatchers, "due/dispatcher/?live=yes", bad=not seen.dispatchers),
        _line("Leases without live holder", len(seen.unheld), "due/shardlease/?held=no", bad=bool(seen.unheld)),
        _line("Workers alive", workers, "tickets/worker/?live=yes", bad=not workers),
        Line("Oldest due entry", f"{late_s:.1f} s", _state(late_s > LATE_S), "due/dueentry/?due=now"),
        _line("Due entries put aside", seen.parked, "due/dueentry/?parked=yes", bad=bool(seen.parked)),
        _line("Tickets ready", ranked + unranked, "tickets/ticket/?state=ready"),
        _line("Tickets queued", queued, "tickets/ticket/?state=queued"),
        _line("Tickets running", running, "tickets/ticket/?state=running"),
        _line("Audit rows not sealed yet", waiting, "audit/auditevent/", bad=waiting > UNSEALED_MANY),
        _line("Alarms of the audit trail", alarms, "audit/auditevent/?q=audit.alarm", bad=bool(alarms)),
        _line("Schemas of another version", others, "tenants/tenant/?schema=other", bad=bool(others)),
        _line("Periodic slots given up", given_up, "due/beatslot/?state=given-up", bad=bool(given_up)),
    ]


def _line(name: str, count: Any, url: str, *, bad: bool = False) -> Line:
    return Line(name, f"{CAP:,}+" if count > CAP else f"{count:,}", _state(bad), url)


def _state(bad: bool) -> str:
    return "bad" if bad else "ok"
