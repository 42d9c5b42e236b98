"""What a step is given: JSON with `{{ ... }}` in it, filled with what the run and the steps before it brought. Pure.

The language is that of `kernel.templates`. A text that is one template keeps the JSON type of its value. Names:

    {{ input.region }}                    the input of the run
    {{ steps.extract.output.rows }}       of a step above: output, result, state, error, execution, attempt
    {{ run.id }}                          also nominal_at, trigger, workflow; for on_failure error and failed_step
    {{ item }}, {{ index }}               in a step with for_each: what stands at this place of the list, from 0
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from apps.workflows.definitions.definition import Condition, ForEach, Step
from apps.workflows.definitions.outputs import StepView
from kernel.httptemplates import told
from kernel.jsonrules import pointer_to, value_faults
from kernel.templates import (
    MISSING,
    BadTemplate,
    Budget,
    Expression,
    Known,
    Template,
    has_template,
    json_text,
    read_template,
    value_of,
    write_text,
)

STEP_MEMBERS = ("output", "result", "state", "error", "execution", "attempt")
RUN_MEMBERS = ("id", "nominal_at", "trigger", "workflow")
FAILURE_MEMBERS = ("error", "failed_step")  # of `run`, for the job that runs once for a failed run
MESSAGE_MAX_CHARS = 2_000
_DEEP = ("output", "result", "error")  # what has members of its own
_FREE = frozenset({"input", "steps", "run", "item"})
_NAMES = Known({"input": (), "steps": (), "run": (), "item": (), "index": ()}, _FREE)


class BadInput(ValueError):
    """What a step should be given can't be made: its step fails, and no attempt is begun. `detail` says why."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class RunFacts(NamedTuple):
    """What templates may say of a run. `error` and `failed_step` are known when it failed."""

    id: str
    workflow: str
    trigger: str
    nominal_at: datetime | None = None
    error: Any = None
    failed_step: str | None = None


class StepFacts(NamedTuple):
    """What templates may say of a step above. `result` is parsed JSON; of a step with for_each a list by place."""

    state: str
    result: Any = None
    error: Any = None
    execution: str | None = None
    attempt: int | None = None


@dataclass(frozen=True, slots=True)
class Allowed:
    """What templates at one place may name: the steps above it, item and index, what is known after a failure."""

    steps: frozenset[str]
    item: bool = False
    failure: bool = False


def values_of(
    run: RunFacts, *, given: Any, steps: Mapping[str, StepFacts], item: Any = MISSING, index: int | None = None
) -> dict[str, Any]:
    """The values for `filled`, `items_of` and `unmet_condition`. `given` is the input of the run."""
    values: dict[str, Any] = {
        "input": given,
        "run": run._asdict(),
        "steps": {name: StepView(facts._asdict()) for name, facts in steps.items()},
    }
    if item is not MISSING:
        values |= {"item": item, "index": index}
    return values


def filled(value: Any, values: Mapping[str, Any], *, max_bytes: int) -> Any:
    """JSON with its templates filled in. Raises BadInput, also when more than `max_bytes` come out."""
    made = _filled(value, values, Budget())
    if faults := value_faults(made):
        raise BadInput(f"What comes out can't be stored: {faults[0].detail}")
    try:
        size = len(json_text(made).encode())
    except BadTemplate as bad:
        raise BadInput(bad.detail) from None
    if size > max_bytes:
        raise BadInput(f"What comes out has {size:,} bytes; {max_bytes:,} are allowed.")
    return made


def message_filled(message: str, values: Mapping[str, Any]) -> str:
    """What a person is asked, at most MESSAGE_MAX_CHARS of it. Raises BadInput when it can't be made."""
    made = _filled(message, values, Budget())
    text = made if isinstance(made, str) else json_text(made)
    if faults := value_faults(text):
        raise BadInput(f"The message can't be stored: {faults[0].detail}")
    return text if len(text) <= MESSAGE_MAX_CHARS else f"{text[: MESSAGE_MAX_CHARS - 3]}..."


def items_of(for_each: ForEach, values: Mapping[str, Any]) -> list[Any]:
    """The list that a step runs over. Raises BadInput when it is none, or longer than it may be."""
    items = _filled(for_each.items, values, Budget())
    if not isinstance(items, list):
        raise BadInput(f"for_each needs a list; this is {_kind_of(items)}.")
    if len(items) > for_each.max_items:
        raise BadInput(f"for_each got {len(items):,} items; {for_each.max_items:,} are allowed.")
    if faults := value_faults(items):
        raise BadInput(f"An item can't be stored: {faults[0].detail}")
    return items


def unmet_condition(conditions: Iterable[Condition], values: Mapping[str, Any]) -> Condition | None:
    """The first condition that does not hold; None when all do. Raises BadInput for what can't be compared."""
    for condition in conditions:
        value = _filled(condition.value, values, Budget())
        if not _holds(value, condition):
            return condition
    return None


