"""What a dispatcher costs while nothing is due: CPU time of the process, of its loops and of its connections; memory.

The index holds schedules of usual kinds that are due in one hour to a day, with the rows in their tenants' schemas, so
that nothing is fired and nothing is repaired. Shards of the forecast are two hours old, as they are once it runs.
What was filled before is used again while nothing of it is near.
"""

import os
import random
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from tests.bench import stage

SETTLE_S, MEASURED_S, LOOK_S = 60, 900, 5  # the forecast works in turns of minutes
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo")
APART = 0.10  # of the schedules have an interval that hardly any other has
JITTER = 0.05
SEED = 11
HOUR = timedelta(hours=1)


class Used(NamedTuple):
    """Shares of one core, and the most memory that the dispatcher had; `loops` by their threads' time."""

    process: float
    database: float
    memory_mb: float
    loops: dict[str, float]


def run(
    made: stage.Tenants, *, index: int, say: Callable[[str], None], settle_s: float = SETTLE_S,
    measured_s: float = MEASURED_S,
) -> Used:  # fmt: skip
    """Fills the index and measures one dispatcher that has nothing to do; says both."""
    from tenants import door

    conn = door.connect("bench", owner=True, guarded=False)
    conn.execute("SET synchronous_commit = off")
    began = time.monotonic()
    if not _is_filled(conn, index):
        stage.clear()
        _fill(conn, made, index)
        say(f"{index:,} schedules of {len(made):,} tenants filled in {time.monotonic() - began:,.0f} s")
    _age_forecast(conn)
    dispatcher = stage.dispatcher()
    try:
        held = "SELECT count(*) FROM due_shardlease WHERE expires_at > clock_timestamp()"
        stage.until(lambda: stage.one(conn, held) > 64, timeout_s=60, step_s=0.5)
        time.sleep(settle_s)
        used = _used(conn, dispatcher, measured_s)
    finally:
        dispatcher.stop()
        conn.close()
    loops = ", ".join(f"{name} {100 * share:.2f}" for name, share in used.loops.items() if share >= 0.0001)
    say(
        f"idle with {index:,} schedules of {len(made):,} tenants, none due: the dispatcher {100 * used.process:.2f} %"
        f" of a core and {used.memory_mb:.0f} MB, its connections {100 * used.database:.2f} %; its loops: {loops}"
    )
    return used


def _used(conn: Any, dispatcher: stage.Process, seconds: float) -> Used:
    backends = _Backends(conn)
    loops, cpu_s, began = _loops(conn), dispatcher.cpu_s(), time.monotonic()
    while time.monotonic() < began + seconds:
        time.sleep(min(LOOK_S, seconds))
        backends.look()
    took = time.monotonic() - began
    cpu_s = dispatcher.cpu_s() - cpu_s
    after = {name: (used - loops.get(name, 0)) / 1_000 / took for name, used in _loops(conn).items()}
    status = Path(f"/proc/{dispatcher.child.pid}/status").read_text()
    memory_kb = int(status.split("VmHWM:")[1].split()[0])
    return Used(
        cpu_s / took, backends.used_s() / took, memory_kb / 1_024,
        dict(sorted(after.items(), key=lambda one: -one[1])),
    )  # fmt: skip


