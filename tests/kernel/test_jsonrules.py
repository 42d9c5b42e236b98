"""What of a JSON value can't be stored, and where it is."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kernel.jsonrules import MAX_DEPTH, MAX_FAULTS, value_faults


def nested(levels: int, inner: Any = None) -> Any:
    """`levels` lists in one another."""
    value: Any = [] if inner is None else [inner]
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"a": [1, "b", None, {"c": 1.5}]}, []),
        ("plain", []),
        ("a\0b", [("", "invalid_character")]),
        ("a\\u0000b", []),
        ({"a": "half \ud800"}, [("/a", "invalid_character")]),
        ({"a": [{"b/c": "\0"}]}, [("/a/0/b~1c", "invalid_character")]),
        ({"a": {"\0": 1}}, [("/a", "invalid_character")]),
        ({"a": 2**70, "b": ["\0"]}, [("/b/0", "invalid_character")]),
        ({"a": 2**70}, []),
        (nested(MAX_DEPTH), []),
        (nested(MAX_DEPTH, 1), []),
        (nested(MAX_DEPTH + 1), [("/0" * MAX_DEPTH, "too_deep")]),
        (nested(MAX_DEPTH + 1, 1), [("/0" * MAX_DEPTH, "too_deep")]),
        (nested(900), [("/0" * MAX_DEPTH, "too_deep")]),
    ],
)
def test_each_fault_is_found_at_its_place(value: Any, found: list[tuple[str, str]]) -> None:
    assert [(one.pointer, one.code) for one in value_faults(value)] == found


def test_faults_are_bounded_and_so_is_the_time() -> None:
    assert len(value_faults(["\0"] * 1_000)) == MAX_FAULTS
    many: list[Any] = [[1] for _ in range(100_000)]
    began = time.thread_time()
    assert value_faults({"payload": many}) == []
    assert value_faults({"payload": [*many, "\0"]})[0].pointer == "/payload/100000"
    assert time.thread_time() - began < 1
