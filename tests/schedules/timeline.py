"""A driven clock around `decide`: one schedule, a dispatcher that is up or down, runs that take their time."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from apps.schedules.policy import Decision, decide, first_due
from apps.schedules.timing import Spec
from apps.schedules.timing_api import counts_from

KEY = "schedule"
MOMENT = timedelta(milliseconds=1)


def first_created(spec: Spec, *, now: datetime) -> tuple[datetime, datetime] | None:
    """The first entry of a schedule that is created now, as the service decides it."""
    return first_due(spec, key=KEY, after=counts_from(spec.trigger, spec.start_at, now=now))


@dataclass
class Run:
    nominal_at: datetime
    started_at: datetime
    trigger: str


@dataclass
class Timeline:
    """Serves its one due entry the moment that it is due, or that the dispatcher is up again."""

    spec: Spec
    now: datetime
    run_takes: timedelta | None = timedelta()  # None: no worker ever takes a run
    up: bool = True
    entry: tuple[datetime, datetime] | None = None
    runs: list[Run] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.entry = first_created(self.spec, now=self.now)

    def until(self, end: datetime) -> None:
        """Lets time pass, events included, up to and with `end`."""
        while self.up and self.entry is not None and max(self.entry[1], self.now) <= end:
            self.now = max(self.entry[1], self.now)
            self._serve(self.entry)
        self.now = end

    def edit(self, spec: Spec) -> None:
        """An edit, a change of zone or a resume: the entry is made anew from now, without debt."""
        self.spec = spec
        self.entry = first_due(spec, key=KEY, after=self.now)

    def alive(self) -> int:
        return sum(1 for run in self.runs if self.run_takes is None or run.started_at + self.run_takes > self.now)

    def skipped(self) -> int:
        return sum(skip.count for decision in self.decisions for skip in decision.skips)

    def _serve(self, entry: tuple[datetime, datetime]) -> None:
        nominal_at, due_at = entry
        decision = decide(self.spec, key=KEY, nominal_at=nominal_at, due_at=due_at, now=self.now, live=self.alive())
        assert decision.alert is None
        self.decisions.append(decision)
        for fire in decision.fires:
            self.runs.append(Run(fire.nominal_at, max(fire.actual_at, self.now), fire.trigger))
        after = (decision.next_nominal, decision.next_due)
        assert after != entry, "the entry must move"
        self.entry = (
            None
            if decision.next_nominal is None or decision.next_due is None
            else (decision.next_nominal, decision.next_due)
        )
