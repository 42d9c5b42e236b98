"""Limits that a job sets for its own runs: so many at once for each value of a key, and so many in a time.

A concurrency key names a label or a place in the payload (JSON pointer, RFC 6901). Runs whose value there is the same
text share a flow of their own, of which at most `max` are queued or running. A run without such a value is not limited
by it. A rate limit is a token bucket: `burst` starts at once, refilled by `runs` in `per_s` seconds.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from kernel.errors import Faults
from kernel.jsonrules import pointer_to

KEY_CHARS = 200  # of a key as it is shown; what is longer is cut, and still told apart by all of it
POINTER_CHARS, POINTER_STEPS = 200, 10
KEY_MAX = 100_000
RATE_RUNS_MAX, RATE_BURST_MAX, RATE_PER_S_MAX = 1_000_000, 100_000, 86_400

_KEY_FIELDS, _RATE_FIELDS = ("label", "payload", "max"), ("runs", "per_s", "burst")
_LABEL_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?")
_UNSHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_ODD_NUMBER = re.compile(r"\s*[+-]?\d+")  # PostgreSQL takes such a step for an index, RFC 6901 does not
_WHOLE = range(-(2**63), 2**64)
_INDEX = re.compile(r"0|[1-9]\d*")


class Flow(NamedTuple):
    """What a run queues behind inside its tenant: its job, or one value of the job's concurrency key."""

    flow: UUID
    limit: int | None = None  # most of this key's value queued or running
    key: str | None = None  # the value as it is shown


def concurrency_key(given: Any, faults: Faults) -> dict[str, Any] | None:
    """The rule as it is stored; None without one. Faults are noted at /concurrency_key."""
    at = "/concurrency_key"
    if given is None:
        return None
    if not isinstance(given, Mapping):
        faults.add(at, "type", 'must be an object such as {"label": "customer", "max": 1}.')
        return None
    _only(given, _KEY_FIELDS, at, faults)
    label, pointer = given.get("label"), given.get("payload")
    most = _whole(given, "max", KEY_MAX, at, faults, default=1)
    if label is not None and pointer is not None:
        faults.add(at, "contradiction", "Give label or payload, not both; in a merge patch null removes one.")
    elif label is None and pointer is None:
        faults.add(at, "required", "Give label (its name) or payload (a JSON pointer): what tells the runs apart.")
    elif label is not None:
        if not isinstance(label, str) or not _LABEL_NAME.fullmatch(label):
            detail = (
                "must be the name of a label: 1 to 63 letters, digits and . _ / -, with a letter or digit at its ends."
            )
            faults.add(f"{at}/label", "invalid_name", detail)
        return {"label": label, "max": most}
    else:
        wrong = pointer_fault(pointer)
        if wrong:
            faults.add(f"{at}/payload", "bad_pointer", wrong)
        return {"payload": pointer, "max": most}
    return None


def rate_limit(given: Any, faults: Faults) -> dict[str, int] | None:
    """The limit as it is stored, with its burst; None without one. Faults are noted at /rate_limit."""
    at = "/rate_limit"
    if given is None:
        return None
    if not isinstance(given, Mapping):
        faults.add(at, "type", 'must be an object such as {"runs": 100, "per_s": 60, "burst": 10}.')
        return None
    _only(given, _RATE_FIELDS, at, faults)
    runs = _whole(given, "runs", RATE_RUNS_MAX, at, faults)
    per_s = _whole(given, "per_s", RATE_PER_S_MAX, at, faults)
    burst = _whole(given, "burst", RATE_BURST_MAX, at, faults, default=default_burst(runs))
    return {"runs": runs, "per_s": per_s, "burst": burst}


def default_burst(runs: int) -> int:
    """How many of so many runs may start at once when nobody says it."""
    return max(1, min(RATE_BURST_MAX, runs // 10))


def pointer_fault(pointer: object) -> str:
    """What is wrong with a pointer into a payload; empty when nothing is."""
    if not isinstance(pointer, str) or not pointer.startswith("/"):
        return 'must be a JSON pointer into the payload, such as "/customer/id".'
    if len(pointer) > POINTER_CHARS or pointer.count("/") > POINTER_STEPS:
        return f"must have at most {POINTER_CHARS} characters and {POINTER_STEPS} steps."
    if _UNSHOWN.search(pointer) or re.search("~(?![01])", pointer) or re.search("[\ud800-\udfff]", pointer):
        return "must be one line, in which ~0 stands for ~ and ~1 for /."
    for step in steps_of(pointer):
        if _ODD_NUMBER.fullmatch(step) and not _INDEX.fullmatch(step):
            return f"must not have {step!r} as a step: places in a list are 0, 1, 2 and so on."
    return ""


def steps_of(pointer: str) -> list[str]:
    """The members and places that a pointer goes through."""
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def value_at(document: Any, pointer: str) -> Any:
    """What a pointer leads to; None when there is nothing."""
    for step in steps_of(pointer):
        if isinstance(document, Mapping):
            document = document.get(step)
        elif isinstance(document, list) and _INDEX.fullmatch(step) and len(step) < 10 and int(step) < len(document):
            document = document[int(step)]
        else:
            return None
    return document


def value_of(rule: Mapping[str, Any], *, labels: Mapping[str, str], payload: Any) -> Any:
    """The value of a run's key. `labels` are the job's, the schedule's and its own, of which later ones win."""
    if "label" in rule:
        return labels.get(rule["label"])
    return value_at(payload, rule["payload"])


def flow_of(job_id: UUID, rule: Mapping[str, Any] | None, value: Any) -> Flow:
    """The flow of a run whose key has this value. Texts, whole numbers, true and false are values; others are none."""
    if rule is None or not _is_value(value):
        return Flow(job_id)
    text = ("true" if value else "false") if isinstance(value, bool) else str(value)
    whole = f"{rule.get('label') or rule.get('payload')}={text}"
    shown = _UNSHOWN.sub(" ", whole[: KEY_CHARS + 1])
    return Flow(uuid5(job_id, whole), rule["max"], shown if len(shown) <= KEY_CHARS else f"{shown[: KEY_CHARS - 1]}…")


def _is_value(value: Any) -> bool:
    return value != "" if isinstance(value, str) else isinstance(value, int) and value in _WHOLE


def _only(given: Mapping[str, Any], known: tuple[str, ...], at: str, faults: Faults) -> None:
    for name in [name for name in given if name not in known][:20]:
        faults.add(pointer_to(at, name), "unknown_field", f"There is no such field. Known: {', '.join(known)}.")


def _whole(
    given: Mapping[str, Any], name: str, high: int, at: str, faults: Faults, *, default: int | None = None
) -> int:
    value = given.get(name)
    if value is None and default is not None:
        return default
    if value is None:
        faults.add(f"{at}/{name}", "required", "This field is required.")
    elif isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= high:
        faults.add(f"{at}/{name}", "range", f"must be a whole number from 1 to {high:,}.")
    else:
        return value
    return 1
