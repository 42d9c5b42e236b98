"""How many slots pools should have, for people and for scripts that start workers."""

from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from apps.dispatch.pressure import pool_figures
from apps.dispatch.pressure.gauging import PoolFigures
from kernel.pools import CELERY_POOLS
from tenants import door
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base

HEAD = ("pool", "group", "workers", "slots", "wanted", "ready", "running", "oldest wait")


class Command(Base):
    help = "How many slots each pool should have. With --pool only that number. Exit 1 when nobody measures."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--pool", choices=CELERY_POOLS, help="Only this one: prints its number of slots.")
        parser.add_argument("--group", metavar="NAME", help="Workers of this group; empty: the shared ones.")

    def handle(self, *args: Any, **options: Any) -> None:
        with door.connect("pool_wanted") as conn:
            seen = pool_figures.read(conn)
        pool, group = options["pool"], options["group"]
        if pool is not None:
            chosen = [seen.pool(pool, group or "")]
        else:
            chosen = [one for one in seen.pools() if group is None or one.group == group]
        measured = seen.measured
        answer = {
            "as_of": None if measured is None else measured.measured_at.isoformat(), "stale": seen.stale,
            "pools": [asdict(one) for one in chosen],
        }  # fmt: skip
        text = str(chosen[0].wanted_slots) if pool is not None else _table(chosen)
        if seen.stale:
            since = "ever" if measured is None else f"since {measured.measured_at:%Y-%m-%dT%H:%M:%SZ}"
            self.stderr.write(f"No dispatcher has measured {since}: nobody knows.")
            text = ""
        if text or options["format"] == "json":
            self.show(answer, text, as_json=options["format"] == "json")
        if seen.stale:
            raise SystemExit(EXIT_FOUND)


def _table(pools: list[PoolFigures]) -> str:
    rows = [
        (
            one.pool, one.group or "-", str(one.workers), str(one.slots), str(one.wanted_slots),
            str(sum(one.ready.values())), str(one.running), f"{max(one.oldest_wait_s.values()):.1f} s",
        )
        for one in pools
    ]  # fmt: skip
    widths = [max(len(row[at]) for row in (HEAD, *rows)) for at in range(len(HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (HEAD, *rows)
    )
