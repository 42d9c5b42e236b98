"""What a step brought, without what its executor wrote beside it. Pure.

The result of an HTTP call has a status and headers beside its body, that of a container what it wrote to its streams.
Steps further down mean the body: as a JSON value where it is one, so that they can name its members.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

_OF_HTTP = frozenset({"status", "headers", "body", "base64", "truncated"})
_OF_CONTAINER = frozenset({"exit_code", "output", "output_is"})


def output_of(result: Any) -> Any:
    """The body of an HTTP result, parsed when it is JSON; the output of a container; else the result itself.

    Of a list, as a step with for_each has it, the outputs of all. Results are told by their members: whoever returns
    the same members means the same.
    """
    return [_one(inner) for inner in result] if isinstance(result, list) else _one(result)


class StepView(Mapping[str, Any]):
    """What templates see of a step: its members, and `output`, which is made only when somebody asks for it."""

    def __init__(self, members: Mapping[str, Any]) -> None:
        self._members = members

    def __getitem__(self, name: str) -> Any:
        return output_of(self._members["result"]) if name == "output" else self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*self._members, "output"))

    def __len__(self) -> int:
        return len(self._members) + 1


def _one(result: Any) -> Any:
    if not isinstance(result, Mapping):
        return result
    if result.keys() >= _OF_CONTAINER:
        return result["output"]
    if result.keys() >= _OF_HTTP:
        return result["body"] if result["base64"] else _parsed(result["body"])
    return result


def _parsed(body: Any) -> Any:
    try:
        return orjson.loads(body) if isinstance(body, str) else body
    except ValueError:
        return body
