"""The retry policy of a job: when to try again, and after how long. Pure.

`retry_on` and `never_on` hold outcomes ("failed", "timed_out", "lost"), error classes ("connect_failed"; for Python
tasks also the names of exceptions), statuses ("http_503") or a class of them ("http_5xx"). `never_on` wins; an empty
`retry_on` means every failure that may be retried, but for time-outs of requests that may have had their effect
(`outcome_unknown`: HTTP by POST or PATCH): those are repeated only where `retry_on` names them.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from kernel.backoff import Jitter, delay_s, with_jitter
from kernel.errors import Faults

MAX_ATTEMPTS = 100
MAX_DELAY_S = 86_400
RETRY_AFTER_MAX_S = 86_400
DEFAULTS: dict[str, Any] = {
    "max_attempts": 3,
    "backoff": "exponential",
    "base_s": 2,
    "factor": 2,
    "max_s": 600,
    "jitter": "full",
    "retry_on": [],
    "never_on": [],
}
MAX_NAMES, MAX_NAME_CHARS = 50, 80
OUTCOMES = ("failed", "timed_out", "lost")
# What executors, workers and the reconciler call errors.
ERROR_CLASSES = (
    "http_status", "timeout", "address_blocked", "dns_failed", "tls_failed", "connect_failed", "connection_lost",
    "bad_response", "bad_target", "internal", "soft_timeout", "unknown_task", "bad_result", "bad_payload",
    "token_failed", "secret_missing", "secret_unreadable",
    "worker_lost", "deadline_passed", "not_prepared", "connect_timeout", "too_many_redirects", "bad_location",
    "redirect_refused", "bad_template", "bad_json", "condition_unmet",
    "exit_code", "oom_killed", "command_failed", "image_missing", "image_refused", "container_failed", "container_gone",
)  # fmt: skip
_STATUS = re.compile(r"http_[1-5](?:[0-9]{2}|xx)")
_STATUS_ALONE = re.compile(r"[1-5](?:[0-9]{2}|xx)")
_EXCEPTION_ENDS = ("Error", "Exception", "Timeout")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`max_attempts` counts all tries, the first included."""

    max_attempts: int
    backoff: str
    base_s: float
    factor: float
    max_s: float
    jitter: Jitter
    retry_on: frozenset[str]
    never_on: frozenset[str]

    def wants_retry(self, names: Iterable[str]) -> bool:
        """Whether a failure that goes by these names may be tried again under this policy."""
        known = set(names)
        if known & self.never_on:
            return False
        return not self.retry_on or bool(known & self.retry_on)

    def asks_for(self, names: Iterable[str]) -> bool:
        """Whether `retry_on` names this failure: a wish, where no list means what is right for most."""
        return bool(set(names) & self.retry_on)

    def wait_s(self, failures: int, *, retry_after_s: float | None = None) -> float:
        """Seconds before the try after `failures` failures (from 1). What the receiver asked for is honoured."""
        plain = delay_s(
            failures, base_s=self.base_s, factor=self.factor, max_s=self.max_s, fixed=self.backoff == "fixed"
        )
        wait = with_jitter(plain, self.jitter)
        if retry_after_s is not None:
            wait = max(wait, min(retry_after_s, RETRY_AFTER_MAX_S))
        return wait


def retry_from_json(data: Mapping[str, Any]) -> RetryPolicy:
    """The policy of stored, already validated JSON."""
    full = {**DEFAULTS, **data}
    return RetryPolicy(
        max_attempts=int(full["max_attempts"]),
        backoff=str(full["backoff"]),
        base_s=float(full["base_s"]),
        factor=float(full["factor"]),
        max_s=float(full["max_s"]),
        jitter=cast("Jitter", full["jitter"]),
        retry_on=frozenset(full["retry_on"]),
        never_on=frozenset(full["never_on"]),
    )


