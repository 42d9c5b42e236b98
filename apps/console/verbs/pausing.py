"""Holding back what shall not start: everything, a pool (of all tenants or of one), or all runs of a tenant."""

from __future__ import annotations

from typing import NamedTuple

from apps.console.roles import PLATFORM, RESPOND
from apps.console.verbs.base import ALL, Ask, Line, Preview, Receipt, Step, Verb, version_of
from apps.console.verbs.registry import register
from apps.presenting.shown import moment
from apps.tickets.alive import COUNTED_MAX, alive_counts
from kernel.errors import NotFound
from kernel.pools import POOLS
from tenants import door
from tenants.models import DispatchPause, Tenant
from tenants.pauses import dispatch_pause, dispatch_resume, tenant_dispatch_set

GOES_ON = "What runs or was handed to a queue goes on. Schedules go on, too: their runs are made, wait, and are late."
AT_ONCE = "What waits starts again at once, as far as limits and workers allow."


class Held(NamedTuple):
    """What a target names: a pool ("" is all of them), of one tenant or of all."""

    pool: str = ""
    tenant: Tenant | None = None

    @property
    def words(self) -> str:
        whose = f"tenant {self.tenant.slug}" if self.tenant else "all tenants"
        return f"pool {self.pool} of {whose}" if self.pool else f"all pools of {whose}"

    @property
    def tenant_id(self) -> int | None:
        return self.tenant.pk if self.tenant else None


class Pausing(Verb):
    """What pauses and resumes have in common. `stops` says which of the two it is."""

    stops = True
    opposite = ""
    page = "/admin/"

    def held(self, ask: Ask) -> Held:
        """NotFound."""
        raise NotImplementedError

    def look(self, ask: Ask) -> Preview:
        held = self.held(ask)
        row = DispatchPause.objects.filter(pool=held.pool, tenant_id=held.tenant_id).first()
        now, then = ("paused" if one else "open" for one in (row is not None, self.stops))
        return Preview(
            self.label if held == Held() else f"{'Pause' if self.stops else 'Resume'} {held.words}",
            [Line("Dispatch", now, None if now == then else then), *_waiting(), *_since(row)],
            version_of(row.pk if row else None), [GOES_ON if self.stops else AT_ONCE],
            refused="" if now != then else f"It is {now} already.", link=self.page,
        )  # fmt: skip

    def do(self, ask: Ask) -> Receipt:
        held, service = self.held(ask), dispatch_pause if self.stops else dispatch_resume
        service(pool=held.pool, tenant_id=held.tenant_id, actor=ask.actor, now=ask.now, reason=ask.reason)
        whose = f" of {held.words}" if held != Held() else ""
        text = f"Nothing{whose} is started any more." if self.stops else f"Released again: {held.words}."
        return Receipt(text, self.page, Step(self.opposite, ask.target))


@register
class PauseAll(Pausing):
    """Stops the release of everything."""

    name, label, level, key, opposite = "dispatch.pause", "Pause all dispatch", PLATFORM, "p", "dispatch.resume"

    def held(self, ask: Ask) -> Held:
        if ask.target != ALL:
            raise NotFound("All of it, or nothing.")
        return Held()


@register
class ResumeAll(PauseAll):
    """The way back."""

    name, label, key, opposite, stops = "dispatch.resume", "Resume dispatch", "r", "dispatch.pause", False


@register
class PauseQueue(Pausing):
    """Stops the release to a pool: the target is its name, with @ and a slug where only that tenant's is meant."""

    name, label, level, opposite, page = "queue.pause", "Pause pool", PLATFORM, "queue.resume", "/admin/workers/"

    def button(self, target: str) -> str:
        """A pool's queues are many tenants': which pool it is, and whose, stands on the button."""
        pool, _, slug = target.partition("@")
        return f"{self.label} {pool} of {slug}" if slug else f"{self.label} {pool}"

    def concerns(self, ask: Ask) -> Tenant | None:
        return known_tenant(ask.target.partition("@")[2])

    def held(self, ask: Ask) -> Held:
        pool, _, slug = ask.target.partition("@")
        if pool not in POOLS:
            raise NotFound("There is no such pool.")
        return Held(pool, tenant_named(slug) if slug else None)


@register
class ResumeQueue(PauseQueue):
    """The way back."""

    name, label, opposite, stops = "queue.resume", "Resume pool", "queue.pause", False


@register
class PauseTenant(Verb):
    """Stops the release of all runs of a tenant; the target is its slug."""

    name, label, level, key, opposite = "tenant.pause", "Pause dispatch", RESPOND, "p", "tenant.resume"
    stops = True

    def concerns(self, ask: Ask) -> Tenant | None:
        return known_tenant(ask.target)

    def look(self, ask: Ask) -> Preview:
        tenant = tenant_named(ask.target)
        now, then = ("paused" if one else "open" for one in (tenant.dispatch_paused, self.stops))
        return Preview(
            f"{self.label} of {tenant.slug}",
            [Line("Tenant", f"{tenant.slug}, {tenant.name}"), Line("Dispatch", now, None if now == then else then)],
            version_of(tenant.dispatch_paused, tenant.status), [GOES_ON if self.stops else AT_ONCE],
            refused="" if now != then else f"It is {now} already.", link=f"/admin/tenants/tenant/{tenant.pk}/change/",
        )  # fmt: skip

    def do(self, ask: Ask) -> Receipt:
        tenant = tenant_named(ask.target)
        tenant_dispatch_set(tenant=tenant, paused=self.stops, actor=ask.actor, now=ask.now, reason=ask.reason)
        text = f"Nothing of {tenant.slug} is started any more." if self.stops else f"{tenant.slug} goes on."
        return Receipt(text, f"/admin/tenants/tenant/{tenant.pk}/change/", Step(self.opposite, ask.target))


@register
class ResumeTenant(PauseTenant):
    """The way back."""

    name, label, key, opposite, stops = "tenant.resume", "Resume dispatch", "r", "tenant.pause", False


def known_tenant(slug: str) -> Tenant | None:
    """The tenant of this slug."""
    found: Tenant | None = Tenant.objects.select_related("plan").filter(slug=slug).first() if slug else None
    return found


def tenant_named(slug: str) -> Tenant:
    """The tenant of this slug. NotFound."""
    found = known_tenant(slug)
    if found is None:
        raise NotFound("There is no such tenant.")
    return found


def _waiting() -> list[Line]:
    """What is alive: what would wait, and what goes on."""
    counts = alive_counts(door.raw())
    return [
        Line(f"Runs {state}", f"{min(count, COUNTED_MAX):,}{'+' if count > COUNTED_MAX else ''}, all pools and tenants")
        for state, count in counts.items()
        if state in ("ready", "queued", "running")
    ]


def _since(row: DispatchPause | None) -> list[Line]:
    if row is None:
        return []
    return [Line("Paused since", f"{moment(row.paused_at)} UTC"), Line("Because", row.reason or "-")]
