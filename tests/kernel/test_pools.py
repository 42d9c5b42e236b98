"""Names of queues: who gets which, and whose workers a queue is for."""

from __future__ import annotations

import pytest

from kernel.pools import SYSTEM_QUEUE, group_of, group_queue, own_queue, shared_queue


@pytest.mark.parametrize(
    ("queue", "group"),
    [
        ("http.own.acme", ""), ("http.own.acme@vip", "vip"), ("http.shared.3", ""), ("http.group.vip", "vip"),
        ("python.group.eu-1", "eu-1"), (SYSTEM_QUEUE, ""), ("", ""), ("orders", ""), ("http.group", ""),
    ],
)  # fmt: skip
def test_a_queue_says_whose_workers_it_is_for(queue: str, group: str) -> None:
    assert group_of(queue) == group


def test_names_are_told_apart() -> None:
    assert own_queue("http", "acme") == "http.own.acme"
    assert own_queue("http", "acme", "vip") == "http.own.acme@vip"
    assert group_queue("http", "vip") == "http.group.vip"
    assert shared_queue("http", 3) == "http.shared.3"
