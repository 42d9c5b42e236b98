"""The forecast in the shared schema: what is known of each shard, what has changed since, and the total.

Whoever makes, changes or removes a due entry says so in the same statement (`entries`): one narrow row with the entry
as it was. Fire says nothing, since the runs that it makes were expected. All functions take a psycopg connection and
work in its current transaction; `apps.dispatch.forecast` says in which.
"""

from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import orjson
import psycopg

Conn = psycopg.Connection[Any]
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
DAY_MINUTES, WEEK_HOURS = 24 * 60, 7 * 24


class Planned(NamedTuple):
    """What of a due entry says when it runs."""

    key: UUID
    shard: int
    tenant_id: int
    kind: str
    spec: str
    nominal_at: datetime
    due_at: datetime
    runs_done: int | None


class Alike(NamedTuple):
    """Due entries that run at the same instants, as one of them says it, and how many they are.

    With a `key` it is one alone, whose jitter is its own. Delayed executions are alike when they run in one minute.
    """

    key: UUID | None
    kind: str
    spec: str
    nominal_at: datetime
    due_at: datetime
    runs_done: int | None
    many: int


class Change(NamedTuple):
    """A due entry has changed: what it was before, None when there was none."""

    id: int
    shard: int
    was: Planned | None


class Shard(NamedTuple):
    """What is expected of a shard: `runs` by minute, then by hour, from `starts_at` on; empty when there are none.

    `made_at` is when its due entries were read; what has changed since, and was told, is in it.
    """

    shard: int
    starts_at: datetime
    made_at: datetime
    entries: int
    runs: "array[int]"  # of eight bytes


