"""Schedules that people run: each is accepted and runs, or is refused with a reason that helps."""

import re
from collections import Counter
from typing import Any

import pytest

from apps.schedules.cron_parse import parse_cron
from apps.schedules.timing import (
    TimingInvalid,
    describe,
    next_after,
    notes,
    previous_before,
    spec_from_api,
    spec_from_json,
    spec_to_json,
)
from tests.schedules.cases import CASES, read_cases, utc

ENTRIES = read_cases("real_schedules.jsonl")
NOW = utc("2026-07-01T12:34:00Z")
# Entries with a cron or interval field. The figures are fixed, so that a change of the rules shows here.
ACCEPTED, REFUSED, WITHOUT_TIME = 432, 29, 12


def definition(entry: dict[str, Any]) -> dict[str, Any] | None:
    fields = entry["fields"]
    if "cron" in fields:
        trigger = {"cron": fields["cron"]}
    elif "interval_s" in fields:
        trigger = {"every_s": fields["interval_s"]}
    else:
        return None
    return {"trigger": trigger, "timezone": fields.get("timezone"), "jitter_s": fields.get("jitter_s", 0)}


def test_each_entry_runs_or_says_why_not() -> None:
    outcomes: Counter[str] = Counter()
    for entry in ENTRIES:
        data = definition(entry)
        if data is None:
            outcomes["without time"] += 1
            continue
        try:
            spec = spec_from_api(data, now=NOW, key=entry["id"])
        except TimingInvalid as error:
            outcomes["refused"] += 1
            assert all(re.search(r"write|did you mean|at'|R \(", fault.detail) for fault in error.errors), (
                entry,
                str(error),
            )
            continue
        outcomes["accepted"] += 1
        following, before = next_after(spec, NOW), previous_before(spec, NOW)
        assert following is not None and before is not None and before < NOW < following, entry
        assert (following - NOW).days < 366
        assert spec_from_json(spec_to_json(spec)) == spec
        assert len(describe(spec)) > 20 and isinstance(notes(spec), list)
    assert outcomes == {"accepted": ACCEPTED, "refused": REFUSED, "without time": WITHOUT_TIME}


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        ("R083", "for midnight write 0"),
        ("R086", "22-23,0-6"),
        ("R098", "no machine that starts"),
        ("R302", "Asia/Seoul"),
        ("R316", "'at'"),
        ("R453", "Iceland"),
        ("R488", "'0 18 ? * MON-FRI'"),
        ("R624", "Pacific/Honolulu"),
        ("R640", "Europe/Paris"),
        ("R667", "write H"),
    ],
)
def test_refusals_offer_a_way_out(number: str, hint: str) -> None:
    data = definition(next(entry for entry in ENTRIES if entry["id"] == number))
    assert data is not None
    with pytest.raises(TimingInvalid, match=re.escape(hint)):
        spec_from_api(data, now=NOW)


@pytest.mark.parametrize(
    ("number", "next_utc"),
    [
        ("R043", "2026-07-02T00:01:00Z"),  # 1,31 0-5 * * *
        ("R104", "2026-07-01T13:30:00Z"),  # 30 9 * * 1-5, New York
        ("R319", "2026-07-02T10:15:00Z"),  # 0 16 * * Mon-FRI, Kathmandu, +05:45
        ("R389", "2026-07-31T00:59:23Z"),  # 23 59 0 L * ?
        ("R391", "2026-07-01T12:45:00Z"),  # */45 */45 * * * *
        ("R405", "2026-07-25T23:00:00Z"),  # 0 0 23 ? * 6L *: the last Saturday here, Friday in Quartz
        ("R585", "2026-07-02T01:00:00Z"),  # 0 1 1-7 * 1: either
        ("R428", "2026-07-01T12:35:00Z"),  # */90 * * * * *: each minute
    ],
)
def test_some_next_runs(number: str, next_utc: str) -> None:
    entry = next(entry for entry in ENTRIES if entry["id"] == number)
    data = definition(entry)
    assert data is not None
    assert next_after(spec_from_api(data, now=NOW), NOW) == utc(next_utc)


def test_raw_texts_of_other_dialects_are_never_misread() -> None:
    """As written in their files: what is not plain cron is refused, and two thirds of the refusals know the dialect."""
    refused = [parsed for entry in ENTRIES if (parsed := parse_cron(entry["raw"].strip())).faults]
    known = [parsed for parsed in refused if parsed.faults[0].code in ("dialect", "alias")]
    assert len(refused) > 250 and len(known) > len(refused) * 2 / 3


def test_crontab_files_are_read_line_by_line() -> None:
    """The schedule part of each line of the whole crontabs parses; system tables have the user after it."""
    read = 0
    for path in sorted((CASES / "crontabs").glob("*.cron*")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if not re.match(r"\s*[\d*]", line):
                continue
            parsed = parse_cron(" ".join(line.split()[:5]))
            assert parsed.expression is not None, (path.name, line)
            assert isinstance(parsed.expression.first(0, 10**9), int)
            read += 1
    assert read == 48


def test_a_zone_at_the_end_of_a_sidekiq_file_is_explained() -> None:
    content = (CASES / "crontabs" / "11_sidekiq_cron_zone_in_expression.yml").read_text(encoding="utf-8")
    expressions = re.findall(r'cron: "(.*)"', content)
    assert len(expressions) == 6
    for expression in expressions:
        [fault] = parse_cron(expression).faults
        assert "timezone 'America/New_York'" in fault.detail
