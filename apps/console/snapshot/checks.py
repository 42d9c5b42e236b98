"""What is looked at every second, as a list: each with its number and the rows behind it. Pure."""

from __future__ import annotations

from typing import NamedTuple

from apps.console.verdict.keeping import UNSEALED_MANY
from apps.console.verdict.values import SHUT_MOST, Facts, counted
from apps.console.verdict.work import LATE_S


class Check(NamedTuple):
    name: str
    value: str
    url: str  # below /admin/
    bad: bool = False


def checks(facts: Facts) -> list[Check]:
    """All of them, whether they are well or not."""
    alive, unheld = len(facts.alive), sum(one.unheld_s >= 0 for one in facts.slices)
    shut = f"{len(facts.shut)}{'+' if len(facts.shut) >= SHUT_MOST else ''}"
    late, unsealed = facts.oldest_due_s > LATE_S, facts.unsealed > UNSEALED_MANY
    return [
        Check("Dispatchers alive", str(alive), "due/dispatcher/?live=yes", not alive),
        Check("Leases without live holder", str(unheld), "shards/?show=unheld", bool(unheld)),
        Check("Workers alive", counted(facts.workers_live), "tickets/worker/?live=yes", not facts.workers_live),
        Check("Oldest due entry", f"{facts.oldest_due_s:.1f} s", "due/dueentry/?due=now", late),
        Check("Due entries put aside", counted(facts.parked), "due/dueentry/?parked=yes", bool(facts.parked)),
        Check("Tickets ready", facts.tickets("ready", "later"), "tickets/ticket/?state=ready"),
        Check("Tickets queued", facts.tickets("queued"), "tickets/ticket/?state=queued"),
        Check("Tickets running", facts.tickets("running"), "tickets/ticket/?state=running"),
        Check("Destinations not called", shut, "tickets/breaker/?state=open", bool(facts.shut)),
        Check("Audit rows not sealed yet", counted(facts.unsealed), "audit/auditevent/", unsealed),
        Check("Alarms of the audit trail", str(facts.alarms), "audit/auditevent/?q=audit.alarm", bool(facts.alarms)),
        Check("Schemas of another version", counted(facts.other_schemas), "tenants/tenant/?schema=other",
              bool(facts.other_schemas)),
        Check("Periodic slots given up", counted(facts.slots_given_up), "due/beatslot/?state=given-up",
              bool(facts.slots_given_up)),
    ]  # fmt: skip
