"""Whatever comes out of a run fits its bound and can be stored."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.executors.works import NOMINAL_AT
from workers.executors.bounds import (
    ERROR_MAX_BYTES,
    RESULT_MAX_BYTES,
    NotJson,
    bounded_error,
    bounded_json,
    fit_text,
    from_json,
    to_json,
)
from workers.executors.http_body import BODY_MAX_BYTES, body_text

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_json_comes_back_as_it_went(value: Any) -> None:
    try:
        data = to_json(value)
    except NotJson:
        assert "\\ud" in ascii(value)
        return
    assert from_json(data) == value


@given(JSON, st.integers(200, 2_000))
def test_bounded_json_is_bounded_and_holds_no_nul(value: Any, most: int) -> None:
    try:
        data = bounded_json(value, most)
    except NotJson:
        return
    assert len(data) <= most
    assert "\\u0000" not in orjson.dumps(orjson.loads(data)).decode().replace("\\\\", "")


def test_long_numbers_in_results_become_text() -> None:
    value = {"a": [2**64 - 1, 2**64, -(2**63) - 1, 1.5], "at": NOMINAL_AT}
    expected = {"a": [2**64 - 1, str(2**64), str(-(2**63) - 1), 1.5], "at": "2026-03-29T01:00:00+00:00"}
    assert orjson.loads(bounded_json(value)) == expected


def test_a_large_result_says_that_it_was_cut() -> None:
    value = orjson.loads(bounded_json(["x" * 1_000] * 1_000))
    assert (value["truncated"], value["size_bytes"]) == (True, 1_003_001)
    assert 60_000 < len(value["head"]) < RESULT_MAX_BYTES


@pytest.mark.parametrize("value", [object(), {1, 2}, "\ud800", {"a": b"bytes"}])
def test_what_is_not_json_is_told_apart(value: Any) -> None:
    with pytest.raises(NotJson):
        to_json(value)


def test_what_nests_too_deep_is_told_apart() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(NotJson):
        to_json(value)


@given(st.text(), st.integers(10, 200))
def test_text_fits(text: str, most: int) -> None:
    text = text.encode(errors="replace").decode()
    head, cut = fit_text(text, most)
    assert len(orjson.dumps(head)) <= most
    assert text.startswith(head)
    assert cut == (head != text)


@given(st.text())
def test_errors_are_bounded(text: str) -> None:
    error = bounded_error("E" * 1_000, text * 500, status=500)
    assert len(orjson.dumps(error)) <= ERROR_MAX_BYTES
    assert "\x00" not in error["message"]


@given(st.binary(max_size=2_000), st.sampled_from([1, 40]))
def test_any_body_becomes_text(data: bytes, times: int) -> None:
    text, is_base64, cut = body_text((data * times)[:BODY_MAX_BYTES])
    assert len(orjson.dumps(text)) <= 49_152
    assert "\x00" not in text
    if not is_base64 and not cut:
        assert text.encode() == data * times


def test_a_cut_through_a_character_keeps_text() -> None:
    data = ("a" + "é" * BODY_MAX_BYTES).encode()[:BODY_MAX_BYTES]
    text, is_base64, cut = body_text(data)
    assert (text[:2], is_base64, cut) == ("aé", False, True)