class _Backends:
    """CPU seconds of the server's processes behind the dispatcher's connections; some of them end and come anew."""

    def __init__(self, conn: Any) -> None:
        self._conn = conn
        row = conn.execute("SELECT left(id::text, 8) FROM due_dispatcher ORDER BY started_at DESC LIMIT 1").fetchone()
        self._name = f"shardbeat {row[0]} %"
        self._before: dict[int, float] = {}
        self._last: dict[int, float] = {}
        self.look()
        self._before = dict(self._last)

    def look(self) -> None:
        query = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE %s"
        for (pid,) in self._conn.execute(query, [self._name]).fetchall():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            self._last[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def used_s(self) -> float:
        return sum(used - self._before.get(pid, 0.0) for pid, used in self._last.items())


def _loops(conn: Any) -> dict[str, int]:
    """CPU milliseconds by loop, as the last heartbeat told them."""
    row = conn.execute("SELECT stats::text FROM due_dispatcher ORDER BY started_at DESC LIMIT 1").fetchone()
    return {name: told.get("cpu_ms", 0) for name, told in orjson.loads(row[0]).items()}


def _is_filled(conn: Any, index: int) -> bool:
    near = stage.one(conn, "SELECT count(*) FROM due_dueentry WHERE due_at < clock_timestamp() + interval '15 min'")
    return not near and stage.one(conn, "SELECT count(*) FROM due_dueentry") == index


def _age_forecast(conn: Any) -> None:
    """As if each shard had been looked at two hours ago."""
    from apps.schedules.forecasting import BINS

    conn.execute("TRUNCATE due_forecast, due_forecastshard, due_forecastchange")
    conn.execute(
        "INSERT INTO due_forecastshard (shard, starts_at, made_at, entries, runs)"
        " SELECT n, date_trunc('hour', clock_timestamp() - interval '2 h'), clock_timestamp() - interval '2 h',"
        " (SELECT count(*) FROM due_dueentry) / 64, array_fill(1::bigint, ARRAY[%s]) FROM generate_series(0, 63) n",
        [BINS],
    )


def _fill(conn: Any, made: stage.Tenants, index: int) -> None:
    """Tenant by tenant; by their keys, the tenants' schedules alternate."""
    from kernel.ids import shard_of, uuid7s
    from tenants.models import Tenant
    from tenants.work import database_now

    now = database_now(conn).replace(microsecond=0)
    keys, schemas = uuid7s(index), dict(Tenant.objects.values_list("pk", "schema_name"))
    kinds = _Kinds(now)
    conn.execute(
        "CREATE TEMP TABLE fill (key uuid, shard smallint, spec text, nominal_at timestamptz, due_at timestamptz)"
    )
    for number, (tenant_id, (_, job_id)) in enumerate(made.items()):
        with conn.cursor() as cursor, cursor.copy("COPY fill FROM STDIN") as copy:
            for key, row in zip(keys[number :: len(made)], kinds, strict=False):
                spec, nominal, due = row(key)
                copy.write_row((key, shard_of(key, 64), spec, nominal, due))
        schema = schemas[tenant_id]
        values = {"tenant": tenant_id, "job": job_id, "now": now}
        conn.execute(
            "INSERT INTO due_dueentry (shard, key, kind, tenant_id, due_at, nominal_at, version, spec, job_id,"
            " job_version, pool, queue, priority, timeout_s, own_payload, followed, parked)"
            " SELECT shard, key, 'schedule', %(tenant)s, due_at, nominal_at, 1, spec, %(job)s, 1, 'python',"
            " 'python.shared.0', 5, 60, false, false, '' FROM fill",
            values,
        )
        conn.execute(
            f'INSERT INTO "{schema}".schedules_schedule (id, name, job_id, version, revision, status, failures_from,'
            " paused_reason, labels, created_at, updated_at)"
            " SELECT key, key::text, %(job)s, 1, 1, 'active', 1, '', '{}', %(now)s, %(now)s FROM fill",
            values,
        )
        conn.execute(
            f'INSERT INTO "{schema}".schedules_scheduleversion (schedule_id, version, definition, spec, own_payload,'
            " created_at, from_at) SELECT key, 1, '{}', spec, false, %(now)s, %(now)s FROM fill",
            values,
        )
        conn.execute("TRUNCATE fill")
    conn.execute("VACUUM ANALYZE due_dueentry")


class _Kinds:
    """Schedules of usual kinds, forever: each a function that gives a key its spec, nominal and actual instant."""

    def __init__(self, now: datetime) -> None:
        self._now, self._chance = now, random.Random(SEED)
        self._known: dict[str, tuple[Any, str, datetime]] = {}
        self._every, self._every_text, _ = self._spec({"trigger": {"every_s": 7_777, "anchor": "2026-01-01T00:00:00Z"}})
        assert self._every_text.count("7777") == 1

    def __iter__(self) -> Iterator[Callable[[UUID], tuple[str, datetime, datetime]]]:
        while True:
            yield self._one

    def _one(self, key: UUID) -> tuple[str, datetime, datetime]:
        from apps.schedules.timing import actual_at

        kind = self._chance.random()
        if kind < APART:
            return self._apart()
        spec, text, nominal = self._spec(self._usual(kind))
        return text, nominal, actual_at(spec, str(key), nominal) if spec.jitter_s else nominal

    def _usual(self, kind: float) -> dict[str, Any]:
        chance = self._chance
        minute, hour = chance.randrange(60), chance.randrange(24)
        data: dict[str, Any] = {"timezone": chance.choice(ZONES)}
        if kind < 0.6:
            data["trigger"] = {"cron": f"{minute if kind < 0.4 else 0} {hour} * * *"}
        elif kind < 0.85:
            data["trigger"] = {"cron": f"{minute} * * * *"}
        else:
            data["trigger"] = {"cron": f"*/{chance.choice((5, 10, 15))} * * * *"}
        if chance.random() < JITTER / (1 - APART):
            data["jitter_s"] = chance.choice((60, 300, 900))
        return data

    def _apart(self) -> tuple[str, datetime, datetime]:
        """Written as the one interval that was made, with other numbers."""
        every_s = self._chance.randrange(3_600, 86_400)
        text = self._every_text.replace("7777", str(every_s))
        since = self._begins - self._every.trigger.anchor
        steps = -(-int(since.total_seconds()) // every_s)
        nominal = self._every.trigger.anchor + timedelta(seconds=steps * every_s)
        return text, nominal, nominal

    @property
    def _begins(self) -> datetime:
        return self._now + HOUR

    def _spec(self, data: dict[str, Any]) -> tuple[Any, str, datetime]:
        from apps.schedules.policy import first_due
        from apps.schedules.timing import spec_from_api, spec_to_json

        known = self._known.get(str(data))
        if known is None:
            spec = spec_from_api({"start_at": f"{self._begins:%Y-%m-%dT%H:%M:%SZ}", **data}, now=self._now)
            first = first_due(spec, key="", after=self._now)
            assert first is not None
            known = self._known[str(data)] = spec, spec_to_json(spec), first[0]
        return known
