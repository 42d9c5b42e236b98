"""Where a workflow names jobs and other workflows: by id, or a job inline. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from uuid import UUID

from apps.schedules.input_fields import MAX_ID_CHARS, Fields
from apps.schedules.job_input import ATTEMPT_MAX_S, REQUEST_MAX_S, JobForm, JobRules, read_job
from apps.workflows.definitions.definition import Handler, JobRef
from kernel.errors import Faults, InvalidInput

INLINE_REFUSED = ("name", "external_id")  # a job of a workflow is named by its step


class KnownJob(NamedTuple):
    """What has to be known of a job that a step runs: its kind, and how long one attempt of it may take."""

    kind: str
    attempt_max_s: int


@dataclass(frozen=True, slots=True)
class Known:
    """What the tenant has of what the body names (see `references`)."""

    jobs: Mapping[UUID, KnownJob] = field(default_factory=dict)
    workflows: Collection[UUID] = ()


class References(NamedTuple):
    """Ids that a body names as far as it can be read."""

    jobs: set[UUID]
    workflows: set[UUID]


class JobReader:
    """Reads the members that name jobs and workflows; keeps the forms of inline jobs by their place."""

    def __init__(self, faults: Faults, rules: JobRules, known: Known) -> None:
        self.faults, self.rules, self.known = faults, rules, known
        self.inline: dict[str, JobForm] = {}

    def handler(self, given: Any, pointer: str, place: str) -> Handler | None:
        """A job beside the graph; None when there is none or it can't be read."""
        if given is None:
            return None
        if not isinstance(given, Mapping):
            self.faults.add(pointer, "type", 'must be an object such as {"job": "..."}.')
            return None
        inner = Faults()
        fields = Fields(given, inner)
        fields.only(("job", "input"))
        if fields.data.get("job") is None:
            inner.add("/job", "required", "This field is required: the id of a job, or a job without a name.")
        self.note(inner, pointer)
        ref = None if fields.data.get("job") is None else self.job(fields.data["job"], f"{pointer}/job", place)
        return None if ref is None else Handler(ref, fields.data.get("input"))

    def job(self, given: Any, pointer: str, place: str) -> JobRef | None:
        """A job by its id, or inline: then its form is kept under its place."""
        if isinstance(given, Mapping):
            self._inline(given, pointer, place)
            return JobRef(None, inline=True)
        id_ = id_of(given)
        if id_ is None:
            self.faults.add(pointer, "type", "must be the id of a job, or a job without a name.")
        elif id_ not in self.known.jobs:
            self.faults.add(pointer, "unknown_job", "There is no such job.")
        else:
            return JobRef(id_)
        return None

    def workflow(self, given: Any, pointer: str) -> UUID | None:
        """A workflow by its id."""
        id_ = id_of(given)
        if id_ is None:
            self.faults.add(pointer, "type", "must be the id of a workflow.")
        elif id_ not in self.known.workflows:
            self.faults.add(pointer, "unknown_workflow", "There is no such workflow.")
        else:
            return id_
        return None

    def known_job(self, ref: JobRef | None, place: str) -> KnownJob | None:
        """What is known of a job that was read; None when it could not be."""
        form = self.inline.get(place)
        if ref is None or ref.job_id is not None:
            return None if ref is None or ref.job_id is None else self.known.jobs.get(ref.job_id)
        return None if form is None else known_job(form.kind, form.definition.target)

    def note(self, found: Faults, pointer: str) -> None:
        """Takes over the faults of a part, with its place before theirs."""
        note(self.faults, found, pointer)

    def _inline(self, given: Mapping[str, Any], pointer: str, place: str) -> None:
        found = Faults()
        for name in INLINE_REFUSED:
            if given.get(name) is not None:
                found.add(f"/{name}", "unknown_field", "A job of a workflow has none: it is named by its step.")
        try:
            self.inline[place] = read_job({**given, "name": place, "external_id": None}, rules=self.rules)
        except InvalidInput as bad:
            found.errors += bad.errors
        self.note(found, pointer)


def note(faults: Faults, found: Faults, pointer: str) -> None:
    """Takes over the faults of a part, with its place before theirs."""
    faults.errors += [replace(one, pointer=f"{pointer}{one.pointer}") for one in found.errors]


def known_job(kind: str, target: Mapping[str, Any]) -> KnownJob:
    """What has to be known of a stored job."""
    waits = kind == "http" and target.get("completion") != "callback"
    return KnownJob(kind, REQUEST_MAX_S if waits else ATTEMPT_MAX_S)


def references(data: object) -> References:
    """The jobs and workflows that a body names; nothing is checked."""
    found = References(set(), set())
    body: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
    holders = [body.get("on_failure"), *_list(body.get("after"))]
    for step in _list(body.get("steps")):
        holders += [step, step.get("compensate")] if isinstance(step, Mapping) else []
    for holder in holders:
        if isinstance(holder, Mapping):
            for member, ids in (("job", found.jobs), ("workflow", found.workflows)):
                if (id_ := id_of(holder.get(member))) is not None:
                    ids.add(id_)
    return found


def id_of(value: Any) -> UUID | None:
    """The id that a text is; None when it is none."""
    try:
        return UUID(value) if isinstance(value, str) and len(value) <= MAX_ID_CHARS else None
    except ValueError:
        return None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
