"""One step as its owner writes it. Pure."""

import re
from collections.abc import Mapping
from typing import Any, cast

from apps.schedules.input_fields import Fields
from apps.schedules.job_input import ATTEMPT_MAX_S, MAX_CONCURRENCY
from apps.schedules.retry import retry_from_api
from apps.workflows.definitions.definition import (
    OPERATORS,
    Approval,
    Condition,
    Edge,
    ForEach,
    Join,
    On,
    Overrides,
    Step,
    StepType,
    compensate_place,
    step_place,
)
from apps.workflows.definitions.inputs import is_whole
from apps.workflows.definitions.reading_jobs import JobReader, KnownJob, note
from kernel.errors import Faults
from tenants.permissions import ROLES

STEP_NAME = r"[a-z0-9][a-z0-9_-]{0,49}"
ON = ("succeeded", "failed", "finished", "skipped")
JOINS = ("all", "any", "none_failed")
ANSWERING = ROLES[1:]  # who may answer an approval: viewers only read
ENDS_OF_TIME = ("failed", "skipped", "succeeded")
MAX_NEEDS = MAX_ITEMS = 1_000
MAX_CONDITIONS = 20
MAX_WAIT_S = 366 * 86_400
MAX_MESSAGE_CHARS = 2_000
_STEP_NAME = re.compile(STEP_NAME)
_COMMON = ("name", "needs", "join", "when", "allow_failure", "depends_on_previous")
_OVERRIDES = ("retry", "timeout_s", "max_concurrency", "priority")
_OF_TYPE: Mapping[StepType, tuple[str, ...]] = {
    "job": ("job", "input", "for_each", "compensate", *_OVERRIDES),
    "workflow": ("workflow", "input", "for_each", "compensate"),
    "approval": ("approval",),
    "delay": ("delay_s",),
}
_MEMBER_OF_TYPE: Mapping[StepType, str] = {
    "job": "job", "workflow": "workflow", "approval": "approval", "delay": "delay_s",
}  # fmt: skip


def read_step(given: Any, pointer: str, jobs: JobReader) -> Step | None:
    """A step, as far as it can be read; None when it has no usable name or its type is not clear."""
    if not isinstance(given, Mapping):
        jobs.faults.add(pointer, "type", 'must be an object such as {"name": "extract", "job": "..."}.')
        return None
    faults = Faults()
    fields = Fields(given, faults)
    name = _name(fields)
    type_ = _type(fields)
    step = None
    if name and type_:
        place = step_place(name)
        job = jobs.job(fields.data["job"], f"{pointer}/job", place) if type_ == "job" else None
        workflow_id = jobs.workflow(fields.data["workflow"], f"{pointer}/workflow") if type_ == "workflow" else None
        compensate, known = fields.data.get("compensate"), jobs.known_job(job, place)
        join, at_least = _join(fields)
        step = Step(
            name=name,
            type=type_,
            job=job,
            workflow_id=workflow_id,
            approval=_approval(fields) if type_ == "approval" else None,
            delay_s=fields.whole("delay_s", 0, MAX_WAIT_S, None),
            needs=_needs(fields),
            join=join,
            at_least=at_least,
            input=fields.data.get("input"),
            when=_when(fields),
            for_each=_for_each(fields),
            overrides=_overrides(fields, known),
            allow_failure=fields.flag("allow_failure"),
            depends_on_previous=fields.flag("depends_on_previous"),
            compensate=jobs.handler(compensate, f"{pointer}/compensate", compensate_place(name)),
        )
    jobs.note(faults, pointer)
    return step


def _name(fields: Fields) -> str | None:
    name = fields.data.get("name")
    if name is None:
        fields.faults.add("/name", "required", "This field is required.")
    elif not isinstance(name, str) or not _STEP_NAME.fullmatch(name):
        detail = "A step's name has 1 to 50 of a-z 0-9 _ - and begins with a letter or a digit."
        fields.faults.add("/name", "invalid_name", detail)
    else:
        return name
    return None


def _type(fields: Fields) -> StepType | None:
    types = [type_ for type_, member in _MEMBER_OF_TYPE.items() if fields.data.get(member) is not None]
    if len(types) != 1:
        detail = f"A step has exactly one of {', '.join(_MEMBER_OF_TYPE.values())}."
        fields.faults.add("", "contradiction" if types else "required", detail)
        return None
    known = {*_COMMON, *_OF_TYPE[types[0]]}
    for name in _OF_TYPE["job"]:
        if name not in known and fields.data.get(name) is not None:
            fields.faults.add(f"/{name}", "not_for_type", f"Steps with {_MEMBER_OF_TYPE[types[0]]} have no {name}.")
    fields.only({*_COMMON, *(name for names in _OF_TYPE.values() for name in names)})
    return types[0]


