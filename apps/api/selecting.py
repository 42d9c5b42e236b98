"""What every read of the API can do: answer only some members (`fields`), and only what has changed (`If-None-Match`).

An answer's tag is a digest of what it says, without the instants at which it was looked at. Where the resource has a
revision, the tag begins with it, so that it serves as If-Match, too.
"""

from collections.abc import Collection, Mapping
from functools import cache
from hashlib import blake2b
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.lists import SELECTING
from apps.api.renderers import encode
from kernel.errors import Faults

SELECTED = "application/vnd.shardbeat.selected+json"
MAX_FIELDS_CHARS = 1_000
DIGEST_BYTES = 8
ALWAYS = "id"
MOMENT = "as_of"


@cache  # lint: allow memory-has-a-bound: one for each answer of the API
def fields_of(answer: Any) -> frozenset[str]:
    """What can be selected of an answer, which a serializer describes; of a list's, the members of its items."""
    if not (isinstance(answer, type) and issubclass(answer, serializers.Serializer)):
        return frozenset()
    members = answer().fields
    items = members.get("items")
    if isinstance(items, serializers.ListSerializer) and isinstance(items.child, serializers.Serializer):
        return frozenset(items.child.fields)
    return frozenset(members)


def fields_asked(request: Request, known: Collection[str]) -> frozenset[str] | None:
    """The members that a request selects, None for all. InvalidInput."""
    given = request.query_params.get(SELECTING)
    if given is None or not known:
        return None
    faults = Faults()
    names = given.split(",") if len(given) <= MAX_FIELDS_CHARS else [""]
    if not set(names) <= set(known):
        faults.add(f"?{SELECTING}", "choice", f"must be of {', '.join(sorted(known))} (several with commas).")
    faults.raise_if_any()
    return frozenset((*names, ALWAYS))


def read_answer(request: Request, response: Response, fields: frozenset[str] | None) -> Response:
    """A read's answer: selected, tagged, or 304 without a body when the caller has it already."""
    if fields is not None:
        response.data = _selected(response.data, fields)
        response.content_type = SELECTED
    digest = blake2b(encode(_timeless(response.data)), digest_size=DIGEST_BYTES).hexdigest()
    revision = response.headers.get("ETag", "").strip('"')
    tag = f'"{revision}-{digest}"' if revision else f'W/"{digest}"'
    response.headers["ETag"] = tag
    if _matches(request.headers.get("If-None-Match", ""), tag):
        response.data = None
        response.status_code = 304
    return response


def _selected(data: Any, fields: frozenset[str]) -> Any:
    if not isinstance(data, Mapping):
        return data
    if isinstance(data.get("items"), list):
        return {**data, "items": [_selected(one, fields) for one in data["items"]]}
    return {name: value for name, value in data.items() if name in fields}


def _timeless(data: Any) -> Any:
    if not isinstance(data, Mapping):
        return data
    if isinstance(data.get("items"), list):
        return {**data, "items": [_timeless(one) for one in data["items"]]}
    return {name: value for name, value in data.items() if name != MOMENT} if MOMENT in data else data


def _matches(given: str, tag: str) -> bool:
    """By the weak comparison, which reads ask for."""
    if given.strip() == "*":
        return True
    wanted = tag.removeprefix("W/")
    return any(one.strip().removeprefix("W/") == wanted for one in given.split(",")) if given else False
