"""What the forecast costs: a look at all due entries, and the row that each change of one writes beside it."""

import random
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any

from tests.bench import stage

TENANTS = 100
BATCH = 500
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo")
SEED = 9


def run(*, count: int, say: Callable[[str], None]) -> None:
    """Fills an index with schedules of usual kinds, then measures; prints each figure as soon as it is known."""
    from apps.dispatch.forecast.pacing import share_of
    from apps.dispatch.forecast.service import LOOK_EVERY
    from apps.due import forecast
    from tenants import door
    from tenants.registry import Registry
    from tenants.work import database_now
    from tests.flow.test_forecast import new_service

    made = stage.prepare(tenants=TENANTS, own_queues=0)
    conn = door.connect("bench forecast", owner=True, guarded=False)
    conn.execute("TRUNCATE due_dueentry, due_forecast, due_forecastshard, due_forecastchange")
    entries = _entries(count, made, database_now(conn))
    _fill(conn, entries)
    registry = Registry(door.Line("bench forecast"))
    registry.refresh(force=True)
    service = new_service(registry)
    for name, later in (("for the first time", 0 * LOOK_EVERY), ("again, half an hour later", LOOK_EVERY)):
        began, used, steps, longest, going_on = perf_counter(), process_time(), 0, 0.0, True
        while going_on:
            before = perf_counter()
            going_on = any(service.step(conn, database_now(conn) + later).values())
            longest, steps = max(longest, perf_counter() - before), steps + 1
        took, cpu = perf_counter() - began, process_time() - used
        share = share_of(took / 64, shards=64)
        say(
            f"forecast of {count:,} due entries, {name}: {took:.1f} s of work, {cpu:.1f} s CPU of the dispatcher, in"
            f" {steps} steps, the longest {longest * 1000:.0f} ms; all shards in {took / share / 3_600:.1f} h, at"
            f" {100 * share:.1f} % of the time"
        )
    total = forecast.read(conn)
    assert total is not None and total.entries == count and total.shards == 64, total
    before = perf_counter()
    for _ in range(50):
        forecast.read(conn)
    say(f"reading the total: {(perf_counter() - before) * 20:.1f} ms")
    _deltas(conn, service, made, say)
    conn.close()


def _deltas(conn: Any, service: Any, made: stage.Tenants, say: Callable[[str], None]) -> None:
    """New entries in batches and one by one, and what it costs to add them to the forecast."""
    from apps.due import entries
    from kernel.rows import json_rows
    from tenants.work import database_now

    now = database_now(conn)
    new = _entries(20 * BATCH, made, now)
    told = "INSERT INTO due_forecastchange (key, shard) SELECT key, shard FROM new"
    plain = entries.ADD.replace(told, "SELECT 1")
    assert plain != entries.ADD
    took = {}
    for name, query, part in (("without", plain, new[: 10 * BATCH]), ("with", entries.ADD, new[10 * BATCH :])):
        before = perf_counter()
        for first in range(0, len(part), BATCH):
            conn.execute(query, [json_rows(part[first : first + BATCH])])
        took[name] = (perf_counter() - before) / len(part) * 1e6
    before = perf_counter()
    for entry in new[: 2 * BATCH]:
        entries.put(conn, entry, now=now)
    one = (perf_counter() - before) / (2 * BATCH) * 1e6
    changes = conn.execute("SELECT count(DISTINCT key) FROM due_forecastchange").fetchone()[0]
    before = perf_counter()
    while service.step(conn, database_now(conn))["changes"]:
        pass
    added = (perf_counter() - before) / changes * 1e6
    say(
        f"a new due entry: {took['with']:.0f} us with its row for the forecast, {took['without']:.0f} us without (in"
        f" batches of {BATCH}); a change alone {one:.0f} us; adding one to the forecast {added:.0f} us"
    )


def _entries(count: int, made: stage.Tenants, now: Any) -> list[Any]:
    """Schedules of usual kinds: daily and hourly ones, some frequent, some with jitter, in several zones."""
    from apps.due.entries import Entry, shard_for
    from apps.schedules.policy import first_due
    from apps.schedules.timing import spec_from_api, spec_to_json
    from kernel.ids import uuid7s

    chance, ids, found = random.Random(SEED), list(made), []
    specs: dict[str, tuple[Any, str]] = {}
    for key in uuid7s(count):
        kind, minute, hour = chance.random(), chance.randrange(60), chance.randrange(24)
        data: dict[str, Any] = {"timezone": chance.choice(ZONES)}
        if kind < 0.5:
            data["trigger"] = {"cron": f"{minute if kind < 0.3 else 0} {hour} * * *"}
        elif kind < 0.8:
            data["trigger"] = {"cron": f"{minute} * * * *"}
        elif kind < 0.95:
            every_s = chance.choice((300, 600, 900, 3_600))
            data["trigger"] = {"every_s": every_s, "anchor": f"2026-01-01T00:{minute:02}:00Z"}
        else:
            data["trigger"] = {"cron": f"*/{chance.choice((1, 5, 10, 15))} * * * *"}
        if chance.random() < 0.05:
            data["jitter_s"] = chance.choice((60, 300, 900))
        text = str(data)
        if text not in specs:
            spec = spec_from_api(data, now=now)
            specs[text] = spec, spec_to_json(spec)
        spec, written = specs[text]
        first = first_due(spec, key=str(key), after=now)
        assert first is not None
        tenant_id = chance.choice(ids)
        found.append(Entry(
            key, shard_for(key), "schedule", tenant_id, first[1], first[0], 1, written, made[tenant_id][1], 1, "python",
            "python.shared.0", 5, 60, None, False, None, None, None,
        ))  # fmt: skip
    return found


def _fill(conn: Any, found: list[Any]) -> None:
    from apps.due.entries import COLUMNS

    with conn.cursor() as cursor, cursor.copy(f"COPY due_dueentry ({COLUMNS}, parked) FROM STDIN") as copy:
        for entry in found:
            copy.write_row((*entry, ""))
    conn.execute("VACUUM ANALYZE due_dueentry")
