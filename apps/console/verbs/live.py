"""What is done to what is alive: tickets, due entries, breakers. Models for verbs of other parts."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from apps.console.effects import entries_unpark
from apps.console.machines.slugs import slugs_of
from apps.console.reading import as_uuid
from apps.console.roles import RESPOND
from apps.console.verbs.base import Ask, Line, Preview, Receipt, Step, Verb, version_of
from apps.console.verbs.registry import register
from apps.due.models import DueEntry
from apps.outcomes.cancel import execution_cancel
from apps.presenting.shown import moment
from apps.tickets.commanding import ticket_release
from apps.tickets.models import Breaker, Ticket
from apps.tickets.resetting import breaker_reset
from kernel.errors import Conflict, NotFound
from tenants.models import Tenant


def id_of(ask: Ask) -> UUID:
    """The target as an id; NotFound when it is none."""
    found = as_uuid(ask.target)
    if found is None:
        raise NotFound("There is no such thing.")
    return found


def ticket_of(ask: Ask) -> Ticket:
    """The ticket of an execution of the tenant; NotFound when it is not alive."""
    found = Ticket.objects.filter(pk=id_of(ask), tenant_id=ask.inside.pk).first()
    if found is None:
        raise NotFound("It is not alive (any more).")
    return found


def page_of(ask: Ask, key: object) -> str:
    """The page of an execution of the tenant."""
    return f"/t/{ask.inside.slug}/admin/executions/{key}/"


def slug_of(tenant_id: int) -> str:
    """A tenant as people call it, also when it is gone."""
    return slugs_of([tenant_id]).get(tenant_id, f"#{tenant_id}")


@register
class CancelTicket(Verb):
    """Ends what waits, and asks what runs to stop."""

    name, label, level, scope, key, hard = "ticket.cancel", "Cancel", RESPOND, "tenant", "c", True

    def look(self, ask: Ask) -> Preview:
        ticket = ticket_of(ask)
        runs = ticket.state == "running"
        lines = [
            Line("Execution", str(ticket.pk)),
            Line("State", ticket.state, "asked to stop" if runs else "cancelled"),
            Line("Attempt", str(ticket.attempt)),
            Line("Worker", str(ticket.worker_id or "-")),
        ]
        warnings = ["Its worker is asked to stop it: what it has done already is not undone."] if runs else []
        refused = "It was asked to stop already." if ticket.cancel_requested else ""
        return Preview(
            f"Cancel execution {ticket.pk}", lines, version_of(ticket.state, ticket.attempt, ticket.cancel_requested),
            warnings, refused, page_of(ask, ticket.pk),
        )  # fmt: skip

    def do(self, ask: Ask) -> Receipt:
        done = execution_cancel(tenant=ask.inside, actor=ask.actor, execution_id=id_of(ask), now=ask.now)
        text = "It is cancelled." if done.outcome == "done" else "It was asked to stop."
        then = [Step("execution.rerun", str(id_of(ask)), ask.inside.slug)] if done.outcome == "done" else []
        return Receipt(text, page_of(ask, ask.target), then=then)


@register
class ReleaseTicket(Verb):
    """Lets a run go now that waits between tries, or whose message may be lost."""

    name, label, level, scope, key, hard = "ticket.release", "Release now", RESPOND, "tenant", "r", True

    def look(self, ask: Ask) -> Preview:
        ticket = ticket_of(ask)
        waits = ticket.state == "ready" and ticket.rank is None and ticket.available_at > ask.now
        lines = [
            Line("Execution", str(ticket.pk)),
            Line("State", "waits for its time" if waits else ticket.state, "ready"),
            Line("Not before", f"{moment(ticket.available_at)} UTC", "now" if waits else None),
            Line("Release", str(ticket.release or "-")),
        ]
        refused = "" if waits or ticket.state == "queued" else f"It is {ticket.state}: nothing is to be released."
        return Preview(
            f"Release execution {ticket.pk} now", lines, version_of(ticket.state, ticket.release, ticket.available_at),
            ["Limits, pauses and breakers hold for it as for all others."], refused,
            page_of(ask, ticket.pk),
        )  # fmt: skip

    def do(self, ask: Ask) -> Receipt:
        ticket_release(
            tenant_id=ask.inside.pk, execution_id=id_of(ask), release=ticket_of(ask).release, actor=ask.actor,
            now=ask.now, reason=ask.reason,
        )  # fmt: skip
        return Receipt("It goes with the next release.", page_of(ask, ask.target))


class OfTenantsRow(Verb):
    """What verbs on the public site share that are about a row of one tenant: `rows` has it."""

    rows: Any

    def concerns(self, ask: Ask) -> Tenant | None:
        key = as_uuid(ask.target)
        row = self.rows.filter(pk=key).first() if key is not None else None
        return None if row is None else Tenant.objects.filter(pk=row.tenant_id).first()


@register
class UnparkEntry(OfTenantsRow):
    """Serves a due entry again that was put aside."""

    name, label, level, key, hard = "dueentry.unpark", "Serve again", RESPOND, "u", True
    rows = DueEntry.objects

    def look(self, ask: Ask) -> Preview:
        entry = DueEntry.objects.filter(pk=id_of(ask)).first()
        if entry is None:
            raise NotFound("There is no such due entry (any more).")
        lines = [
            Line("Due entry", f"{entry.kind} {entry.key}"),
            Line("Tenant", slug_of(entry.tenant_id)),
            Line("Due at", f"{moment(entry.due_at)} UTC"),
            Line("Put aside because", entry.parked or "-", "served"),
        ]
        refused = "" if entry.parked else "It is served."
        return Preview(
            f"Serve due entry {entry.key} again", lines, version_of(entry.parked, entry.due_at, entry.version),
            refused=refused, link=f"/admin/due/dueentry/{entry.key}/change/",
        )  # fmt: skip

    def do(self, ask: Ask) -> Receipt:
        if not entries_unpark(keys=[id_of(ask)], actor=ask.actor, now=ask.now):
            raise Conflict("It is served already.")
        return Receipt("It is served again, from the next pass on.", f"/admin/due/dueentry/{ask.target}/change/")


@register
class ResetBreaker(OfTenantsRow):
    """Lets calls to a destination go again."""

    name, label, level, key, hard = "breaker.reset", "Reset breaker", RESPOND, "b", True
    rows = Breaker.objects

    def look(self, ask: Ask) -> Preview:
        breaker = Breaker.objects.filter(pk=id_of(ask)).first()
        if breaker is None:
            raise NotFound("There is no such breaker.")
        lines = [
            Line("Destination", breaker.destination),
            Line("Tenant", slug_of(breaker.tenant_id)),
            Line("State", breaker.state, "closed"),
            Line("Failed calls when it opened", f"{breaker.failures:,}"),
            Line("Last failure", breaker.reason),
        ]
        refused = "It is closed: calls are made." if breaker.state == "closed" else ""
        return Preview(
            f"Reset the breaker of {breaker.destination}", lines, version_of(breaker.state, breaker.openings),
            ["When the destination still fails, it opens again."], refused,
            f"/admin/tickets/breaker/{breaker.pk}/change/",
        )  # fmt: skip

    def do(self, ask: Ask) -> Receipt:
        made = breaker_reset(actor=ask.actor, breaker_id=id_of(ask), now=ask.now)
        return Receipt(f"Calls to {made.destination} are made again.", f"/admin/tickets/breaker/{made.pk}/change/")
