"""Replaying dead letters, and resolving them: those that were open when the operation was asked for.

What dies again has a new letter, which is none of them: an operation never takes what it made itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from apps.deadletters.models import DeadLetter
from apps.deadletters.reading import LetterFilter, deadletters_ids
from apps.deadletters.replays import replays_of
from apps.operations.filters import LETTER_NAMES, kept, letter_filter, query_of
from apps.operations.kinds.base import Cursor, Done, Kind, Planned, TakenItem, Work
from apps.operations.kinds.paging import frozen, planned_of, position_of
from apps.operations.models import Operation
from apps.outcomes.again import MAX_REPLAYS, UNCHANGED, How, Replayed
from apps.outcomes.replay import check_payload, deadletters_replay
from apps.outcomes.replay_undo import deadletter_unreplay
from apps.outcomes.resolve import deadletter_resolve, deadletters_resolve
from apps.schedules.input_fields import Fields
from apps.workflows.models import Run
from kernel.errors import Faults, ShardbeatError
from tenants import door
from tenants.models import Tenant

OPEN = ["open"]
PARAMS = ("payload", "new_key", "force", "max_replays")
MAX_REPLAYS_MOST = 100
WARNED_OF = 500  # letters that a dry run looks at


class _OfLetters(Kind):
    target = "dead_letters"

    def filtered(self, given: Any, faults: Faults) -> dict[str, Any]:
        found = kept(given, LETTER_NAMES, letter_filter, faults)
        if found.get("status", "open") != "open":
            faults.add("/filter/status", "choice", "must be open: what is closed has nothing left to do.")
        return found

    def planned(self, tenant: Tenant, operation: Operation, *, after: Cursor | None, size: int) -> Planned:
        return planned_of(deadletters_ids(tenant, _wanted(operation), after=position_of(after), size=size))


class ReplayLetters(_OfLetters):
    """Runs them again; an undo takes back what was not started."""

    action = "replay"
    permission = "deadletter.replay"

    def checked(self, tenant: Tenant, given: Mapping[str, Any], faults: Faults) -> dict[str, Any]:
        fields = Fields(given, faults)
        fields.only(PARAMS)
        found: dict[str, Any] = {
            "new_key": fields.flag("new_key"),
            "force": fields.flag("force"),
            "max_replays": fields.whole("max_replays", 1, MAX_REPLAYS_MOST, MAX_REPLAYS),
        }
        if "payload" in given:
            found["payload"] = given["payload"]
            faults.errors += check_payload(given["payload"], tenant.plan.max_payload_bytes)
        return found

    def warnings(self, tenant: Tenant, operation: Operation, *, count: int, now: datetime) -> list[str]:
        ids = deadletters_ids(tenant, _wanted(operation), size=WARNED_OF).rows
        executions = list(DeadLetter.objects.filter(pk__in=ids).values_list("execution_id", flat=True))
        how = how_of(operation)
        counts = replays_of(door.raw(), tenant.schema_name, executions)
        often = sum(times >= how.max_replays for times in counts.values())
        if not often or how.force:
            return []
        of = f" of the first {WARNED_OF:,}" if count > WARNED_OF else ""
        return [f"{often:,}{of} were replayed {how.max_replays} times or more and died each time; they are skipped."]

    def apply(self, work: Work, item: TakenItem) -> Done:
        done = self._replay(work, [item])[item.n]
        if isinstance(done, ShardbeatError):
            raise done
        return done

    def apply_together(self, work: Work, items: Sequence[TakenItem]) -> Mapping[int, Done | ShardbeatError]:
        """Runs of workflows go one by one: each has a lock that comes before those of the others."""
        executions = DeadLetter.objects.filter(pk__in=[item.target_id for item in items]).values("execution_id")
        if Run.objects.filter(pk__in=executions).exists():
            return {}
        return self._replay(work, items)

    def undo(self, work: Work, item: TakenItem) -> None:
        assert item.target_id is not None
        assert item.made_id is not None
        deadletter_unreplay(
            tenant=work.tenant, actor=work.actor, letter_id=item.target_id, execution_id=item.made_id,
            before=item.before or {}, now=work.now,
        )  # fmt: skip

    def _replay(self, work: Work, items: Sequence[TakenItem]) -> dict[int, Done | ShardbeatError]:
        numbers = {item.target_id: item.n for item in items if item.target_id is not None}
        done = deadletters_replay(
            tenant=work.tenant, actor=work.actor, letter_ids=list(numbers), now=work.now, how=how_of(work.operation)
        )
        return {
            numbers[key]: one if isinstance(one, ShardbeatError) else _runs(one) for key, one in done.items()
        }  # fmt: skip


class ResolveLetters(_OfLetters):
    """Closes them without a run."""

    action = "resolve"
    permission = "deadletter.resolve"
    undoes = False

    def apply(self, work: Work, item: TakenItem) -> Done:
        assert item.target_id is not None
        deadletter_resolve(
            tenant=work.tenant, actor=work.actor, letter_id=item.target_id, now=work.now, note=work.operation.reason
        )
        return Done("succeeded")

    def apply_together(self, work: Work, items: Sequence[TakenItem]) -> Mapping[int, Done | ShardbeatError]:
        numbers = {item.target_id: item.n for item in items if item.target_id is not None}
        refused = deadletters_resolve(
            tenant=work.tenant, actor=work.actor, letter_ids=list(numbers), now=work.now, note=work.operation.reason
        )
        return {n: refused.get(key, Done("succeeded")) for key, n in numbers.items()}


def how_of(operation: Operation) -> How:
    """How an operation's letters are replayed: its reason is their note, and live runs go before theirs."""
    params = operation.params
    return How(
        payload=params.get("payload", UNCHANGED), new_key=params["new_key"], force=params["force"],
        max_replays=params["max_replays"], yields=True, note=operation.reason,
    )  # fmt: skip


def _runs(one: Replayed) -> Done:
    return Done("running", made_id=one.execution_id, before=dict(one.before))


def _wanted(operation: Operation) -> LetterFilter:
    """Those that are open now, of what the filter says; one that is closed by now is not counted."""
    wanted = letter_filter(query_of(operation.filter, LETTER_NAMES))
    return frozen(replace(wanted, statuses=OPEN), operation)
