"""Credentials in targets, URLs and echoes: never shown, and kept when their mask comes back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.errors import FieldError
from kernel.masking import MASK, Echoes, credential_span, is_credential_name, masked_target, masked_url, restored_target

SECRET = "S3CR3T-7f1"
KEPT = {"secret": f"@job.{'a' * 32}"}
URL_KEPT = {**KEPT, "prefix": "https://x.example.com/?a=1&token=", "suffix": "&b=2"}


@pytest.mark.parametrize(
    "name",
    [
        "Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key", "X-Auth-Token", "api_key", "DB_PASSWORD",
        "GITLAB-TOKEN", "Ocp-Apim-Subscription-Key", "X-Amz-Signature", "client_secret", "access_token", "key", "sig",
    ],
)  # fmt: skip
def test_names_of_credentials(name: str) -> None:
    assert is_credential_name(name)


@pytest.mark.parametrize("name", ["Content-Type", "X-Trace", "X-Partition-Key", "keyboard", "page", "Accept", "design"])
def test_names_of_other_things(name: str) -> None:
    assert not is_credential_name(name)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://x.example.com/?token=S&b=2", "https://x.example.com/?token=***&b=2"),
        ("https://x.example.com/?a=1&API_KEY=S#f", "https://x.example.com/?a=1&API_KEY=***#f"),
        ("https://user:S@x.example.com/a@b", "https://***@x.example.com/a@b"),
        ("https://x.example.com/?token=&b=2", "https://x.example.com/?token=&b=2"),
        ("https://x.example.com/token=1", "https://x.example.com/token=1"),
        ("https://x.example.com/", "https://x.example.com/"),
    ],
)
def test_urls(url: str, shown: str) -> None:
    assert masked_url(url) == shown
    assert masked_url(shown) == shown


def test_the_span_goes_from_the_first_to_the_last_credential() -> None:
    url = "https://x.example.com/?a=1&token=AAA&b=2&sig=BBB&c=3"
    span = credential_span(url)
    assert span is not None and url[slice(*span)] == "AAA&b=2&sig=BBB"
    assert credential_span("https://x.example.com/?a=1") is None


def test_a_target_as_it_is_shown() -> None:
    target = {
        "url": URL_KEPT,
        "headers": {"Authorization": KEPT, "Cookie": "a=S3CR3T", "X-Mine": {"secret": "MINE"}, "X-Trace": "ok"},
        "environment": {"DB_PASSWORD": "S3CR3T", "LEVEL": "info"},
        "body": {"note": "all of it"},
    }
    assert masked_target(target) == {
        "url": "https://x.example.com/?a=1&token=***&b=2",
        "headers": {"Authorization": MASK, "Cookie": MASK, "X-Mine": {"secret": "MINE"}, "X-Trace": "ok"},
        "environment": {"DB_PASSWORD": MASK, "LEVEL": "info"},
        "body": {"note": "all of it"},
    }


KNOWN: dict[str, Any] = {
    "url": URL_KEPT,
    "method": "POST",
    "headers": {"Authorization": KEPT, "X-Old-Token": "from before", "X-Trace": "ok"},
}


def restored(given: Any, known: Any = KNOWN) -> tuple[Any, list[FieldError]]:
    faults: list[FieldError] = []
    return restored_target(given, known, faults, "/target"), faults


def test_what_is_shown_can_be_sent_back() -> None:
    assert restored(masked_target(KNOWN)) == (KNOWN, [])


def test_a_url_can_be_changed_around_its_credential() -> None:
    target, faults = restored({"url": "https://y.example.com/v2?token=***"})
    assert not faults
    assert target["url"] == {**KEPT, "prefix": "https://y.example.com/v2?token=", "suffix": ""}


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({"headers": {"X-Api-Key": MASK}}, "/target/headers/X-Api-Key"),
        ({"environment": {"TOKEN": MASK}}, "/target/environment/TOKEN"),
    ],
)
def test_a_mask_for_nothing_is_a_fault(given: Any, pointer: str) -> None:
    _, faults = restored(given)
    assert [(fault.pointer, fault.code) for fault in faults] == [(pointer, "masked")]
    _, faults = restored({"url": "https://x.example.com/?token=***"}, {})
    assert [(fault.pointer, fault.code) for fault in faults] == [("/target/url", "masked")]


def test_stars_elsewhere_are_text() -> None:
    target = {"headers": {"X-Pattern": MASK}, "body": {"a": MASK, "b": [MASK, "*****"]}, "url": "https://e.org/***"}
    assert restored(target, {}) == (target, [])
    known = {
        "headers": {"X-Pattern": "a"},
        "body": {"a": "b", "headers": {"Authorization": "c"}},
        "url": "https://e.org/",
    }
    given = {"headers": {"X-Pattern": MASK}, "body": {"a": MASK, "headers": {"Authorization": MASK}}}
    assert restored(given, known) == (given, [])


@pytest.mark.parametrize(
    "echo",
    [
        "said {}!", "{}", '{{"Authorization":"Bearer {}"}}', "{}{}", "https://e.org/?token={}&x=1",
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [SECRET, 'quo"te\\back', "ü/ä ö", "a/b+c=d&e", "two\nlines of it"])
def test_echoes_are_masked_in_the_forms_that_answers_have(echo: str, value: str) -> None:
    import json
    from urllib.parse import quote, quote_plus

    echoes = Echoes([value])
    forms = [
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        quote(value),
        quote_plus(value),
    ]
    forms += [form.replace("/", "\\/") for form in forms[1:3]]
    for form in forms:
        data = echo.replace("{}", form).encode()
        assert echoes.masked(data) == echo.replace("{}", MASK).encode(), form


def test_a_value_that_was_cut_off_is_masked_too() -> None:
    echoes = Echoes([SECRET, "another one"])
    assert echoes.masked(b"x" * 10 + SECRET.encode()[:6], cut=True) == b"x" * 10 + MASK.encode()
    assert echoes.masked(b"x" * 10 + SECRET.encode()[:6]) == b"x" * 10 + SECRET.encode()[:6]
    assert echoes.masked(b"the S3", cut=True) == b"the S3", "too little to tell"


def test_a_long_value_that_was_cut_costs_little_and_hides_too_much_rather_than_too_little() -> None:
    value = "ab" * 16_000
    body = b"x" + b"ab" * 30_000 + b"ac"
    shown = Echoes([value]).masked(body[:40_001], cut=True)
    assert b"ab" * 200 not in shown
    assert Echoes([value]).masked(b"y" * 1_000 + value.encode()[:20_000], cut=True) == b"y" * 1_000 + MASK.encode()


@pytest.mark.parametrize(
    "echo",
    [
        "Cannot POST /services/T0/B0/abc-def-ghi", "/services/T0/B0/abc-def-ghi/", "no hook abc-def-ghi",
        "https://hooks.example.com:443/services/T0/B0/abc-def-ghi?k=x%2Fyz012345", "?k=x%2Fyz012345",
        '{"k": "x/yz012345"}', "password pass-4242",
    ],
)  # fmt: skip
def test_the_parts_of_a_url_are_masked_also_without_its_beginning(echo: str) -> None:
    url = "https://user:pass-4242@hooks.example.com/services/T0/B0/abc-def-ghi?k=x%2Fyz012345"
    shown = Echoes([url]).masked(echo.encode()).decode()
    assert MASK in shown
    assert not any(part in shown for part in ("abc-def-ghi", "yz012345", "pass-4242"))


def test_what_all_answers_hold_is_no_part_of_a_url() -> None:
    page = b"GET / HTTP/1.1 from hooks.example.com, services"
    assert Echoes(["https://hooks.example.com/?a=1"]).masked(page) == page


def test_short_values_are_left_alone_and_nothing_costs_nothing() -> None:
    assert Echoes(["abc"]).masked(b"abcabc") == b"abcabc"
    assert Echoes([]).masked_json({"a": [1]}) == {"a": [1]}


@given(st.text(min_size=4, max_size=30), st.text(max_size=50), st.text(max_size=50))
def test_no_value_survives(value: str, before: str, after: str) -> None:
    shown = Echoes([value]).masked(f"{before}{value}{after}".encode(errors="replace"))
    assert value.encode(errors="replace") not in shown or value in MASK * 20


def test_json_values_are_masked_throughout() -> None:
    echoes = Echoes([SECRET])
    assert echoes.masked_json({SECRET: [SECRET, 5, {"a": f"x{SECRET}"}]}) == {MASK: [MASK, 5, {"a": "x***"}]}
