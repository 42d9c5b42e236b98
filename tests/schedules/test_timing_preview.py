"""`manage.py preview`: what it prints, and exit 2 with the reason for what is not valid."""

import io
import json
import time

import pytest
from django.core.management import CommandError, call_command

from tests.schedules.cases import read_cases

BERLIN = ["--timezone", "Europe/Berlin", "--after", "2026-03-28T00:00:00Z"]


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("preview", *arguments, stdout=out)
    return out.getvalue()


def refused(*arguments: str) -> str:
    err = io.StringIO()
    with pytest.raises(SystemExit) as caught:
        call_command("preview", *arguments, stdout=io.StringIO(), stderr=err)
    assert caught.value.code == 2
    return err.getvalue()


def test_json_has_the_documented_shape() -> None:
    printed = json.loads(run("--cron", "0 2 * * *", *BERLIN, "--count", "2", "--format", "json"))
    assert printed == {
        "occurrences": [
            {"nominal_local": "2026-03-28T02:00:00+01:00", "at": "2026-03-28T01:00:00Z", "flags": []},
            {"nominal_local": "2026-03-29T03:00:00+02:00", "at": "2026-03-29T01:00:00Z", "flags": ["dst_gap_moved"]},
        ]
    }


def test_text_is_for_people() -> None:
    lines = run("--cron", "0 2 * * *", *BERLIN).splitlines()
    assert lines[0].startswith("At 02:00, Europe/Berlin")
    assert lines[1].startswith("Note: when the clock skips its time")
    assert lines[2:4] == [
        "2026-03-28T02:00:00+01:00  2026-03-28T01:00:00Z",
        "2026-03-29T03:00:00+02:00  2026-03-29T01:00:00Z  dst_gap_moved",
    ]
    assert len(lines) == 2 + 5


@pytest.mark.parametrize(
    ("arguments", "first"),
    [
        (["--cron", "0 2 * * *", "--cron", "30 1 * * *", *BERLIN], "2026-03-28T00:30:00Z"),
        (["--every", "3600", *BERLIN], "2026-03-28T01:00:00Z"),
        (["--every", "3600", "--anchor", "2026-01-01T00:00:07Z", *BERLIN], "2026-03-28T00:00:07Z"),
        (["--at", "2026-07-01T09:00", *BERLIN], "2026-07-01T07:00:00Z"),
        (["--cron", "0 2 * * *", "--start", "2026-03-29T00:00", "--dst-gap", "skip", *BERLIN], "2026-03-30T00:00:00Z"),
        (["--cron", "TZ=Asia/Tokyo 0 9 * * *", "--after", "2026-03-28T00:00:00Z"], "2026-03-29T00:00:00Z"),
        (["--cron", "H H * * *", "--key", "schedule-1", *BERLIN], "2026-03-28T23:47:00Z"),
    ],
)
def test_every_kind_of_trigger(arguments: list[str], first: str) -> None:
    assert json.loads(run(*arguments, "--format", "json"))["occurrences"][0]["at"] == first


def test_without_after_it_starts_now() -> None:
    assert len(json.loads(run("--cron", "* * * * *", "--format", "json"))["occurrences"]) == 5


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--cron", "0 0 31 2 *"], "never runs"),
        (["--cron", "0 22-2 * * *"], "22-23,0-2"),
        (["--cron", "0 2 * * *", "--timezone", "Europe/Berln"], "Europe/Berlin"),
        (["--cron", "0 2 * * *", "--timezone", "UTC", "--after", "soon"], "--after"),
        (["--cron", "0 2 * * *", "--after", "9999-12-31T23:59:59-12:00"], "--after"),
        (["--cron", "0 2 * * *", "--count", "0"], "--count"),
        (["--every", "0"], "/trigger/every_s"),
        (["--at", "2020-01-01T00:00:00Z"], "in the past"),
        (
            ["--cron", "0 2 * * *", "--start", "2026-05-01T00:00Z", "--end", "2026-04-01T00:00Z", *BERLIN],
            "before it starts",
        ),
        (["--cron", ""], "0 fields"),
    ],
)
def test_invalid_input_exits_with_2_and_the_reason(arguments: list[str], reason: str) -> None:
    assert reason in refused(*arguments)


def test_a_trigger_must_be_given_once() -> None:
    for arguments in ([], ["--every", "60", "--at", "2026-07-01T09:00"]):
        with pytest.raises(CommandError):
            run(*arguments)


def test_all_refused_cases_exit_with_2() -> None:
    for case in read_cases("cron.jsonl"):
        if case["input"]["kind"] == "validate":
            for expression in case["input"]["exprs"]:
                if not expression.startswith(("<gen:", "@every")):
                    refused("--cron", expression, "--timezone", case["input"]["tz"])


def test_ten_thousand_lines_take_no_time() -> None:
    started = time.process_time()
    shown = run("--cron", "*/7 * * * *", *BERLIN, "--count", "10000", "--format", "json")
    assert len(json.loads(shown)["occurrences"]) == 10_000
    assert time.process_time() - started < 3
