"""Which queues a worker listens to: configuration first, then the last word that an operator said."""

from __future__ import annotations

import pytest

from kernel.listening import Rules, Told, listened, read_rules
from kernel.pools import SYSTEM_QUEUE, tenant_of

QUEUES = [SYSTEM_QUEUE, "http.shared.0", "http.shared.1", "http.own.acme", "http.own.globex", "python.own.acme"]


@pytest.mark.parametrize(
    ("queues", "tenants", "expected"),
    [
        ("", "", QUEUES),
        ("http.*", "", QUEUES[1:5]),
        ("http.*,!http.shared.*", "", QUEUES[3:5]),
        ("!http.own.acme", "", [one for one in QUEUES if one != "http.own.acme"]),
        ("", "acme", ["http.own.acme", "python.own.acme"]),
        ("", "!acme", [one for one in QUEUES if not one.endswith("acme")]),
        ("http.*", "acme", ["http.own.acme"]),
        ("", "a*,!acme", []),
    ],
)
def test_the_configuration_names_what_is_wanted_and_what_is_not(queues: str, tenants: str, expected: list[str]) -> None:
    by_queue, by_tenant = (read_rules(part for part in text.split(",") if part) for text in (queues, tenants))
    assert listened(QUEUES, by_queue=by_queue, by_tenant=by_tenant) == expected


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ([Told("http.own.acme", True)], ["http.shared.0", "http.shared.1", "http.own.acme"]),
        ([Told("http.shared.1", False)], ["http.shared.0"]),
        ([Told("http.*", False), Told("http.own.*", True)], ["http.own.acme", "http.own.globex"]),
        ([Told("http.own.acme", True), Told("http.*", False)], []),
        ([Told("http.own.nobody", True)], ["http.shared.0", "http.shared.1"]),
    ],
)
def test_what_was_told_goes_before_it_and_the_last_word_counts(told: list[Told], expected: list[str]) -> None:
    assert listened(QUEUES, by_queue=read_rules(["http.shared.*"]), told=told) == expected


@pytest.mark.parametrize("text", ["", "!", "http.own.ACME", "a b", "x" * 81, "http.[ab]", "!!a"])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no queue"):
        read_rules([text])


def test_rules_of_nothing_take_everything() -> None:
    assert Rules().take("anything")


@pytest.mark.parametrize(
    ("queue", "tenant"),
    [("http.own.acme", "acme"), ("http.own.acme@vip", "acme"), ("http.shared.1", ""), ("http.group.vip", "")],
)
def test_an_own_queue_names_its_tenant(queue: str, tenant: str) -> None:
    assert tenant_of(queue) == tenant
