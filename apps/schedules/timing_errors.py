"""How the time code refuses: every fault that was found, each with its place and a sentence that helps."""

from kernel.errors import FieldError, InvalidInput

__all__ = ["FieldError", "TimingInvalid"]


class TimingInvalid(InvalidInput):
    """A trigger, zone, window or policy can't be accepted; `errors` names every fault."""

    code = "invalid_schedule"

    @classmethod
    def one(cls, pointer: str, code: str, detail: str) -> "TimingInvalid":
        return cls([FieldError(pointer, code, detail)])

    def __str__(self) -> str:
        return "; ".join(f"{error.pointer}: {error.detail}" for error in self.errors) or self.detail
