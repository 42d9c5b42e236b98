"""Errors with a stable code. The API turns them into problem documents, commands into an exit code and a sentence."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class FieldError:
    """One fault of one field: `pointer` is a JSON pointer into the body (RFC 6901)."""

    pointer: str
    code: str
    detail: str


class ShardbeatError(Exception):
    """Base of all errors that a caller may see. `code` never changes once published."""

    code = "error"
    status = 500

    def __init__(self, detail: str, **extra: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.extra: Mapping[str, Any] = extra


class InvalidInput(ShardbeatError):
    """The input can't be accepted; `errors` names every fault that was found."""

    code = "invalid"
    status = 400

    def __init__(self, errors: Iterable[FieldError], detail: str = "The request is not valid.") -> None:
        super().__init__(detail)
        self.errors = list(errors)


class NotFound(ShardbeatError):
    """Missing, or not for this actor: the same answer for both."""

    code = "not_found"
    status = 404


class Forbidden(ShardbeatError):
    """The actor is known and may see the object, but may not do this."""

    code = "forbidden"
    status = 403


class Conflict(ShardbeatError):
    """The object is in a state that does not allow this."""

    code = "conflict"
    status = 409


class Stale(ShardbeatError):
    """The caller's version of the object is not the current one."""

    code = "stale"
    status = 412


class QuotaExceeded(ShardbeatError):
    """A limit of the plan is reached. `extra` holds quota, limit and use."""

    code = "quota_exceeded"
    status = 429


class Overloaded(ShardbeatError):
    """All tenants together have as much unfinished work as the platform takes. `extra` holds retry_after_s."""

    code = "overloaded"
    status = 503


class BatchRefused(ShardbeatError):
    """Some items of an all-or-nothing batch can't be done, so none was. `refused` says which, by their number."""

    code = "batch_refused"
    status = 422

    def __init__(self, refused: Mapping[int, ShardbeatError]) -> None:
        super().__init__(f"{len(refused):,} of the items can't be done, so nothing was.")
        self.refused = refused


def code_of(error: ShardbeatError) -> str:
    """The code that a caller sees: the error's own, or that of its class."""
    return str(error.extra.get("code", error.code))


@dataclass(slots=True)
class Faults:
    """Collects field errors so that a caller is told all of them at once."""

    errors: list[FieldError] = field(default_factory=list)

    def add(self, pointer: str, code: str, detail: str) -> None:
        self.errors.append(FieldError(pointer, code, detail))

    def raise_if_any(self) -> None:
        if self.errors:
            raise InvalidInput(self.errors)
