"""Every case of tests/cases/cron.jsonl, by its kind."""

import os
import subprocess
import sys
import time
from datetime import datetime
from itertools import islice
from typing import Any

import pytest

from apps.schedules.timing import (
    TimingInvalid,
    load_zone,
    next_after,
    occurrences,
    previous_before,
    spec_from_api,
)
from apps.schedules.timing_preview import preview
from tests.schedules.cases import read_cases, text, utc

CASES = read_cases("cron.jsonl")
NOW = utc("2026-01-05T00:00:00Z")
GENERATED = {
    "<gen:long_fields>": "0 0" + " 0" * 10_000 + " 1 jan *",
    "<gen:long_list>": ",".join(["1"] * 20_000) + " * * * *",
}
# `@every 5m` is an interval with a stored anchor here, and not a fault: only the @reboot half of A71 applies.
ACCEPTED_HERE = {"@every 5m"}


def of_kind(*kinds: str) -> Any:
    found = [
        pytest.param(each["input"], each["expected"], id=each["id"]) for each in CASES if each["input"]["kind"] in kinds
    ]
    assert found, kinds
    return pytest.mark.parametrize(("given", "expected"), found)


def test_every_kind_has_a_test() -> None:
    tested = {"next", "validate", "alias", "validate_tz", "window", "compare", "prev", "prev_budget"}
    assert {each["input"]["kind"] for each in CASES} == tested
    assert len(CASES) == 63


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
    # Backwards over the same instants.
    assert [text(at) for at in reversed([previous_before(spec, utc(at)) for at in found[1:]]) if at] == found[-2::-1]


@of_kind("validate")
def test_refused(given: dict[str, Any], expected: dict[str, Any]) -> None:
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
        assert all(len(error.detail) > 20 for error in caught.value.errors)
        assert "never runs" in str(caught.value) or expected["error"] != "schedule never runs"


@of_kind("alias")
def test_alias_equals_its_five_fields(given: dict[str, Any], expected: dict[str, Any]) -> None:
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
    for alias, canonical in expected["pairs"]:
        specs = [
            spec_from_api({"trigger": {"cron": "30 2 * * *"}, "timezone": name}, now=NOW) for name in (alias, canonical)
        ]
        one, other = (list(occurrences(spec, after=NOW, limit=800)) for spec in specs)
        assert one == other
        assert load_zone(alias).key == alias


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


@of_kind("compare")
def test_interval_keeps_elapsed_time_and_cron_wall_time(given: dict[str, Any], expected: dict[str, Any]) -> None:
    after = utc(given["after_utc"])
    interval = {"every_s": given["interval"]["every_s"], "anchor": given["interval"]["anchor_utc"]}
    for trigger, wanted in ((interval, "interval_utc"), ({"cron": given["cron"]}, "cron_utc")):
        spec = spec_from_api({"trigger": trigger, "timezone": given["tz"]}, now=after)
        assert [text(at) for at in islice(occurrences(spec, after=after, limit=9), given["count"])] == expected[wanted]


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