def retry_changed(policy: RetryPolicy, changes: Mapping[str, Any]) -> RetryPolicy:
    """The policy with what a step of a workflow says instead; already validated JSON."""
    own = retry_from_json(changes)
    return replace(policy, **{name: getattr(own, name) for name in changes})


def retry_from_api(data: object, faults: Faults, *, pointer: str = "/retry", kind: str = "http") -> dict[str, Any]:
    """The complete policy of an API body, as JSON to store. Every fault is added to `faults`.

    Jobs of kind python may also name exceptions of their tasks.
    """
    if not isinstance(data, Mapping):
        faults.add(pointer, "not_an_object", 'Give an object such as {"max_attempts": 3}.')
        return dict(DEFAULTS)
    for name in data:
        if name not in DEFAULTS:
            faults.add(f"{pointer}/{name}", "unknown_field", f"Known fields: {', '.join(DEFAULTS)}.")
    full = {**DEFAULTS, **{name: value for name, value in data.items() if name in DEFAULTS}}
    _number(full, "max_attempts", 1, MAX_ATTEMPTS, faults, pointer, whole=True)
    _number(full, "base_s", 0, MAX_DELAY_S, faults, pointer)
    _number(full, "factor", 1, 100, faults, pointer)
    _number(full, "max_s", 0, MAX_DELAY_S, faults, pointer)
    if full["backoff"] not in ("exponential", "fixed"):
        faults.add(f"{pointer}/backoff", "unknown_value", "Use exponential or fixed.")
    if full["jitter"] not in ("none", "full", "equal"):
        faults.add(f"{pointer}/jitter", "unknown_value", "Use none, full or equal.")
    for name in ("retry_on", "never_on"):
        _names(full[name], kind, faults, f"{pointer}/{name}")
    return full


def _names(value: object, kind: str, faults: Faults, pointer: str) -> None:
    """Faults of a list of names: one that no failure goes by would do nothing, without a word."""
    names: list[Any] = value if isinstance(value, list) and len(value) <= MAX_NAMES else [None]
    if not all(isinstance(name, str) and 0 < len(name) <= MAX_NAME_CHARS for name in names):
        faults.add(pointer, "not_a_list", f'Give at most {MAX_NAMES} names such as "timed_out" or "http_503".')
        return
    for place, name in enumerate(names):
        if name in OUTCOMES or name in ERROR_CLASSES or _STATUS.fullmatch(name):
            continue
        if kind == "pull":  # the tenant's own workers name their failures themselves
            continue
        if kind != "python" or not _is_exception(name):
            faults.add(f"{pointer}/{place}", "unknown_value", f"No failure goes by {name!r}{_hint(name, kind)}")


def _is_exception(name: str) -> bool:
    return name.isidentifier() and (name.endswith(_EXCEPTION_ENDS) or name != name.lower())


def _hint(name: str, kind: str) -> str:
    plain = name.strip().lower().replace("-", "_").replace(" ", "_")
    if _STATUS_ALONE.fullmatch(plain):
        return f"; did you mean http_{plain}?"
    near = [plain] if _STATUS.fullmatch(plain) else difflib.get_close_matches(plain, (*OUTCOMES, *ERROR_CLASSES), n=1)
    if near:
        return f"; did you mean {near[0]}?"
    also = " or an exception such as ValueError" if kind == "python" else ""
    known = ", ".join((*OUTCOMES, *ERROR_CLASSES))
    return f". Use an outcome or error class ({known}), http_503, http_5xx{also}."


def _number(
    full: dict[str, Any], name: str, least: float, most: float, faults: Faults, pointer: str, *, whole: bool = False
) -> None:
    value = full[name]
    fits = isinstance(value, int) if whole else isinstance(value, (int, float))
    if isinstance(value, bool) or not fits or not least <= value <= most:
        kind = "a whole number" if whole else "a number"
        faults.add(f"{pointer}/{name}", "out_of_range", f"Give {kind} from {least} to {most}.")
