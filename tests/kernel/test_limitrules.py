"""Concurrency keys and rate limits: what may be written, and which flow a run falls into."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid5

import pytest

from kernel.errors import Faults
from kernel.limitrules import KEY_CHARS, Flow, concurrency_key, flow_of, rate_limit, value_at, value_of

JOB = UUID("01938f00-0000-7000-8000-000000000001")
LABEL, POINTER = {"label": "customer", "max": 2}, {"payload": "/customer/id", "max": 1}


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (None, None),
        ({"label": "customer"}, {"label": "customer", "max": 1}),
        ({"label": "customer", "max": 100_000}, {"label": "customer", "max": 100_000}),
        ({"payload": "/customer/id", "max": 2, "label": None}, {"payload": "/customer/id", "max": 2}),
        ({"payload": "/a~1b/0/~0"}, {"payload": "/a~1b/0/~0", "max": 1}),
        ({"payload": "/"}, {"payload": "/", "max": 1}),
    ],
)
def test_keys_that_may_be_written(given: Any, stored: Any) -> None:
    faults = Faults()
    assert concurrency_key(given, faults) == stored
    assert not faults.errors


@pytest.mark.parametrize(
    ("given", "pointer", "code"),
    [
        ("customer", "/concurrency_key", "type"),
        ([], "/concurrency_key", "type"),
        ({}, "/concurrency_key", "required"),
        ({"label": "a", "payload": "/a"}, "/concurrency_key", "contradiction"),
        ({"label": "-a"}, "/concurrency_key/label", "invalid_name"),
        ({"label": 5}, "/concurrency_key/label", "invalid_name"),
        ({"label": "a", "max": 0}, "/concurrency_key/max", "range"),
        ({"label": "a", "max": True}, "/concurrency_key/max", "range"),
        ({"label": "a", "max": 100_001}, "/concurrency_key/max", "range"),
        ({"label": "a", "x/y": 1}, "/concurrency_key/x~1y", "unknown_field"),
        ({"payload": ""}, "/concurrency_key/payload", "bad_pointer"),
        ({"payload": "customer"}, "/concurrency_key/payload", "bad_pointer"),
        ({"payload": "/a~2"}, "/concurrency_key/payload", "bad_pointer"),
        ({"payload": "/a\nb"}, "/concurrency_key/payload", "bad_pointer"),
        ({"payload": "/a/01"}, "/concurrency_key/payload", "bad_pointer"),
        ({"payload": "/a/-1"}, "/concurrency_key/payload", "bad_pointer"),
        ({"payload": "/a" * 11}, "/concurrency_key/payload", "bad_pointer"),
        ({"payload": "/" + "a" * 200}, "/concurrency_key/payload", "bad_pointer"),
        ({"payload": ["/a"]}, "/concurrency_key/payload", "bad_pointer"),
    ],
)
def test_keys_that_are_refused(given: Any, pointer: str, code: str) -> None:
    faults = Faults()
    concurrency_key(given, faults)
    assert [(one.pointer, one.code) for one in faults.errors] == [(pointer, code)]


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (None, None),
        ({"runs": 100, "per_s": 60}, {"runs": 100, "per_s": 60, "burst": 10}),
        ({"runs": 5, "per_s": 1}, {"runs": 5, "per_s": 1, "burst": 1}),
        ({"runs": 5, "per_s": 1, "burst": None}, {"runs": 5, "per_s": 1, "burst": 1}),
        ({"runs": 60, "per_s": 60, "burst": 5}, {"runs": 60, "per_s": 60, "burst": 5}),
    ],
)
def test_rates_that_may_be_written(given: Any, stored: Any) -> None:
    faults = Faults()
    assert rate_limit(given, faults) == stored
    assert not faults.errors


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (60, [("/rate_limit", "type")]),
        ({}, [("/rate_limit/runs", "required"), ("/rate_limit/per_s", "required")]),
        ({"runs": 0, "per_s": 86_401}, [("/rate_limit/runs", "range"), ("/rate_limit/per_s", "range")]),
        ({"runs": 1.5, "per_s": 1}, [("/rate_limit/runs", "range")]),
        ({"runs": 1, "per_s": 1, "burst": 0}, [("/rate_limit/burst", "range")]),
        ({"runs": 1, "per_s": 1, "per": "min"}, [("/rate_limit/per", "unknown_field")]),
    ],
)
def test_rates_that_are_refused(given: Any, found: Any) -> None:
    faults = Faults()
    rate_limit(given, faults)
    assert [(one.pointer, one.code) for one in faults.errors] == found


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("acme", "customer=acme"),
        (42, "customer=42"),
        ("42", "customer=42"),
        (0, "customer=0"),
        (True, "customer=true"),
        (False, "customer=false"),
        ("two\nlines", "customer=two lines"),
        (" ", "customer= "),
        (None, None),
        ("", None),
        (4.5, None),
        (2**64 - 1, "customer=18446744073709551615"),
        (2**64, None),
        ([1], None),
        ({"id": 1}, None),
    ],
)
def test_texts_whole_numbers_and_flags_are_values(value: Any, key: str | None) -> None:
    flow = flow_of(JOB, LABEL, value)
    assert flow.key == key
    if key is None:
        assert flow == Flow(JOB)
    else:
        assert flow.limit == 2
        assert flow.flow != JOB
    assert flow_of(JOB, None, value) == Flow(JOB)


def test_a_flow_follows_from_the_job_and_the_whole_text() -> None:
    assert flow_of(JOB, POINTER, 42).flow == uuid5(JOB, "/customer/id=42") == flow_of(JOB, POINTER, "42").flow
    assert flow_of(UUID(int=1), POINTER, 42).flow != flow_of(JOB, POINTER, 42).flow
    one, other = (flow_of(JOB, LABEL, "x" * 500 + end) for end in "ab")
    assert one.flow != other.flow
    assert one.key == other.key
    assert one.key is not None
    assert len(one.key) == KEY_CHARS
    assert one.key.endswith("x…")


@pytest.mark.parametrize(
    ("pointer", "found"),
    [
        ("/customer/id", 42), ("/list/1", "b"), ("/list/2", None), ("/list/x", None), ("/a~1b", 1), ("/c~0d", 2),
        ("/~01", 3), ("/", 4), ("/0", 5), ("/customer/id/x", None), ("/nothing/at/all", None),
    ],
)  # fmt: skip
def test_pointers_lead_where_rfc_6901_says(pointer: str, found: Any) -> None:
    document = {"customer": {"id": 42}, "list": ["a", "b"], "a/b": 1, "c~d": 2, "~1": 3, "": 4, "0": 5}
    assert value_at(document, pointer) == found
    assert value_of({"payload": pointer}, labels={}, payload=document) == found


def test_a_label_is_read_by_its_name() -> None:
    assert value_of(LABEL, labels={"customer": "acme"}, payload={"customer": "globex"}) == "acme"
    assert value_of(LABEL, labels={}, payload={"customer": "globex"}) is None
