"""JSON values that can be stored and sent on: bounded depth, no NUL, whole characters. And JSON merge patch.

PostgreSQL's jsonb has no character NUL, UTF-8 has no halves of characters, and deep nesting breaks readers further
down: all are refused where a value comes in.
"""

import re
from collections.abc import Mapping
from typing import Any

from kernel.errors import FieldError

MAX_DEPTH = 64
MAX_FAULTS = 20
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def value_faults(value: Any, pointer: str = "") -> list[FieldError]:
    """What of a decoded JSON value can't be stored; at most MAX_FAULTS. Does not recurse."""
    faults: list[FieldError] = []
    waiting: list[tuple[Any, str, int]] = [(value, pointer, 0)]
    while waiting and len(faults) < MAX_FAULTS:
        one, where, depth = waiting.pop()
        if isinstance(one, str):
            if _UNSTORABLE.search(one):
                faults.append(FieldError(where, "invalid_character", "A text must not hold NUL or half a character."))
        elif isinstance(one, dict | list):
            if depth >= MAX_DEPTH:
                faults.append(FieldError(where[:200], "too_deep", f"Nest at most {MAX_DEPTH} levels."))
            elif isinstance(one, dict):
                for name, inner in one.items():
                    if _UNSTORABLE.search(name):
                        faults.append(FieldError(where, "invalid_character", "A name must not hold NUL."))
                    else:
                        waiting.append((inner, pointer_to(where, name), depth + 1))
            else:
                waiting.extend((inner, f"{where}/{index}", depth + 1) for index, inner in enumerate(one))
    return faults


def pointer_to(parent: str, name: object) -> str:
    """The JSON pointer (RFC 6901) of a member; long names are cut, since they come back in answers."""
    return f"{parent}/{str(name)[:80].replace('~', '~0').replace('/', '~1')}"


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7396: members of an object are replaced one by one, null removes one, anything else replaces the whole."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged
