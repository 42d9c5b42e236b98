"""A schedule as its owner writes it: its timing as given, and the rest. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from apps.schedules.input_fields import Fields
from apps.schedules.job_input import MAX_EXTERNAL_ID_CHARS, MAX_QUEUE_AGE_S
from apps.schedules.timing import Every, Interval, Recurrence, Spec, TimingInvalid, spec_from_api
from apps.schedules.timing_api import ExclusionOf
from apps.schedules.timing_runs import runs_used
from kernel.errors import Faults

Word = Literal["job", "workflow"]
ANCHORED = (Interval, Every, Recurrence)  # triggers with a stored phase
TIMING_DEFAULTS: dict[str, Any] = {
    "trigger": None,
    "timezone": None,  # UTC, or the zone that the expression names
    "start_at": None,
    "end_at": None,
    "jitter_s": 0,
    "misfire": "fire_once",
    "grace_s": 60,
    "misfire_max": 100,
    "misfire_max_age_s": None,
    "misfire_order": "oldest",
    "catch_up_per_s": None,
    "overlap": "allow",
    "overlap_max": 10,
    "dst_gap": "run_after",
    "dst_fold": "first",
    "max_runs": None,
    "windows": None,
    "outside": "skip",
    "calendar": None,
    "on_excluded": "skip",
}
# What a schedule's own failures do to it. Not part of the spec: firing does not ask for it.
HEALTH_DEFAULTS: dict[str, Any] = {"pause_after_failures": None, "probe_after_s": None}
# How long its runs may wait, instead of what the job says. Not part of the spec: the due entry carries it.
WAITING_DEFAULTS: dict[str, Any] = {"max_queue_age_s": None}
DEFAULTS = {**TIMING_DEFAULTS, **HEALTH_DEFAULTS, **WAITING_DEFAULTS}
FAILURES_MAX = 100
PROBE_MIN_S, PROBE_MAX_S = 1, 30 * 86_400
FIELDS = ("name", "job", "workflow", *DEFAULTS, "payload", "labels", "external_id")
READ_ONLY = (
    "id", "version", "status", "paused_reason", "paused_at", "resume_at", "next_at", "problem", "last_at",
    "created_at", "updated_at", "load_hint",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ScheduleForm:
    """A complete, valid schedule. `timing` is as it was given, with defaults filled in; `spec` what follows from it.

    `job_id` is what runs, and `word` says whether that is a job or a workflow.
    """

    name: str
    word: Word
    job_id: UUID
    labels: dict[str, str]
    external_id: str | None
    payload: Any
    timing: dict[str, Any]
    spec: Spec
    health: dict[str, Any]
    waiting: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rest:
    """What of a schedule neither names it nor decides when."""

    labels: dict[str, str]
    external_id: str | None
    payload: Any
    health: dict[str, Any]
    waiting: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Known:
    """What a schedule says now. Its timing is not judged again while it stays as it was given.

    `stopped_at` is when it was paused: until then its runs count for max_runs.
    """

    timing: Mapping[str, Any]
    spec: Spec
    stopped_at: datetime | None = None


def read_schedule(
    data: object, *, key: str, now: datetime, min_interval_s: int, max_payload_bytes: int, known: Known | None = None,
    exclusion_of: ExclusionOf | None = None,
) -> ScheduleForm:  # fmt: skip
    """Reads a complete schedule; missing members take their defaults. Raises InvalidInput with all faults."""
    faults = Faults()
    fields = Fields(data, faults)
    fields.only(FIELDS, read_only=READ_ONLY)
    name, (word, job_id) = fields.name(), _what_runs(fields)
    rest = read_rest(fields, max_payload_bytes=max_payload_bytes)
    timing = timing_of(fields.data)
    spec = read_timing(
        timing, fields.data, key=key, now=now, min_interval_s=min_interval_s, faults=faults, known=known,
        exclusion_of=exclusion_of,
    )  # fmt: skip
    faults.raise_if_any()
    assert spec is not None and job_id is not None
    if timing["timezone"] is None and spec.zone != "UTC":
        # CRON_TZ= in an expression: from here on the zone has one place, so that an answer can be sent back.
        timing |= {"timezone": spec.zone, "trigger": spec.trigger.as_json()}
    if timing["calendar"] is not None and exclusion_of is not None:
        calendar = exclusion_of(timing["calendar"])
        timing |= {"calendar": calendar[0] if calendar is not None else timing["calendar"]}  # names change, ids stay
    return ScheduleForm(
        name, word, job_id, rest.labels, rest.external_id, rest.payload, timing, spec, rest.health, rest.waiting
    )


def definition_of_form(form: ScheduleForm) -> dict[str, Any]:
    """What of a schedule makes a version, as it is stored."""
    return {**form.timing, **form.health, **form.waiting, form.word: str(form.job_id)}


def runs_of(definition: Mapping[str, Any], job_id: UUID) -> dict[str, str | None]:
    """What a stored definition says that it runs, which is `job_id`: a job or a workflow."""
    word = "workflow" if "workflow" in definition else "job"
    return {"job": None, "workflow": None, word: str(job_id)}


def timing_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """The members that decide when, with defaults for what is missing or null."""
    return {name: default if data.get(name) is None else data[name] for name, default in TIMING_DEFAULTS.items()}


def health_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """The members that say what failures do, with defaults."""
    return {name: data.get(name) for name in HEALTH_DEFAULTS}


def waiting_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """The members that say how long its runs may wait, with defaults."""
    return {name: data.get(name) for name in WAITING_DEFAULTS}


def read_rest(fields: Fields, *, max_payload_bytes: int) -> Rest:
    """What neither names a schedule nor decides when; faults are noted. A preview reads it like saving does, so that
    what it shows can be saved."""
    return Rest(
        fields.labels(), fields.text("external_id", most=MAX_EXTERNAL_ID_CHARS),
        fields.json("payload", max_bytes=max_payload_bytes), _health(fields),
        {"max_queue_age_s": fields.whole("max_queue_age_s", 1, MAX_QUEUE_AGE_S, None)},
    )  # fmt: skip


def read_timing(
    timing: Mapping[str, Any], given: Mapping[str, Any], *, key: str, now: datetime, min_interval_s: int,
    faults: Faults, known: Known | None = None, exclusion_of: ExclusionOf | None = None,
) -> Spec | None:  # fmt: skip
    """The spec of a timing; None when it has faults, which are noted.

    An interval keeps its phase while its trigger and start stay as they were given.
    """
    if known is not None and timing == dict(known.timing):
        return known.spec
    asked = {name: given[name] for name in TIMING_DEFAULTS if given.get(name) is not None}
    if known is not None and isinstance(known.spec.trigger, ANCHORED) and _same_phase(timing, known.timing):
        asked["trigger"] = known.spec.trigger.as_json()
    used = runs_used(known.spec, until=min(now, known.stopped_at or now)) if known is not None else 0
    try:
        return spec_from_api(
            asked, now=now, min_interval_s=min_interval_s, key=key, runs_used=used, exclusion_of=exclusion_of
        )
    except TimingInvalid as error:
        faults.errors += error.errors
        return None


def _what_runs(fields: Fields) -> tuple[Word, UUID | None]:
    given = [name for name in ("job", "workflow") if fields.data.get(name) is not None]
    if len(given) > 1:
        fields.faults.add("/workflow", "contradiction", "Give job or workflow, not both.")
    if given == ["workflow"]:
        return "workflow", fields.id("workflow")
    return "job", fields.id("job")


def _same_phase(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    return all(new[name] == old.get(name) for name in ("trigger", "start_at"))


def _health(fields: Fields) -> dict[str, Any]:
    found = {
        "pause_after_failures": fields.whole("pause_after_failures", 1, FAILURES_MAX, None),
        "probe_after_s": fields.whole("probe_after_s", PROBE_MIN_S, PROBE_MAX_S, None),
    }
    if found["probe_after_s"] is not None and found["pause_after_failures"] is None:
        detail = "says when a schedule that was paused for its failures is tried again; give pause_after_failures."
        fields.faults.add("/probe_after_s", "contradiction", detail)
    return found
