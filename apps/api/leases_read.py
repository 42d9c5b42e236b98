"""Bodies of what holders say of their attempts: bounded, and every fault at once."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from apps.outcomes.remote import Said
from apps.schedules.input_fields import Fields, json_bytes
from apps.tickets.remote import LEASE_MAX_S
from kernel.errors import Faults, FieldError, InvalidInput, ShardbeatError
from kernel.runtokens import RunToken

RESULT_MAX_BYTES = 64 * 1_024
PROGRESS_MAX_BYTES = 2_048
DETAILS_MAX_BYTES = 2_048
MESSAGE_CHARS = 500
CLASS_CHARS = 100
RETRY_AFTER_MAX_S = 86_400
ITEMS_MAX = 100
ENDS = ("complete", "fail", "release")
_MEMBERS = {
    "complete": ("result",),
    "fail": ("error", "retryable", "retry_after_s"),
    "release": ("delay_s",),
}


def read_heartbeat(body: Any, *, token: bool = False) -> tuple[int | None, Any]:
    """(lease_s, progress)"""
    faults = Faults()
    fields = Fields(body, faults)
    fields.only(("lease_s", "progress", *(("token",) if token else ())))
    lease_s = fields.whole("lease_s", 1, LEASE_MAX_S, None)
    progress = _bounded(fields, "progress", PROGRESS_MAX_BYTES)
    faults.raise_if_any()
    return lease_s, progress


def read_result(token: RunToken, body: Any, *, also: Collection[str] = ()) -> Said:
    """How an attempt ended well."""
    faults = Faults()
    fields = Fields(body, faults)
    fields.only((*_MEMBERS["complete"], *also))
    result = _bounded(fields, "result", RESULT_MAX_BYTES)
    faults.raise_if_any()
    return Said(token, "succeeded", result=result)


def read_fail(token: RunToken, body: Any, *, also: Collection[str] = ()) -> Said:
    """How an attempt ended badly."""
    faults = Faults()
    fields = Fields(body, faults)
    fields.only((*_MEMBERS["fail"], *also))
    error = _error(fields)
    retryable = fields.data.get("retryable")
    if retryable is not None and not isinstance(retryable, bool):
        faults.add("/retryable", "type", "must be true or false.")
    retry_after_s = fields.whole("retry_after_s", 0, RETRY_AFTER_MAX_S, None)
    faults.raise_if_any()
    return Said(token, "failed", error=error, retryable=retryable is not False, retry_after_s=retry_after_s)


def read_release(token: RunToken, body: Any, *, also: Collection[str] = ()) -> Said:
    """That an attempt is given back."""
    faults = Faults()
    fields = Fields(body, faults)
    fields.only((*_MEMBERS["release"], *also))
    delay_s = fields.whole("delay_s", 0, RETRY_AFTER_MAX_S, None)
    faults.raise_if_any()
    error = {"class": "returned", "message": "Its holder gave it back."}
    return Said(token, "returned", error=error, retry_after_s=delay_s)


def read_completion(token: RunToken, body: Any) -> Said:
    """A result, or an error."""
    failed = isinstance(body, Mapping) and body.get("error") is not None
    read = read_fail if failed else read_result
    return read(token, body, also=("token", "error") if not failed else ("token",))


def token_member(body: Any) -> str:
    """The token of a body that brings one."""
    text = body.get("token") if isinstance(body, Mapping) else None
    if not isinstance(text, str):
        detail = "Send the run's token as the bearer's, or in this member together with an API key."
        raise InvalidInput([FieldError("/token", "required", detail)])
    return text


def read_items(body: Any, token_of: Callable[[str], RunToken]) -> list[Said | ShardbeatError]:
    """Each item, or what is wrong with it. InvalidInput when the list itself is."""
    faults = Faults()
    fields = Fields(body, faults)
    fields.only(("items",))
    items = fields.data.get("items")
    if not isinstance(items, list) or not 1 <= len(items) <= ITEMS_MAX:
        faults.add("/items", "type", f"must be a list of 1 to {ITEMS_MAX} items.")
    faults.raise_if_any()
    return [_item(one, token_of) for one in items or ()]


_READERS: dict[str, Callable[..., Said]] = {"complete": read_result, "fail": read_fail, "release": read_release}


def _item(body: Any, token_of: Callable[[str], RunToken]) -> Said | ShardbeatError:
    if not isinstance(body, Mapping):
        return InvalidInput([FieldError("", "not_an_object", "An item must be a JSON object.")])
    end = body.get("end", "complete")
    if end not in ENDS:
        return InvalidInput([FieldError("/end", "choice", f"must be one of {', '.join(ENDS)}.")])
    try:
        return _READERS[end](token_of(token_member(body)), body, also=("token", "end"))
    except ShardbeatError as problem:
        return problem


def _error(fields: Fields) -> dict[str, Any] | None:
    given = fields.data.get("error")
    if given is None:
        fields.faults.add("/error", "required", 'This field is required: {"message", "class", "details"}.')
        return None
    faults = Faults()
    inner = Fields(given, faults)
    inner.only(("message", "class", "details"))
    message = inner.text("message", most=MESSAGE_CHARS, required=True, lines=True)
    name = inner.text("class", most=CLASS_CHARS) or "failed"
    details = _bounded(inner, "details", DETAILS_MAX_BYTES)
    fields.faults.errors += [FieldError(f"/error{one.pointer}", one.code, one.detail) for one in faults.errors]
    return {"class": name, "message": message, **({} if details is None else {"details": details})}


def _bounded(fields: Fields, name: str, most: int) -> Any:
    value = fields.data.get(name)
    size = 0 if value is None else json_bytes(value)
    if size > most:
        fields.faults.add(f"/{name}", "too_large", f"has {size:,} bytes; {most:,} are allowed.")
    return value
