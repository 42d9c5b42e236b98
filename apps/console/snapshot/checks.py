"""What is looked at every second, as a list: each with its number and the rows behind it. Pure."""

from __future__ import annotations

from typing import NamedTuple

from apps.console.verdict.machines import UNSEALED_MANY
from apps.console.verdict.values import Facts, counted
from apps.console.verdict.work import LATE_S


class Check(NamedTuple):
    name: str
    value: str
    url: str  # below /admin/
    bad: bool = False


def checks(facts: Facts) -> list[Check]:
    """All of them, whether they are well or not."""
    alive, unheld = len(facts.alive), sum(one.unheld_s >= 0 for one in facts.slices)
    ready = facts.counts.get("ready", 0) + facts.counts.get("later", 0)
    queued, running = facts.counts.get("queued", 0), facts.counts.get("running", 0)
    late, unsealed = facts.oldest_due_s > LATE_S, facts.unsealed > UNSEALED_MANY
    return [
        Check("Dispatchers alive", str(alive), "due/dispatcher/?live=yes", not alive),
        Check("Leases without live holder", str(unheld), "due/shardlease/?held=no", bool(unheld)),
        Check("Workers alive", counted(facts.workers_live), "tickets/worker/?live=yes", not facts.workers_live),
        Check("Oldest due entry", f"{facts.oldest_due_s:.1f} s", "due/dueentry/?due=now", late),
        Check("Due entries put aside", counted(facts.parked), "due/dueentry/?parked=yes", bool(facts.parked)),
        Check("Tickets ready", counted(ready), "tickets/ticket/?state=ready"),
        Check("Tickets queued", counted(queued), "tickets/ticket/?state=queued"),
        Check("Tickets running", counted(running), "tickets/ticket/?state=running"),
        Check("Destinations not called", str(len(facts.shut)), "tickets/breaker/?state=open", bool(facts.shut)),
        Check("Audit rows not sealed yet", counted(facts.unsealed), "audit/auditevent/", unsealed),
        Check("Alarms of the audit trail", str(facts.alarms), "audit/auditevent/?q=audit.alarm", bool(facts.alarms)),
        Check("Schemas of another version", counted(facts.other_schemas), "tenants/tenant/?schema=other",
              bool(facts.other_schemas)),
        Check("Periodic slots given up", counted(facts.slots_given_up), "due/beatslot/?state=given-up",
              bool(facts.slots_given_up)),
    ]  # fmt: skip
