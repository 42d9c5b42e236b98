"""What is done to machines: dispatchers and workers stand back, leases change hands."""

from __future__ import annotations

import re
from typing import Any

from django.db.models.functions import Now

from apps.console.roles import PLATFORM
from apps.console.verbs.base import ALL, Ask, Line, Preview, Receipt, Step, Verb, version_of
from apps.console.verbs.live import id_of
from apps.console.verbs.registry import register
from apps.due import leases
from apps.due.commanding import dispatcher_drain, lease_release, leases_rebalance, spread_read
from apps.due.models import Dispatcher, ShardLease
from apps.tickets.commanding import worker_drain
from apps.tickets.models import Ticket, Worker
from kernel.errors import Conflict, NotFound
from tenants import door

SHARDS, WORKERS = "/admin/shards/", "/admin/workers/"
SHARD = re.compile(r"[0-9]{1,9}")


class Draining(Verb):
    """What draining and its way back have in common; `wanted` says which of the two it is."""

    level = PLATFORM
    wanted = True
    opposite = ""
    page = ""
    what = ""

    def row(self, ask: Ask) -> Any:
        """NotFound."""
        raise NotImplementedError

    def effect(self, row: Any) -> list[Line]:
        """What it holds now."""
        raise NotImplementedError

    def warning(self) -> str:
        """What happens then."""
        raise NotImplementedError

    def service(self, ask: Ask) -> None:
        raise NotImplementedError

    def look(self, ask: Ask) -> Preview:
        row = self.row(ask)
        alive = row.expires_at > ask.now
        now, then = ("stands back" if one else "takes its share" for one in (row.drain_wanted, self.wanted))
        refused = "" if alive and now != then else f"It {now} already." if alive else "It is gone."
        return Preview(
            f"{self.label} {self.what} {row.host}:{row.pid}",
            [
                Line(self.what.capitalize(), str(row.pk)),
                Line("Host", f"{row.host}, process {row.pid}, version {row.version}"),
                Line("It", now, None if now == then else then), *self.effect(row),
            ],
            version_of(row.drain_wanted, alive), [self.warning()], refused, self.page,
        )  # fmt: skip

    def do(self, ask: Ask) -> Receipt:
        self.service(ask)
        text = "It was told to stand back." if self.wanted else "It was told to take its share again."
        return Receipt(text, self.page, Step(self.opposite, ask.target))


@register
class DrainDispatcher(Draining):
    """Its leases go to the others."""

    name, label, key, opposite, page, what = (
        "dispatcher.drain", "Drain", "d", "dispatcher.undrain", SHARDS, "dispatcher"
    )  # fmt: skip

    def row(self, ask: Ask) -> Dispatcher:
        found = Dispatcher.objects.filter(pk=id_of(ask)).first()
        if found is None:
            raise NotFound("There is no such dispatcher (any more).")
        return found

    def effect(self, row: Any) -> list[Line]:
        held = ShardLease.objects.filter(owner=row.pk, expires_at__gt=Now()).count()
        others = [one for one in leases.live_dispatchers(door.raw()) if one != row.pk]
        return [Line("Leases that it holds", f"{held:,}"), Line("Other dispatchers that could", f"{len(others):,}")]

    def warning(self) -> str:
        if not self.wanted:
            return "It takes back its share of the shards within seconds."
        return "The others take its shards within seconds. While there is no other one, it goes on serving."

    def service(self, ask: Ask) -> None:
        dispatcher_drain(
            dispatcher_id=id_of(ask), wanted=self.wanted, actor=ask.actor, now=ask.now, reason=ask.reason
        )  # fmt: skip


@register
class UndrainDispatcher(DrainDispatcher):
    """The way back."""

    name, label, key, opposite, wanted = "dispatcher.undrain", "Undrain", "u", "dispatcher.drain", False