def steps_named(*parts: Any) -> frozenset[str]:
    """The steps that the templates in some JSON name: whose results have to be read. Unreadable ones have none."""
    found: set[str] = set()
    for part in parts:
        for _, text in texts_of(part):
            with suppress(BadTemplate):
                for expression in read_template(text, _NAMES).expressions:
                    if expression.path and expression.path[0] == "steps" and len(expression.path) > 1:
                        found.add(str(expression.path[1]))
    return frozenset(found)


def reads_of(step: Step) -> frozenset[str]:
    """The steps whose results a step needs before it can start."""
    for_each = None if step.for_each is None else step.for_each.items
    message = None if step.approval is None else step.approval.message
    return steps_named(step.input, for_each, message, *(one.value for one in step.when))


def texts_of(value: Any, pointer: str = "") -> Iterator[tuple[str, str]]:
    """All texts of a JSON value that hold templates, with their JSON pointers, in order. Does not recurse."""
    waiting = [(pointer, value)]
    while waiting:
        where, one = waiting.pop()
        if isinstance(one, str):
            if has_template(one):
                yield where, one
        elif isinstance(one, Mapping):
            waiting.extend((pointer_to(where, name), inner) for name, inner in reversed(list(one.items())))
        elif isinstance(one, list):
            waiting.extend((pointer_to(where, at), inner) for at, inner in reversed(list(enumerate(one))))


def template_faults(value: Any, pointer: str, allowed: Allowed) -> Iterator[tuple[str, str, str]]:
    """(pointer, code, what is wrong) for each template that can't be read or names what is not there."""
    for where, text in texts_of(value, pointer):
        try:
            template = read_template(text, _NAMES)
        except BadTemplate as bad:
            yield where, "bad_template", told(bad)
            continue
        for expression in template.expressions:
            if fault := _path_fault(expression, allowed):
                yield where, *fault


def is_whole(text: str) -> bool:
    """Whether a text is one template and nothing else, so that its value may be of any type."""
    try:
        return has_template(text) and read_template(text, _NAMES).whole() is not None
    except BadTemplate:
        return False


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal; true is not 1, but 1 is 1.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    return bool(one == other)


def _holds(value: Any, condition: Condition) -> bool:
    operator, other = condition.operator, condition.other
    if operator in ("equals", "not_equals"):
        return same(value, other) == (operator == "equals")
    if operator == "in":
        return any(same(value, one) for one in other)
    if _kind_of(value) != _kind_of(other) or _kind_of(value) not in ("a number", "a text"):
        raise BadInput(f"{operator} compares two numbers or two texts; this is {_kind_of(value)}.")
    return bool(value > other) if operator == "greater_than" else bool(value < other)


def _filled(value: Any, values: Mapping[str, Any], budget: Budget) -> Any:
    if isinstance(value, str):
        return _filled_text(value, values, budget) if has_template(value) else value
    if isinstance(value, Mapping):
        return {name: _filled(inner, values, budget) for name, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, values, budget) for inner in value]
    return value


def _filled_text(text: str, values: Mapping[str, Any], budget: Budget) -> Any:
    try:
        template: Template = read_template(text, _NAMES)
        expression = template.whole()
        if expression is None:
            return template.render(values, write_text, budget)
        value = value_of(expression, values)
        budget.spend(len(json_text(value)), expression)
    except BadTemplate as bad:
        raise BadInput(bad.detail) from None
    return value


def _path_fault(expression: Expression, allowed: Allowed) -> tuple[str, str] | None:
    path: Sequence[str | int] = expression.path or ("input",)
    first, rest = path[0], path[1:]
    if first == "steps":
        return _step_fault(rest, allowed)
    if first in ("item", "index") and not allowed.item:
        return "bad_template", f"{first} is there only in the input of a step with for_each."
    if first == "run":
        members = (*RUN_MEMBERS, *FAILURE_MEMBERS) if allowed.failure else RUN_MEMBERS
        if not rest or rest[0] not in members or (len(rest) > 1 and rest[0] != "error"):
            return "bad_template", f"Of run there are {', '.join(members)}."
    return None


def _step_fault(rest: Sequence[str | int], allowed: Allowed) -> tuple[str, str] | None:
    if not rest:
        return "bad_template", "Name a step, such as steps.extract.output."
    if str(rest[0]) not in allowed.steps:
        return "not_upstream", f"The step {str(rest[0])[:50]!r} is not above this one: it may not have ended by then."
    if len(rest) < 2 or rest[1] not in STEP_MEMBERS or (len(rest) > 2 and rest[1] not in _DEEP):
        return "bad_template", f"Of a step there are {', '.join(STEP_MEMBERS)}."
    return None


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a text"
    return "a list" if isinstance(value, list) else "an object"
