"""Every case of tests/cases/cron.jsonl, by its kind."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from apps.schedules.cron_parse import compile_cron
from apps.schedules.timing import (
    Cron,
    Spec,
    TimingInvalid,
    load_zone,
    next_after,
    notes,
    occurrences,
    previous_before,
    spec_from_api,
    spec_from_json,
    spec_to_json,
)
from apps.schedules.timing_preview import preview
from apps.schedules.timing_zones import zone_offsets
from tests.schedules.cases import read_cases, text, utc
from tests.schedules.timeline import first_created

CASES = read_cases("cron.jsonl")
NOW = utc("2026-01-05T00:00:00Z")
GENERATED = {
    "<gen:long_fields>": "0 0" + " 0" * 10_000 + " 1 jan *",
    "<gen:long_list>": ",".join(["1"] * 20_000) + " * * * *",
}
# `@every 5m` is an interval with a stored anchor here, and not a fault: only the @reboot half of A71 applies.
ACCEPTED_HERE = {"@every 5m"}


# The fault of each refused expression: its code and the field that it names, if it is a field's fault.
FAULTS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *"), ("never", "")),
    "0 22-2 * * *": ("reversed", "hour"),
    "58-2 * * * *": ("reversed", "minute"),
    "0 0 1 NOV-FEB *": ("reversed", "month"),
    **dict.fromkeys(("*/0 * * * *", "5-5/0 * * * *", "59-0/0 * * * *"), ("step", "minute")),
    "0 */0 * * *": ("step", "hour"),
    **dict.fromkeys(("* * * * * * * *ASDS", "* * * *", ""), ("fields", "")),
    "0 0 * * * 2026 x": ("range", "day-of-week"),
    "@reboot": ("alias", ""),
    **dict.fromkeys(("\u0660 \u0663 * * *", "\u00b2 3 * * *", "\uff10 \uff13 * * *"), ("not_ascii", "")),
    **dict.fromkeys(("0\u00a03 * * *", "0 3 * * *\u200b"), ("not_ascii", "")),
    **dict.fromkeys(("<gen:long_fields>", "<gen:long_list>"), ("too_long", "")),
    **dict.fromkeys(("CRON_TZ=Europe/Paris 0 6 * * *", "TZ=UTC 0 6 * * *"), ("zone_twice", "")),
    "0 6 * * * Europe/Paris": ("dialect", ""),
    **dict.fromkeys(("0 1 0/10 * *", "0 1 0 * *"), ("range", "day-of-month")),
    "0 0 * 0/3 *": ("range", "month"),
    "0 24 * * *": ("range", "hour"),
    "60 0 * * *": ("range", "minute"),
    "0 0 * * 8": ("range", "day-of-week"),
}  # fmt: skip
# What a case's `error` means in our codes.
MEANINGS = {
    "schedule never runs": {"never"},
    "field-level validation message naming the bad field; never a 500, never stored": {
        "reversed", "step", "fields", "range", "alias", "not_ascii", "too_long", "zone_twice", "dialect"},
}  # fmt: skip
# What `semantics` says of the expression: whether it is a fixed-time job, None where the zone has no clock changes.
SEMANTICS = {
    "utc": None,
    "vixie-debian: fixed-time job": True,
    "vixie-debian: jumps of 3 h or more are clock corrections, no catch-up": True,
    "vixie-debian: wildcard minute/hour job, real time": False,
    "seconds field, real time": False,
}
# Where a case offers a choice, the first one is taken: these are the others, which must not be what is found.
OTHER_CHOICES = {
    "400 at save: W not supported", "400 at save with a hint", "wrap to 22,23,0,1,2",
    "saved but shown as 'never' with next_run=null and excluded from the due scan",
}  # fmt: skip


class Expected(dict[str, Any]):
    """What a case expects, and which of its members a test has looked at."""

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__(data)
        self.unread = set(data)

    def __getitem__(self, key: str) -> Any:
        self.unread.discard(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.unread.discard(key)
        return super().get(key, default)


@pytest.fixture(autouse=True)
def everything_expected_is_looked_at(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    params = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    if isinstance(expected := params.get("expected"), Expected):
        assert not expected.unread, f"no assertion reads {sorted(expected.unread)}"


def of_kind(*kinds: str) -> Any:
    found = [
        pytest.param(each["input"], Expected(each["expected"]), id=each["id"])
        for each in CASES
        if each["input"]["kind"] in kinds
    ]
    assert found, kinds
    return pytest.mark.parametrize(("given", "expected"), found)


def test_every_kind_has_a_test() -> None:
    tested = {"next", "validate", "alias", "validate_tz", "window", "compare", "prev", "prev_budget"}
    assert {each["input"]["kind"] for each in CASES} == tested
    assert len(CASES) == 63


def test_what_no_assertion_reads_is_told() -> None:
    expected = Expected({"one": 1, "other": 2, "third": 3})
    assert "one" in expected and expected["one"] == expected.get("other", 2) - 1
    assert expected.unread == {"third"}


@of_kind("next")
def test_next(given: dict[str, Any], expected: dict[str, Any]) -> None:
    after = utc(given["after_utc"])
    spec = spec_from_api({"trigger": {"cron": given["expr"]}, "timezone": given["tz"]}, now=after)
    found = [text(at) for at in occurrences(spec, after=after, limit=given["count"])]
    assert found == expected["next_utc"]
    assert not set(found) & set(expected.get("must_not_contain_utc", []))
    shown = preview(spec, after=after, count=given["count"])
    assert [text(each.at) for each in shown] == found
    if "next_local" in expected:
        local = [datetime.fromisoformat(each.nominal_local) for each in shown]
        assert [at.strftime("%a %Y-%m-%d %H:%M:%S %z") for at in local] == expected["next_local"]
    check_semantics(given, expected, spec)
    other = expected.get("acceptable_alternative")
    assert other is None or other in OTHER_CHOICES if not isinstance(other, list) else found != other
    if "invariant" in expected:
        assert expected["invariant"] in INVARIANTS and found == sorted(set(found))
    if "preferred" in expected:
        assert expected["preferred"].startswith("400 or a warning at save")
        assert any("for a run every 90 minutes use an interval" in note for note in notes(spec))
    # Backwards over the same instants.
    assert [text(at) for at in reversed([previous_before(spec, utc(at)) for at in found[1:]]) if at] == found[-2::-1]


# Held by `test_next` for what it finds, and for TZ by test_the_machines_own_zone_does_not_matter.
INVARIANTS = {
    "result identical for every value of the TZ environment variable",
    "no hang, no duplicate, strictly increasing",
}


def check_semantics(given: dict[str, Any], expected: dict[str, Any], spec: Spec) -> None:
    said = expected.get("semantics")
    assert said in SEMANTICS
    if SEMANTICS[said] is None:
        assert zone_offsets(given["tz"]).steady
    else:
        assert isinstance(spec.trigger, Cron)
        assert {compile_cron(each).fixed for each in spec.trigger.exprs} == {SEMANTICS[said]}


@of_kind("validate")
def test_refused(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert expected["valid"] is False and expected["http_status"] == TimingInvalid.status
    assert expected.get("acceptable_alternative", "wrap to 22,23,0,1,2") in OTHER_CHOICES
    codes = MEANINGS[expected["error"]]
    for written in given["exprs"]:
        expression = GENERATED.get(written, written)
        if expression in ACCEPTED_HERE:
            assert (
                spec_from_api({"trigger": {"cron": expression}, "timezone": given["tz"]}, now=NOW).trigger.kind
                == "every_s"
            )
            continue
        started = time.process_time()
        with pytest.raises(TimingInvalid) as caught:
            spec_from_api({"trigger": {"cron": expression}, "timezone": given["tz"]}, now=NOW)
        took_ms = (time.process_time() - started) * 1000
        assert took_ms < given.get("max_ms", 100)
        assert {error.pointer for error in caught.value.errors} == {"/trigger/cron"}
        code, field = FAULTS[written]
        fault = caught.value.errors[0]
        assert fault.code == code in codes, (written, fault)
        assert f": {field} field, '" in fault.detail if field else len(fault.detail) > 20
        assert ("the schedule never runs" in fault.detail) == (code == "never")


@of_kind("alias")
def test_alias_equals_its_five_fields(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert expected["invariant"].startswith("each alias yields the same next 5 instants as its five-field form")
    for alias, fields in given["map"].items():
        for spelling in (alias, alias.upper()):
            one, other = (
                spec_from_api({"trigger": {"cron": each}, "timezone": given["tz"]}, now=NOW)
                for each in (spelling, fields)
            )
            assert one == other
            assert list(occurrences(one, after=NOW, limit=5)) == list(occurrences(other, after=NOW, limit=5))


@of_kind("validate_tz")
def test_old_zone_names_work(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert expected["valid"] is True and [alias for alias, _ in expected["pairs"]] == given["names"]
    # One validator: what a create, an update and the dispatcher read is load_zone, by spec_from_api and spec_from_json.
    assert expected["invariant"].endswith("alias and canonical name give equal next runs")
    for alias, canonical in expected["pairs"]:
        specs = [
            spec_from_api({"trigger": {"cron": "30 2 * * *"}, "timezone": name}, now=NOW) for name in (alias, canonical)
        ]
        one, other = (list(occurrences(spec, after=NOW, limit=800)) for spec in specs)
        assert one == other
        assert load_zone(alias).key == alias
        assert [spec_from_json(spec_to_json(spec)) for spec in specs] == specs


@of_kind("window")
def test_window_is_inclusive(given: dict[str, Any], expected: dict[str, Any]) -> None:
    data = {
        "trigger": {"cron": given["spec"]["cron"]},
        "timezone": given["spec"]["tz"],
        "start_at": given["spec"]["start_at"],
        "end_at": given["spec"]["end_at"],
    }
    after = utc(given["after_utc"])
    spec = spec_from_api(data, now=after)
    assert [text(at) for at in occurrences(spec, after=after, limit=10)] == expected["fires_utc"]
    assert next_after(spec, utc(expected["fires_utc"][0])) is None
    assert expected["also"] == "if start_at equals the creation instant, the run at that instant still happens"
    start = utc(given["spec"]["start_at"])
    at_start = spec_from_api(data, now=start)
    assert first_created(at_start, now=start) == (start, start)


@of_kind("compare")
def test_interval_keeps_elapsed_time_and_cron_wall_time(given: dict[str, Any], expected: dict[str, Any]) -> None:
    after = utc(given["after_utc"])
    interval = {"every_s": given["interval"]["every_s"], "anchor": given["interval"]["anchor_utc"]}
    for trigger, wanted in ((interval, "interval_utc"), ({"cron": given["cron"]}, "cron_utc")):
        spec = spec_from_api({"trigger": trigger, "timezone": given["tz"]}, now=after)
        found = list(occurrences(spec, after=after, limit=given["count"]))
        assert [text(at) for at in found] == expected[wanted]
        shown = {at.astimezone(load_zone(given["tz"])).strftime("%H:%M") for at in found}
        assert shown == ({"09:00"} if wanted == "interval_utc" else {"08:00"})
    note = "interval keeps elapsed time (09:00 local after the change); cron keeps wall time"
    assert expected["note"] == note


@of_kind("prev")
def test_previous(given: dict[str, Any], expected: dict[str, Any]) -> None:
    spec = spec_from_api({"trigger": {"cron": given["expr"]}, "timezone": given["tz"]}, now=NOW)
    found = previous_before(spec, utc(given["before_utc"]))
    assert found is not None and text(found) == expected["prev_utc"]


@of_kind("prev_budget")
def test_previous_of_rare_expressions_is_instant(given: dict[str, Any], expected: dict[str, Any]) -> None:
    for item, wanted in zip(given["items"], expected["prev_utc"], strict=True):
        spec = spec_from_api({"trigger": {"cron": item["expr"]}, "timezone": item["tz"]}, now=NOW)
        started = time.process_time()
        found = previous_before(spec, utc(item["before_utc"]))
        assert (time.process_time() - started) * 1000 < given["max_ms_each"]
        assert found is not None and text(found) == wanted


@pytest.mark.parametrize("zone", ["Australia/Sydney", "America/New_York", "UTC", ":/etc/localtime"])
def test_the_machines_own_zone_does_not_matter(zone: str) -> None:
    given = next(each["input"] for each in CASES if each["id"] == "A25")
    program = (
        "import sys; from datetime import datetime; from apps.schedules.timing import *;"
        "after = datetime.fromisoformat(sys.argv[3]);"
        "spec = spec_from_api({'trigger': {'cron': sys.argv[1]}, 'timezone': sys.argv[2]}, now=after);"
        "print(*(at.isoformat() for at in occurrences(spec, after=after, limit=2)))"
    )
    environment = {**os.environ, "TZ": zone, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, given["expr"], given["tz"], given["after_utc"]]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout
    assert printed.split() == ["2025-10-05T03:00:00+00:00", "2025-10-05T04:00:00+00:00"]
