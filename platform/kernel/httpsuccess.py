"""What makes an answer a success: its status, and when asked for a condition on its JSON. Pure.

    "success_status": [200, "2xx", "200-204"]
    "success_if": {"pointer": "/status", "equals": "ok"}
    "success_if": {"all": [{"pointer": "/done", "equals": true}, {"any": [...]}, {"not": {...}}]}

A pointer (RFC 6901) names a value of the answer; "" is all of it. It is compared as JSON: 1 and 1.0 are equal, 1 and
true are not. A value that is not there fulfils nothing but {"exists": false}.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_RANGES = 50
MAX_CONDITIONS = 50
MAX_DEPTH = 5
MAX_POINTER_CHARS = 500
MAX_VALUE_CHARS = 1_000
TESTS = ("equals", "in", "exists", "contains", "less", "greater")
GROUPS = ("all", "any", "not")
MISSING: Any = object()

_INDEX = re.compile(r"0|[1-9][0-9]{0,5}")  # RFC 6901: no leading zeros
_RANGE = re.compile(r"([2-5])xx|([2-5][0-9]{2})-([2-5][0-9]{2})|([2-5][0-9]{2})")


@dataclass(frozen=True, slots=True)
class Fault:
    """`part` is a JSON pointer below the condition or list."""

    part: str
    code: str
    detail: str


def read_statuses(statuses: Any) -> frozenset[int] | Fault:
    """The statuses that a list of codes, classes and ranges names."""
    refused = Fault("", "invalid", 'Name status codes from 200 to 599, such as [200, "2xx", "200-204"].')
    if not isinstance(statuses, list | tuple) or not 0 < len(statuses) <= MAX_RANGES:
        return refused
    found: set[int] = set()
    for status in statuses:
        if isinstance(status, int) and not isinstance(status, bool) and 200 <= status <= 599:
            found.add(status)
        elif isinstance(status, str) and (matched := _RANGE.fullmatch(status)):
            hundred, first, last, one = matched.groups()
            low = int(hundred) * 100 if hundred else int(first or one)
            high = low + 99 if hundred else int(last or one)
            if low > high:
                return refused
            found |= set(range(low, high + 1))
        else:
            return refused
    return frozenset(found)


def condition_faults(condition: Any) -> list[Fault]:
    """All faults of a condition as its owner writes it."""
    faults: list[Fault] = []
    _check(condition, "", 1, faults, [MAX_CONDITIONS])
    return faults


def is_fulfilled(condition: Mapping[str, Any], answer: Any) -> bool:
    """Whether a checked condition holds for a decoded answer."""
    if "all" in condition:
        return all(is_fulfilled(one, answer) for one in condition["all"])
    if "any" in condition:
        return any(is_fulfilled(one, answer) for one in condition["any"])
    if "not" in condition:
        return not is_fulfilled(condition["not"], answer)
    value = value_at(answer, condition["pointer"])
    (test,) = condition.keys() - {"pointer"}
    wanted = condition[test]
    if test == "exists":
        return (value is not MISSING) is wanted
    if value is MISSING:
        return False
    match test:
        case "equals":
            return is_equal(value, wanted)
        case "in":
            return any(is_equal(value, one) for one in wanted)
        case "contains":
            if isinstance(value, str):
                return isinstance(wanted, str) and wanted in value
            return isinstance(value, list) and any(is_equal(one, wanted) for one in value)
        case "less":
            return _is_number(value) and value < wanted
        case _:
            return _is_number(value) and value > wanted


def value_at(answer: Any, pointer: str) -> Any:
    """The value that a pointer names; MISSING when there is none."""
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(answer, dict):
            answer = answer.get(name, MISSING)
        elif isinstance(answer, list) and _INDEX.fullmatch(name):
            answer = answer[int(name)] if int(name) < len(answer) else MISSING
        else:
            return MISSING
        if answer is MISSING:
            return MISSING
    return answer


def is_equal(one: Any, other: Any) -> bool:
    """Equal as JSON: true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_equal(one[name], other[name]) for name in one)
    return bool(one == other)


def _check(condition: Any, part: str, depth: int, faults: list[Fault], left: list[int]) -> None:
    left[0] -= 1
    if depth > MAX_DEPTH or left[0] < 0:
        if left[0] >= -1 or depth > MAX_DEPTH:
            detail = f"A condition may have {MAX_CONDITIONS} parts in {MAX_DEPTH} levels."
            faults.append(Fault(part, "too_large", detail))
        return
    if not isinstance(condition, Mapping):
        faults.append(Fault(part, "invalid", 'Give an object such as {"pointer": "/status", "equals": "ok"}.'))
        return
    names = set(condition)
    for group in GROUPS:
        if group in names:
            if len(names) > 1:
                faults.append(Fault(part, "invalid", f"Beside {group!r} nothing else may stand."))
            elif group == "not":
                _check(condition["not"], f"{part}/not", depth + 1, faults, left)
            else:
                _check_group(condition[group], f"{part}/{group}", depth, faults, left)
            return
    _check_test(condition, part, faults)


def _check_group(inner: Any, part: str, depth: int, faults: list[Fault], left: list[int]) -> None:
    if not isinstance(inner, list) or not inner:
        faults.append(Fault(part, "invalid", "Give a list of at least one condition."))
        return
    for number, one in enumerate(inner[: MAX_CONDITIONS + 1]):
        _check(one, f"{part}/{number}", depth + 1, faults, left)
        if left[0] < 0:
            return


def _check_test(condition: Mapping[str, Any], part: str, faults: list[Fault]) -> None:
    for name in sorted(map(str, condition.keys() - {"pointer", *TESTS}))[:10]:
        known = ", ".join(("pointer", *TESTS, *GROUPS))
        faults.append(Fault(f"{part}/{_step(name)}", "unknown_field", f"There is no such field. Known: {known}."))
    tests = [test for test in TESTS if test in condition]
    if len(tests) != 1:
        faults.append(Fault(part, "invalid", f"Give one of {', '.join(TESTS)}."))
    pointer = condition.get("pointer")
    if not isinstance(pointer, str) or not _is_pointer(pointer):
        detail = 'Give a JSON pointer: "" for all of the answer, or such as "/items/0/status".'
        faults.append(Fault(f"{part}/pointer", "invalid", detail))
    for test in tests:
        if problem := _problem_of(test, condition[test]):
            faults.append(Fault(f"{part}/{test}", "invalid", problem))


def _problem_of(test: str, wanted: Any) -> str:
    if test == "exists":
        return "" if isinstance(wanted, bool) else "exists is true or false."
    if test in ("less", "greater"):
        return "" if _is_number(wanted) else f"{test} needs a number."
    if test == "in" and (not isinstance(wanted, list) or not 0 < len(wanted) <= MAX_CONDITIONS):
        return f"in needs a list of 1 to {MAX_CONDITIONS} values."
    return "" if len(repr(wanted)) <= MAX_VALUE_CHARS else f"Give at most {MAX_VALUE_CHARS:,} characters."


def _is_pointer(pointer: str) -> bool:
    wellformed = pointer == "" or pointer.startswith("/")
    return wellformed and len(pointer) <= MAX_POINTER_CHARS and not re.search("~(?![01])", pointer)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _step(name: str) -> str:
    return name[:80].replace("~", "~0").replace("/", "~1")