class Total(NamedTuple):
    """What is expected of all shards that are known, by minute and by hour from `starts_at` on.

    `peaks` are the fullest minutes when somebody last looked who is in them: {"at", "runs", "of" (how many tenants),
    "tenants": [[id, runs, [some keys]], ...], "looked_at", "entries"}; where fewer entries were looked at than there
    are, the runs are about so many, and tenants with few of them may be missing. `clock_changes` are {"zone", "at",
    "by_s"}, of the schedules' zones. `oldest_at` is when the entries of the shard that waits longest were read; what
    has changed since is in it.
    """

    starts_at: datetime
    made_at: datetime
    oldest_at: datetime
    shards: int
    entries: int
    minutes: list[int]
    hours: list[int]
    peaks: list[dict[str, Any]]
    clock_changes: list[dict[str, Any]]

    def of_minutes(self, now: datetime, count: int = DAY_MINUTES) -> list[tuple[datetime, int]]:
        """The minute of `now` and those after it, at most `count` of them, each with its expected runs.

        Of the first one a part may have run. Fewer come back than were asked for when the forecast is old.
        """
        return list(self._from(self.minutes, MINUTE, now, count))

    def of_hours(self, now: datetime, count: int = WEEK_HOURS) -> list[tuple[datetime, int]]:
        """The same by hours."""
        return list(self._from(self.hours, HOUR, now, count))

    def _from(
        self, runs: Sequence[int], step: timedelta, now: datetime, count: int
    ) -> Iterator[tuple[datetime, int]]:  # fmt: skip
        first = max(0, (now - self.starts_at) // step)
        for index in range(first, min(first + count, len(runs))):
            yield self.starts_at + index * step, runs[index]


PLANNED = ", ".join(Planned._fields)

_TOTAL = "starts_at, made_at, oldest_at, shards, entries, minutes, hours"

# JSON as text: Django's connections, which services use, do not read it.
_READ = f"SELECT {_TOTAL}, peaks::text, clock_changes::text FROM due_forecast"

_WRITE = f"""
INSERT INTO due_forecast (id, {_TOTAL}, peaks, clock_changes)
VALUES (1, %(starts_at)s, %(made_at)s, %(oldest_at)s, %(shards)s, %(entries)s, %(minutes)s::bigint[],
        %(hours)s::bigint[], %(peaks)s::jsonb, %(clock_changes)s::jsonb)
ON CONFLICT (id) DO UPDATE SET starts_at = excluded.starts_at, made_at = excluded.made_at,
       oldest_at = excluded.oldest_at, shards = excluded.shards, entries = excluded.entries,
       minutes = excluded.minutes, hours = excluded.hours, peaks = excluded.peaks,
       clock_changes = excluded.clock_changes
"""

_WRITE_SHARD = """
INSERT INTO due_forecastshard (shard, starts_at, made_at, entries, runs)
VALUES (%(shard)s, %(starts_at)s, %(made_at)s, %(entries)s, %(runs)s::bigint[])
ON CONFLICT (shard) DO UPDATE SET starts_at = excluded.starts_at, made_at = excluded.made_at,
       entries = excluded.entries, runs = excluded.runs
"""

# Only jitter makes those apart that are written alike. Grouped here, they need not be sent one by one.
_ALIKE = """
SELECT own, kind, spec, min(nominal_at), min(due_at), runs_done, count(*)
FROM (SELECT CASE WHEN kind = 'schedule' AND position('"jitter_s":0,' IN spec) = 0 THEN key END AS own,
             CASE WHEN kind = 'schedule' THEN nominal_at ELSE date_trunc('minute', due_at) END AS at,
             kind, spec, nominal_at, due_at, runs_done
      FROM due_dueentry WHERE shard = %s AND parked = '' AND due_at < %s AND tenant_id = ANY(%s::int[])) one
GROUP BY own, at, kind, spec, runs_done
"""

# All changes of a key together: the first of them says what was expected before, its due entry what is now.
_TAKE = f"""
DELETE FROM due_forecastchange c USING (
    SELECT DISTINCT key FROM (SELECT key FROM due_forecastchange ORDER BY id LIMIT %s) first
) k WHERE c.key = k.key
RETURNING c.id, c.kind IS NOT NULL, {", ".join(f"c.{name}" for name in Planned._fields)}
"""


def read(conn: Conn) -> Total | None:
    """The forecast; None when there never was one."""
    row = conn.execute(_READ).fetchone()
    return None if row is None else Total._make((*row[:7], *map(_timed, row[7:])))


def write(conn: Conn, total: Total) -> None:
    """Puts a forecast in the place of the one before."""
    texts = {name: orjson.dumps(getattr(total, name)).decode() for name in ("peaks", "clock_changes")}
    conn.execute(_WRITE, total._asdict() | texts)


def still(conn: Conn, total: Total) -> bool:
    """Nothing else is expected now than this total says; False when that is not what is there."""
    asked = [total.made_at, total.starts_at]
    return conn.execute("UPDATE due_forecast SET made_at = %s WHERE starts_at = %s", asked).rowcount > 0


def read_shards(conn: Conn) -> list[Shard]:
    """What is known of each shard."""
    rows = conn.execute("SELECT shard, starts_at, made_at, entries, runs FROM due_forecastshard ORDER BY shard")
    return [Shard(row[0], row[1], row[2], row[3], array("q", row[4])) for row in rows]


def write_shard(conn: Conn, shard: Shard) -> None:
    """Puts what is expected of a shard in the place of what was."""
    conn.execute(_WRITE_SHARD, shard._asdict() | {"runs": list(shard.runs)})


def alike(conn: Conn, shard: int, *, until: datetime, tenants: Sequence[int]) -> "Rows":
    """The due entries of a shard that are due before `until`, of these tenants. Computed when the transaction ends."""
    return Rows(conn, _ALIKE, [shard, until, list(tenants)])


def some(conn: Conn, *, until: datetime, percent: float) -> "Rows":
    """About so many of a hundred of all due entries that are due before `until`: those of some of the table's pages."""
    sample = "" if percent >= 100 else "TABLESAMPLE SYSTEM (%s)"
    parameters = [until] if percent >= 100 else [percent, until]
    return Rows(conn, f"SELECT {PLANNED} FROM due_dueentry {sample} WHERE parked = '' AND due_at < %s", parameters)


class Rows:
    """The rows of a query, read in one transaction and fetched a little at a time after it. One at once."""

    def __init__(self, conn: Conn, query: str, parameters: Sequence[Any]) -> None:
        self.conn = conn
        self._cursor = conn.cursor(name="forecast", withhold=True)
        self._cursor.execute(query, parameters)
        self._more = True

    def fetch(self, size: int) -> list[tuple[Any, ...]]:
        """The next ones; none at the end."""
        found = self._cursor.fetchmany(size) if self._more else []
        self._more = len(found) == size
        return found

    def close(self) -> None:
        """The server forgets them; it may have ended."""
        with suppress(psycopg.Error):
            self._cursor.close()


def planned_of(conn: Conn, keys: Sequence[UUID]) -> list[Planned]:
    """The due entries of these keys that are served."""
    rows = conn.execute(f"SELECT {PLANNED} FROM due_dueentry WHERE key = ANY(%s) AND parked = ''", [list(keys)])
    return [Planned._make(row) for row in rows]


def news(conn: Conn) -> tuple[datetime, bool]:
    """The database's time, and whether a due entry has changed since it was read."""
    row = conn.execute("SELECT clock_timestamp(), EXISTS (SELECT 1 FROM due_forecastchange)").fetchone()
    assert row is not None
    return row[0], row[1]


def changes_of(conn: Conn, shard: int) -> list[int]:
    """The numbers of a shard's changes: due entries that are read in the same snapshot have them already."""
    return [row[0] for row in conn.execute("SELECT id FROM due_forecastchange WHERE shard = %s", [shard])]


def drop_changes(conn: Conn, numbers: Sequence[int]) -> None:
    """Removes these changes."""
    conn.execute("DELETE FROM due_forecastchange WHERE id = ANY(%s)", [list(numbers)])


def take_changes(conn: Conn, *, limit: int) -> dict[UUID, list[Change]]:
    """Removes the oldest changes, about `limit`, with all others of their keys; by key, the first one first."""
    found: dict[UUID, list[Change]] = {}
    for number, was_there, *row in sorted(conn.execute(_TAKE, [limit]).fetchall(), key=lambda row: row[0]):
        change = Change(number, row[1], Planned._make(row) if was_there else None)
        found.setdefault(row[0], []).append(change)
    return found


def _timed(text: str) -> list[dict[str, Any]]:
    return [one | {"at": datetime.fromisoformat(one["at"])} for one in orjson.loads(text)]
