"""How jobs name secrets: found, filled, judged. Values are never part of what is said about them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.httprules import validate_target
from kernel.secretrules import SecretMissing, fill, is_name, reference_faults, secret_names, with_stand_ins

TARGET: dict[str, Any] = {
    "url": {"secret": "HOOK_URL"},
    "headers": {"X-Key": {"secret": "KEY"}, "Authorization": {"secret": "TOKEN", "prefix": "Token "}, "X-Plain": "a"},
    "body": {"items": [{"password": {"secret": "pw.1"}}, 7, None, True]},
}
VALUES = {"HOOK_URL": "https://hooks.example.com/x", "KEY": "k", "TOKEN": "t", "pw.1": "p", "UNUSED": "u"}


def test_names_are_found_wherever_a_text_may_be() -> None:
    assert secret_names(TARGET) == {"HOOK_URL", "KEY", "TOKEN", "pw.1"}


def test_references_become_their_values_and_all_else_stays() -> None:
    assert fill(TARGET, VALUES) == {
        "url": "https://hooks.example.com/x",
        "headers": {"X-Key": "k", "Authorization": "Token t", "X-Plain": "a"},
        "body": {"items": [{"password": "p"}, 7, None, True]},
    }


def test_a_missing_value_is_named() -> None:
    with pytest.raises(SecretMissing, match="The secret TOKEN does not exist") as caught:
        fill(TARGET, {name: value for name, value in VALUES.items() if name != "TOKEN"})
    assert caught.value.name == "TOKEN"


@pytest.mark.parametrize(
    "data",
    [
        {"secret": "two words"}, {"secret": "A", "more": 1}, {"secret": 5}, {"secret": {"a": 1}}, {"secret": ""}, {},
        {"secret": "A", "prefix": 5},
    ],
)  # fmt: skip
def test_what_only_looks_like_a_reference_is_data_in_a_body(data: dict[str, Any]) -> None:
    assert not secret_names({"body": data})
    assert fill({"body": data}, {}) == {"body": data}


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda one: st.lists(one)))
def test_a_value_without_references_is_kept(value: Any) -> None:
    assert fill(value, {}) == value
    assert with_stand_ins(value) == value


@given(st.text(max_size=80))
def test_a_name_is_short_and_plain(text: str) -> None:
    if is_name(text):
        assert text.isascii() and 1 <= len(text) <= 64 and not text[0].isdigit() and "\n" not in text


@pytest.mark.parametrize(
    ("value", "pointer", "code"),
    [
        ({"secret": "two words"}, "/headers/X/secret", "invalid_name"),
        ({"secret": "A\n"}, "/headers/X/secret", "invalid_name"),
        ({"secret": "A", "prefix": 5}, "/headers/X/prefix", "type"),
        ({"secret": "A", "prefix": "x" * 4_097}, "/headers/X/prefix", "type"),
        ({"secret": "A", "prefix": "{{ payload.a }}"}, "/headers/X/prefix", "invalid"),
        ({"secret": "A", "more": 1}, "/headers/X", "unknown_field"),
        ({"more": 1}, "/headers/X", "type"),
        (5, "/headers/X", "type"),
    ],
)
def test_faults_say_where(value: Any, pointer: str, code: str) -> None:
    (fault,) = reference_faults(value, "/headers/X")
    assert (fault.pointer, fault.code) == (pointer, code)


def test_a_target_may_name_secrets_where_it_takes_texts() -> None:
    assert validate_target(TARGET) == []
    bad = {"url": {"secret": "no no"}, "headers": {"X-A": {"secret": 5}, "X-B": {"secret": "B"}}}
    assert {fault.pointer for fault in validate_target(bad, base="/target")} == {
        "/target/url/secret",
        "/target/headers/X-A/secret",
    }


@pytest.mark.parametrize("prefix", ["http://10.0.0.1/?token=", "ftp://example.com/", "http://127.0.0.1:"])
def test_what_is_known_of_a_url_is_judged_when_it_is_saved(prefix: str) -> None:
    assert validate_target({"url": {"secret": "A", "prefix": prefix}})
