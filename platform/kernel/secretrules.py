"""How a job names a tenant's secrets: `{"secret": "NAME"}` where a text is expected. Pure; knows names, not values.

A reference may carry text around the value: `{"secret": "API_TOKEN", "prefix": "Token "}`. In members that take any
JSON (a body) an object is a reference when it has these members only and its name is valid; everything else is data.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kernel.errors import FieldError
from kernel.jsonrules import pointer_to

NAME_PATTERN = r"[A-Za-z_][A-Za-z0-9_.-]{0,63}"
MAX_AFFIX_CHARS = 4_096  # as long as a URL
# The platform's own: credentials that were written in a job itself (apps.secrets.literals). No tenant can name them.
INTERNAL_PATTERN = r"@job\.[0-9a-f]{32}"
STAND_IN = "x"  # for a value that only the worker knows, where a target is judged without it
_NAME = re.compile(NAME_PATTERN)
_INTERNAL = re.compile(INTERNAL_PATTERN)
_MEMBERS = frozenset({"secret", "prefix", "suffix"})


class SecretMissing(LookupError):
    """A value was asked for that nobody gave. Holds the name, never a value."""

    def __init__(self, name: str) -> None:
        super().__init__(f"The secret {shown_name(name)} does not exist.")
        self.name = name


def is_name(text: Any) -> bool:
    """Whether a secret may be called so."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def is_internal(name: Any) -> bool:
    """Whether this names a value that the platform keeps for a job, and that nobody may name."""
    return isinstance(name, str) and _INTERNAL.fullmatch(name) is not None


def shown_name(name: str) -> str:
    """How a secret is called in messages."""
    return "that is kept for this job" if is_internal(name) else name


def is_reference(value: Any) -> bool:
    """Whether this names a secret, correctly."""
    return (
        isinstance(value, Mapping)
        and (is_name(value.get("secret")) or is_internal(value.get("secret")))
        and value.keys() <= _MEMBERS
        and all(isinstance(value.get(name, ""), str) for name in ("prefix", "suffix"))
    )


def secret_names(value: Any) -> set[str]:
    """The names of all secrets that a decoded JSON value refers to."""
    return {name for name, _ in reference_pointers(value)}


def reference_pointers(value: Any, pointer: str = "") -> list[tuple[str, str]]:
    """(name, JSON pointer) of all references in a decoded JSON value."""
    if is_reference(value):
        return [(str(value["secret"]), pointer)]
    if isinstance(value, Mapping):
        return [one for name, part in value.items() for one in reference_pointers(part, pointer_to(pointer, name))]
    if isinstance(value, list | tuple):
        return [one for at, part in enumerate(value) for one in reference_pointers(part, f"{pointer}/{at}")]
    return []


def fill(value: Any, secrets: Mapping[str, str]) -> Any:
    """The value with every reference replaced by its text. Raises SecretMissing; what holds no reference is kept."""
    if is_reference(value):
        name = value["secret"]
        if name not in secrets:
            raise SecretMissing(name)
        return f"{value.get('prefix', '')}{secrets[name]}{value.get('suffix', '')}"
    if isinstance(value, Mapping):
        return {name: fill(one, secrets) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [fill(one, secrets) for one in value]
    return value


def with_stand_ins(value: Any) -> Any:
    """The value with every reference replaced by a text of its shape, to be judged as a target that is filled."""
    return fill(value, _Anything())


def reference_faults(value: Any, pointer: str) -> list[FieldError]:
    """What is wrong with `value` where a text or a reference is expected; a text is right here."""
    if isinstance(value, str):
        return []
    if not isinstance(value, Mapping) or "secret" not in value:
        return [FieldError(pointer, "type", 'must be a text, or name a secret: {"secret": "NAME"}.')]
    faults = []
    if not is_name(value["secret"]) and not is_internal(value["secret"]):
        detail = "A secret's name has 1 to 64 letters, digits and _ . - and begins with a letter or _."
        faults.append(FieldError(f"{pointer}/secret", "invalid_name", detail))
    for name in ("prefix", "suffix"):
        text = value.get(name, "")
        if not isinstance(text, str) or len(text) > MAX_AFFIX_CHARS:
            detail = f"must be a text of at most {MAX_AFFIX_CHARS:,} characters."
            faults.append(FieldError(f"{pointer}/{name}", "type", detail))
        elif "{{" in text:
            faults.append(FieldError(f"{pointer}/{name}", "invalid", "No template is filled in beside a secret."))
    if value.keys() - _MEMBERS:
        faults.append(FieldError(pointer, "unknown_field", "A reference has secret, and maybe prefix and suffix."))
    return faults


class _Anything(Mapping[str, str]):
    """Has a stand-in under every name."""

    def __getitem__(self, name: str) -> str:
        return STAND_IN

    def __contains__(self, name: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0
