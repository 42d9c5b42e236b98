"""What a tenant can be told: the types of events.

There is a `run.succeeded`, `run.failed` or `run.late` for each run: they are only written while a webhook asks for them
(`tenants.registry.Tenancy.wants`).
"""

EVENT_TYPES = {
    "run.succeeded": "A run ended well.",
    "run.failed": "An attempt of a run failed, or the run expired; `final` says whether it is tried again.",
    "run.dead_lettered": "A run used up its tries or can't be tried again: it is a dead letter.",
    "run.late": "A run has not started a minute after it was due.",
    "schedule.paused": "A schedule was paused, by somebody or by the platform.",
    "schedule.resumed": "A paused schedule goes on.",
    "schedule.missed": "Occurrences of a schedule did not run: nobody could fire them in time, or a quota was used up.",
    "quota.near": "80 or 100 per cent of a limit of the plan are used.",
    "webhook.disabled": "A webhook was disabled: its receiver failed for too long, is gone, or somebody did it.",
    "backfill.done": "A backfill has ended.",
}
TEST_TYPE = "webhook.test"  # of a delivery that somebody asked for; no event
EVERYTHING = "*"  # in a subscription: all types, also those that come with later versions
DELIVERY = "webhook"  # trigger of the executions that carry events out; nothing is told about them


def wanted_types(subscribed: "list[str] | tuple[str, ...] | frozenset[str]") -> frozenset[str]:
    """The types that a list of a subscription means."""
    return frozenset(EVENT_TYPES) if EVERYTHING in subscribed else frozenset(subscribed)