@register
class DrainWorker(Draining):
    """It finishes what it runs and takes nothing more."""

    name, label, key, opposite, page, what = "worker.drain", "Drain", "d", "worker.undrain", WORKERS, "worker"

    def row(self, ask: Ask) -> Worker:
        found = Worker.objects.filter(pk=id_of(ask)).first()
        if found is None:
            raise NotFound("There is no such worker (any more).")
        return found

    def effect(self, row: Any) -> list[Line]:
        running = Ticket.objects.filter(worker_id=row.pk, state="running").count()
        slots = ", ".join(f"{pool} {count:,}" for pool, count in sorted(row.slots.items())) or "-"
        return [Line("Runs that it has", f"{running:,}"), Line("Slots", slots)]

    def warning(self) -> str:
        if not self.wanted:
            return "It listens to its queues again within seconds."
        return "It ends what it runs and takes nothing more. Stop its process when it runs nothing."

    def service(self, ask: Ask) -> None:
        worker_drain(worker_id=id_of(ask), wanted=self.wanted, actor=ask.actor, now=ask.now, reason=ask.reason)


@register
class UndrainWorker(DrainWorker):
    """The way back."""

    name, label, key, opposite, wanted = "worker.undrain", "Undrain", "u", "worker.drain", False


@register
class ReleaseLease(Verb):
    """Takes a lease from its holder; the target is `fire/7`."""

    name, label, level, key, hard = "lease.release", "Release lease", PLATFORM, "l", True

    def look(self, ask: Ask) -> Preview:
        lease = _lease(ask)
        held = lease.owner is not None and lease.expires_at > ask.now
        next_one = leases.preferred((lease.kind, lease.shard), leases.live_dispatchers(door.raw()))
        return Preview(
            f"Release lease {lease}",
            [
                Line("Lease", str(lease)), Line("Term", f"{lease.term:,}", f"{lease.term + 1:,}" if held else None),
                Line("Holder", str(lease.owner or "-"), str(next_one or "nobody: no dispatcher is alive")),
            ],
            version_of(lease.term, lease.owner),
            ["Nothing fires twice: what the holder still writes names the rows as it read them, and is refused."],
            "" if held else "Nobody holds it.", SHARDS,
        )  # fmt: skip

    def do(self, ask: Ask) -> Receipt:
        lease = _lease(ask)
        if version_of(lease.term, lease.owner) != ask.version:
            raise Conflict("It has another holder by now.")
        lease_release(
            kind=lease.kind, shard=lease.shard, term=lease.term, actor=ask.actor, now=ask.now, reason=ask.reason
        )
        return Receipt(f"{lease} is free: whoever should have it takes it within a second.", SHARDS)


@register
class Rebalance(Verb):
    """Moves leases to the dispatchers that should have them."""

    name, label, level, key, hard = "lease.rebalance", "Rebalance", PLATFORM, "e", True

    def look(self, ask: Ask) -> Preview:
        if ask.target != ALL:
            raise NotFound("All of them, or nothing.")
        spread = spread_read(door.raw())
        hosts = dict(Dispatcher.objects.values_list("pk", "host"))
        each = sorted(spread.held.keys() | spread.share.keys(), key=str)
        lines = [
            Line(f"{hosts.get(one, 'gone')} {str(one)[:8]}", f"{spread.held[one]:,}", f"{spread.share[one]:,}")
            for one in each
        ]
        refused = "" if spread.misplaced else "Every lease is where it should be."
        told = [Line("Leases in other hands than they should be", f"{len(spread.misplaced):,}"), *lines]
        version = version_of(sorted(spread.misplaced.items()))
        return Preview("Rebalance the leases", told, version, refused=refused, link=SHARDS)

    def do(self, ask: Ask) -> Receipt:
        count = leases_rebalance(actor=ask.actor, now=ask.now, reason=ask.reason)
        return Receipt(f"{count:,} leases were released for those who should have them.", SHARDS)


def _lease(ask: Ask) -> ShardLease:
    kind, _, shard = ask.target.partition("/")
    found = ShardLease.objects.filter(kind=kind, shard=int(shard)).first() if SHARD.fullmatch(shard) else None
    if found is None:
        raise NotFound("There is no such lease.")
    return found
