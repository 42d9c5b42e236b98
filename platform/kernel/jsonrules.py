"""JSON values that can be stored and sent on: bounded depth, no NUL, whole characters. And JSON merge patch.

PostgreSQL's jsonb has no character NUL, UTF-8 has no halves of characters, and deep nesting breaks readers further
down: all are refused where a value comes in.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from kernel.errors import FieldError

MAX_DEPTH = 64
MAX_FAULTS = 20
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_Place = tuple["_Place | None", object]  # of a value: its parent's, and its name there


def value_faults(value: Any, pointer: str = "") -> list[FieldError]:
    """What of a decoded JSON value can't be stored; at most MAX_FAULTS. Does not recurse."""
    if _is_plain(value):
        return []
    faults: list[FieldError] = []
    if isinstance(value, str):
        return [_bad_text(pointer)] if _UNSTORABLE.search(value) else []
    waiting: list[tuple[dict[str, Any] | list[Any], _Place | None, int]] = []
    if isinstance(value, dict | list):
        waiting.append((value, None, 0))
    while waiting and len(faults) < MAX_FAULTS:
        one, place, depth = waiting.pop()
        if depth >= MAX_DEPTH:
            where = _pointer_of(place, pointer)
            faults.append(FieldError(where[:200], "too_deep", f"Nest at most {MAX_DEPTH} levels."))
            continue
        members: Iterable[tuple[Any, Any]] = one.items() if isinstance(one, dict) else enumerate(one)
        for name, inner in members:  # pointers are only made where one is needed
            if isinstance(name, str) and _UNSTORABLE.search(name):
                where = _pointer_of(place, pointer)
                faults.append(FieldError(where, "invalid_character", "A name must not hold NUL."))
            elif isinstance(inner, str):
                if _UNSTORABLE.search(inner):
                    faults.append(_bad_text(_pointer_of((place, name), pointer)))
            elif isinstance(inner, dict | list) and (inner or depth + 1 >= MAX_DEPTH):
                waiting.append((inner, (place, name), depth + 1))
    return faults[:MAX_FAULTS]


def _is_plain(value: Any) -> bool:
    """Whether there is nothing to find, seen at a tenth of the cost of finding it."""
    try:
        if b"\\u0000" in orjson.dumps(value):
            return False
    except TypeError:  # halves of characters, deep nesting, whole numbers beyond 64 bits
        return False
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return True
    return False


def _pointer_of(place: "_Place | None", root: str) -> str:
    names: list[object] = []
    while place is not None:
        place, name = place
        names.append(name)
    for name in reversed(names):
        root = pointer_to(root, name)
    return root


def _bad_text(pointer: str) -> FieldError:
    return FieldError(pointer, "invalid_character", "A text must not hold NUL or half a character.")


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


def patched(given: Mapping[str, Any], patch: Any) -> Any:
    """What a definition becomes by a merge patch, for its reader to check.

    A null for a member that the definition does not have stays, so that a name which nobody knows is refused with
    null as well as with a value.
    """
    merged = merge_patch(given, patch)
    if isinstance(patch, Mapping):
        merged |= {name: None for name, value in patch.items() if value is None and name not in given}
    return merged
