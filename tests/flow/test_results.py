"""What results and errors may hold, as they are settled: whatever it is, the run ends."""

from __future__ import annotations

from typing import Any

import orjson
import psycopg
import pytest

from apps.outcomes.settle import settle
from apps.outcomes.storable import RESULT_BYTES
from tenants.models import Tenant
from tenants.registry import Registry
from tests.fixtures_flow import (
    NOW,
    assert_exactly_one_outcome,
    settle_as,
    settlement,
)
from tests.flow.test_settle import running

Conn = psycopg.Connection[Any]


@pytest.mark.parametrize(
    ("result", "stored"),
    [
        ('"a\\u0000b"', "a\ufffdb"),
        ('{"k\\u0000": [1, "\\u0000"]}', {"k\ufffd": [1, "\ufffd"]}),
        ('"a literal \\\\u0000 stays"', "a literal \\u0000 stays"),
        ('"\\\\\\u0000"', "\\\ufffd"),
        ('"\\ud83d\\ude00"', "\U0001f600"),
        ("null", None),
        ("1e400", None),
        (None, None),
    ],
)
def test_results_that_jsonb_can_not_hold_are_stored_as_near_as_they_can_be(
    conn: Conn, registry: Registry, acme: Tenant, result: str | None, stored: Any
) -> None:
    one = running(conn, acme)
    settle_as(conn, registry, [one], result=result)
    found = assert_exactly_one_outcome(conn, acme, one.run_key, state="succeeded")
    if result != "1e400":
        assert found["result"] == stored


@pytest.mark.parametrize("result", ['"\\ud800"', '"half \\udc00 of"', "{not json", '"\x01"'])
def test_a_result_that_can_not_be_stored_at_all_does_not_keep_the_run_from_ending(
    conn: Conn, registry: Registry, acme: Tenant, globex: Tenant, result: str
) -> None:
    bad, good, theirs = running(conn, acme), running(conn, acme), running(conn, globex)
    items = [settlement(conn, registry, bad, result=result)]
    items += [settlement(conn, registry, one, result='"fine"') for one in (good, theirs)]
    done = settle(conn, registry, items)
    assert done.failed == []
    for tenant, one in ((acme, good), (globex, theirs)):
        assert assert_exactly_one_outcome(conn, tenant, one.run_key, state="succeeded")["result"] == "fine"
    assert_exactly_one_outcome(conn, acme, bad.run_key, state="succeeded")


@pytest.mark.parametrize("message", ["a\x00b", "half \ud800 of", "\udfff", "x" * 100_000, "\x00" * 9_000])
def test_errors_may_hold_anything(conn: Conn, registry: Registry, acme: Tenant, globex: Tenant, message: str) -> None:
    bad, theirs = running(conn, acme), running(conn, globex)
    items = [
        settlement(conn, registry, bad, "failed", retryable=False, error={"class": "E", "message": message}),
        settlement(conn, registry, theirs),
    ]
    assert settle(conn, registry, items).failed == []
    found = assert_exactly_one_outcome(conn, acme, bad.run_key, state="dead")
    assert found["error"]["class"] == "E"
    assert len(orjson.dumps(found["error"])) <= 8_192
    assert_exactly_one_outcome(conn, globex, theirs.run_key, state="succeeded")


def test_an_error_with_strange_members_is_stored(conn: Conn, registry: Registry, acme: Tenant) -> None:
    one = running(conn, acme)
    error = {"class": 7, "message": object(), "status": 10**30, "more": {1: {2, 3}}, "at": NOW}
    settle_as(conn, registry, [one], "failed", retryable=False, error=error)
    assert_exactly_one_outcome(conn, acme, one.run_key, state="dead")


@pytest.mark.parametrize("extra", [-2, 1, 100_000])
def test_results_are_bounded(conn: Conn, registry: Registry, acme: Tenant, extra: int) -> None:
    text = orjson.dumps("x" * (RESULT_BYTES - 2 + extra)).decode() if extra > 0 else '"' + "x" * 100 + '"'
    one = running(conn, acme)
    settle_as(conn, registry, [one], result=text)
    found = assert_exactly_one_outcome(conn, acme, one.run_key, state="succeeded")
    if extra > 0:
        assert found["result"] == {"truncated": True, "bytes": RESULT_BYTES + extra}
    else:
        assert found["result"] == "x" * 100


def test_the_bound_counts_bytes(conn: Conn, registry: Registry, acme: Tenant) -> None:
    one = running(conn, acme)
    settle_as(conn, registry, [one], result=orjson.dumps("ü" * 40_000).decode())
    found = assert_exactly_one_outcome(conn, acme, one.run_key, state="succeeded")
    assert found["result"] == {"truncated": True, "bytes": 80_002}