def _needs(fields: Fields) -> tuple[Edge, ...]:
    given = fields.data.get("needs")
    if given is None:
        return ()
    if not isinstance(given, list) or len(given) > MAX_NEEDS:
        fields.faults.add("/needs", "range", f"must be a list of at most {MAX_NEEDS:,} steps.")
        return ()
    found: dict[Edge, None] = {}
    for at, one in enumerate(given):
        edge = _edge(one, f"/needs/{at}", fields.faults)
        if edge in found:
            fields.faults.add(f"/needs/{at}", "duplicate", "This need stands in the list already.")
        elif edge is not None:
            found[edge] = None
    return tuple(found)


def _edge(given: Any, pointer: str, faults: Faults) -> Edge | None:
    if isinstance(given, str):
        return Edge(given)
    if not isinstance(given, Mapping) or not isinstance(given.get("step"), str) or set(given) - {"step", "on"}:
        faults.add(pointer, "type", 'must be the name of a step, or {"step": "a", "on": "failed"}.')
        return None
    on = given.get("on") or "succeeded"
    if on not in ON:
        faults.add(f"{pointer}/on", "choice", f"must be one of {', '.join(ON)}.")
        return None
    return Edge(given["step"], cast("On", on))


def _join(fields: Fields) -> tuple[Join, int]:
    given = fields.data.get("join")
    if given is None:
        return "all", 0
    if isinstance(given, str) and given in JOINS:
        return cast("Join", given), 0
    count = given.get("at_least") if isinstance(given, Mapping) and len(given) == 1 else None
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_NEEDS:
        detail = f'must be one of {", ".join(JOINS)}, or {{"at_least": n}} with n from 1 to {MAX_NEEDS:,}.'
        fields.faults.add("/join", "choice", detail)
        return "all", 0
    return "at_least", count


def _when(fields: Fields) -> tuple[Condition, ...]:
    given = fields.data.get("when")
    if given is None:
        return ()
    if not isinstance(given, list) or len(given) > MAX_CONDITIONS:
        fields.faults.add("/when", "range", f"must be a list of at most {MAX_CONDITIONS} conditions.")
        return ()
    return tuple(made for at, one in enumerate(given) if (made := _condition(one, f"/when/{at}", fields.faults)))


def _condition(given: Any, pointer: str, faults: Faults) -> Condition | None:
    operators = [one for one in OPERATORS if isinstance(given, Mapping) and one in given]
    if not isinstance(given, Mapping) or "value" not in given or len(operators) != 1 or len(given) != 2:
        faults.add(pointer, "type", f'must have "value" and exactly one of {", ".join(OPERATORS)}.')
        return None
    operator, other = operators[0], given[operators[0]]
    if operator == "in" and not isinstance(other, list):
        faults.add(f"{pointer}/in", "type", "must be a list of values.")
        return None
    if operator in ("greater_than", "less_than") and (
        isinstance(other, bool) or not isinstance(other, int | float | str)
    ):
        faults.add(f"{pointer}/{operator}", "type", "must be a number or a text.")
        return None
    return Condition(given["value"], operator, other)


def _for_each(fields: Fields) -> ForEach | None:
    given = fields.data.get("for_each")
    if given is None:
        return None
    inner = Faults()
    part = Fields(given, inner)
    part.only(("items", "max_items", "max_in_flight", "max_failures"))
    items = part.data.get("items")
    made = ForEach(
        items=items,
        max_items=part.whole("max_items", 1, MAX_ITEMS, MAX_ITEMS),
        max_in_flight=part.whole("max_in_flight", 1, MAX_ITEMS, None),
        max_failures=part.whole("max_failures", 0, MAX_ITEMS, 0),
    )
    if isinstance(items, list) and len(items) > made.max_items:
        inner.add("/items", "too_many", f"has {len(items):,} items; max_items allows {made.max_items:,}.")
    elif not isinstance(items, list) and not (isinstance(items, str) and is_whole(items)):
        detail = 'must be a list, or one template that gives a list, such as "{{ input.regions }}".'
        inner.add("/items", "required" if items is None else "type", detail)
    note(fields.faults, inner, "/for_each")
    return made


def _approval(fields: Fields) -> Approval:
    inner = Faults()
    part = Fields(fields.data.get("approval"), inner)
    part.only(("role", "timeout_s", "on_timeout", "message"))
    made = Approval(
        role=part.choice("role", ANSWERING, "operator"),
        timeout_s=part.whole("timeout_s", 1, MAX_WAIT_S, None),
        on_timeout=cast("Any", part.choice("on_timeout", ENDS_OF_TIME, "failed")),
        message=part.text("message", most=MAX_MESSAGE_CHARS, lines=True) or "",
    )
    note(fields.faults, inner, "/approval")
    return made


def _overrides(fields: Fields, known: KnownJob | None) -> Overrides:
    retry, kind = fields.data.get("retry"), known.kind if known else "pull"
    if retry is not None:
        retry_from_api(retry, fields.faults, kind=kind)
    return Overrides(
        retry={**retry} if isinstance(retry, Mapping) else None,
        timeout_s=fields.whole("timeout_s", 1, known.attempt_max_s if known else ATTEMPT_MAX_S, None),
        max_concurrency=fields.whole("max_concurrency", 1, MAX_CONCURRENCY, None),
        priority=fields.whole("priority", 0, 9, None),
    )
