"""What makes an answer a success: statuses and conditions on its JSON."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.httprules import validate_target
from kernel.httpsuccess import Fault, condition_faults, is_fulfilled, read_statuses

URL = "https://hooks.example.com/a"
ANSWER: dict[str, Any] = {
    "status": "ok", "n": 3, "ratio": 0.5, "done": True, "none": None, "items": [{"id": 1}, {"id": 2}],
    "tags": ["a", "b"], "a/b": {"c~d": 1}, "": "empty name", "big": 10**20,
}  # fmt: skip


@pytest.mark.parametrize(
    ("statuses", "found"),
    [
        ([200], {200}),
        ([200, 404], {200, 404}),
        (["2xx"], set(range(200, 300))),
        (["200-204", 404, "5xx"], {200, 201, 202, 203, 204, 404, *range(500, 600)}),
        (["301"], {301}),
        (["200-200"], {200}),
    ],
)
def test_statuses(statuses: Any, found: set[int]) -> None:
    assert read_statuses(statuses) == frozenset(found)
    assert validate_target({"url": URL, "success_status": statuses}) == []


@pytest.mark.parametrize(
    "statuses",
    [
        *([], "2xx", [199], [600], ["1xx"], ["6xx"], ["204-200"], ["200-"], ["-200"], [True], [200.0], [None], [[200]]),
        *({}, 200, ["200-204-208"], ["2XX"], [" 200"], [200] * 51),
    ],
)
def test_bad_statuses(statuses: Any) -> None:
    assert isinstance(read_statuses(statuses), Fault)
    assert [fault.pointer for fault in validate_target({"url": URL, "success_status": statuses})] == ["/success_status"]


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ({"pointer": "/status", "equals": "ok"}, True),
        ({"pointer": "/status", "equals": "OK"}, False),
        ({"pointer": "/n", "equals": 3.0}, True),
        ({"pointer": "/done", "equals": 1}, False),
        ({"pointer": "/done", "equals": True}, True),
        ({"pointer": "/none", "equals": None}, True),
        ({"pointer": "/nothing", "equals": None}, False),
        ({"pointer": "/items/1/id", "equals": 2}, True),
        ({"pointer": "/items/2/id", "equals": 2}, False),
        ({"pointer": "/items/-", "exists": True}, False),
        ({"pointer": "/items/01", "equals": {"id": 2}}, False),
        ({"pointer": "/a~1b/c~0d", "equals": 1}, True),
        ({"pointer": "/", "equals": "empty name"}, True),
        ({"pointer": "", "exists": True}, True),
        ({"pointer": "/tags", "equals": ["a", "b"]}, True),
        ({"pointer": "/status", "in": ["done", "ok"]}, True),
        ({"pointer": "/n", "in": [True, "3"]}, False),
        ({"pointer": "/none", "exists": True}, True),
        ({"pointer": "/nothing", "exists": False}, True),
        ({"pointer": "/status/deeper", "exists": False}, True),
        ({"pointer": "/tags", "contains": "b"}, True),
        ({"pointer": "/status", "contains": "o"}, True),
        ({"pointer": "/n", "contains": "3"}, False),
        ({"pointer": "/n", "less": 4}, True),
        ({"pointer": "/n", "less": 3}, False),
        ({"pointer": "/ratio", "greater": 0.4}, True),
        ({"pointer": "/big", "greater": 1e19}, True),
        ({"pointer": "/status", "greater": 0}, False),
        ({"pointer": "/done", "greater": 0}, False),
        ({"not": {"pointer": "/status", "equals": "ok"}}, False),
        ({"all": [{"pointer": "/n", "equals": 3}, {"pointer": "/done", "equals": True}]}, True),
        ({"all": [{"pointer": "/n", "equals": 3}, {"pointer": "/done", "equals": False}]}, False),
        ({"any": [{"pointer": "/n", "equals": 4}, {"not": {"pointer": "/x", "exists": True}}]}, True),
    ],
)
def test_conditions(condition: Any, holds: bool) -> None:
    assert condition_faults(condition) == []
    assert is_fulfilled(condition, ANSWER) is holds


@pytest.mark.parametrize(
    ("condition", "part", "code"),
    [
        ("status == 'ok'", "", "invalid"),
        ([], "", "invalid"),
        ({}, "", "invalid"),
        ({"pointer": "/x"}, "", "invalid"),
        ({"pointer": "/x", "equals": 1, "in": [1]}, "", "invalid"),
        ({"pointer": "x", "equals": 1}, "/pointer", "invalid"),
        ({"pointer": "/~2", "equals": 1}, "/pointer", "invalid"),
        ({"pointer": 1, "equals": 1}, "/pointer", "invalid"),
        ({"pointer": "/" + "x" * 500, "equals": 1}, "/pointer", "invalid"),
        ({"equals": 1}, "/pointer", "invalid"),
        ({"pointer": "/x", "matches": "a+"}, "/matches", "unknown_field"),
        ({"pointer": "/x", "exists": 1}, "/exists", "invalid"),
        ({"pointer": "/x", "less": "1"}, "/less", "invalid"),
        ({"pointer": "/x", "greater": True}, "/greater", "invalid"),
        ({"pointer": "/x", "less": float("nan")}, "/less", "invalid"),
        ({"pointer": "/x", "in": 1}, "/in", "invalid"),
        ({"pointer": "/x", "in": []}, "/in", "invalid"),
        ({"pointer": "/x", "equals": "x" * 1_001}, "/equals", "invalid"),
        ({"all": []}, "/all", "invalid"),
        ({"all": {}}, "/all", "invalid"),
        ({"all": [{"pointer": "/x", "equals": 1}], "any": []}, "", "invalid"),
        ({"all": [{"pointer": "/x", "equals": 1}, {"pointer": "y", "equals": 1}]}, "/all/1/pointer", "invalid"),
        (
            {"not": {"not": {"not": {"not": {"not": {"pointer": "", "exists": True}}}}}},
            "/not/not/not/not/not",
            "too_large",
        ),
        ({"all": [{"pointer": "", "exists": True}] * 60}, "/all/49", "too_large"),
    ],
)
def test_faults_of_conditions(condition: Any, part: str, code: str) -> None:
    assert (part, code) in [(fault.part, fault.code) for fault in condition_faults(condition)]
    faults = validate_target({"url": URL, "success_if": condition}, base="/target")
    assert ("/target/success_if" + part, code) in [(fault.pointer, fault.code) for fault in faults]


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(ANY_JSON, ANY_JSON)
def test_any_condition_is_refused_or_decides_about_any_answer(condition: Any, answer: Any) -> None:
    tests = [condition, {"pointer": "/0", "equals": condition}, {"all": [{"pointer": "", "contains": condition}]}]
    for one in tests:
        if not condition_faults(one):
            assert is_fulfilled(one, answer) in (True, False)


@pytest.mark.parametrize(("pointer", "found"), [("/a/1", True), ("/a/01", False), ("/a/-", False), ("/a/1e0", False)])
def test_an_index_is_written_as_rfc_6901_says(pointer: str, found: bool) -> None:
    assert is_fulfilled({"pointer": pointer, "exists": True}, {"a": [1, 2]}) is found
