"""What a submission says it depends on, as values. Pure."""

from typing import Any, get_args
from uuid import UUID

from apps.schedules.input_fields import MAX_ID_CHARS, Fields
from apps.workflows.definitions.definition import On
from kernel.jsonrules import pointer_to

MAX_PARENTS = 100
CONDITIONS: tuple[On, ...] = get_args(On)
MEMBERS = ("execution", "on")


def read_depends_on(fields: Fields) -> dict[UUID, On]:
    """The executions that have to end, in order, each with how; faults are noted.

    `depends_on` is a list of ids, or of objects with `execution` and `on`; `condition` is for those without an `on`.
    """
    value, given = fields.data.get("depends_on"), fields.data.get("condition")
    condition = _on(fields, given, "/condition", "succeeded")
    if value is None or value == []:
        if given is not None:
            fields.faults.add("/condition", "contradiction", "says how depends_on has to end; that is missing.")
        return {}
    if not isinstance(value, list):
        fields.faults.add("/depends_on", "type", "must be a list of ids of executions.")
        return {}
    if len(value) > MAX_PARENTS:
        fields.faults.add("/depends_on", "too_many", f"names {len(value):,} executions; {MAX_PARENTS} are allowed.")
        return {}
    found: dict[UUID, On] = {}
    for place, one in enumerate(value):
        pointer = f"/depends_on/{place}"
        member = one if isinstance(one, dict) else {"execution": one}
        for name in [name for name in member if name not in MEMBERS]:
            detail = f"There is no such field. Known: {', '.join(MEMBERS)}."
            fields.faults.add(pointer_to(pointer, name), "unknown_field", detail)
        parent = _id(member.get("execution"))
        on = _on(fields, member.get("on"), f"{pointer}/on", condition)
        if parent is None:
            fields.faults.add(pointer, "type", "must be the id of an execution.")
        elif parent in found:
            fields.faults.add(pointer, "duplicate", "names an execution that the list has already.")
        else:
            found[parent] = on
    return found


def _on(fields: Fields, value: Any, pointer: str, default: On) -> On:
    if value is None:
        return default
    for known in CONDITIONS:
        if value == known:
            return known
    fields.faults.add(pointer, "choice", f"must be one of {', '.join(CONDITIONS)}.")
    return default


def _id(value: Any) -> UUID | None:
    try:
        return UUID(value) if isinstance(value, str) and len(value) <= MAX_ID_CHARS else None
    except ValueError:
        return None
