"""How the time code refuses: every fault that was found, each with its place and a sentence that helps."""

from datetime import datetime

from kernel.errors import FieldError, InvalidInput

__all__ = ["FieldError", "NotFoundYet", "TimingInvalid"]


class NotFoundYet(Exception):
    """A bounded search looked as far as `searched_to` (inclusive) in vain, and does not know what lies beyond.

    A search forward goes on after that instant, one backward before it. Whoever takes this for "never" loses runs.
    """

    def __init__(self, searched_to: datetime) -> None:
        super().__init__(f"nothing up to {searched_to}")
        self.searched_to = searched_to


class TimingInvalid(InvalidInput):
    """A trigger, zone, window or policy can't be accepted; `errors` names every fault."""

    code = "invalid_schedule"

    @classmethod
    def one(cls, pointer: str, code: str, detail: str) -> "TimingInvalid":
        return cls([FieldError(pointer, code, detail)])

    def __str__(self) -> str:
        return "; ".join(f"{error.pointer}: {error.detail}" for error in self.errors) or self.detail
