"""Schedules that people run: each is accepted and runs, or is refused with a reason that helps."""

import re
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from croniter import CroniterError, croniter
from cronsim import CronSim, CronSimError

from apps.schedules.cron_parse import parse_cron
from apps.schedules.timing import (
    Cron,
    Spec,
    TimingInvalid,
    describe,
    load_zone,
    next_after,
    notes,
    occurrences,
    previous_before,
    spec_from_api,
    spec_from_json,
    spec_to_json,
)
from tests.schedules.cases import CASES, read_cases, utc
from tests.schedules.reader import read, runs

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


def accepted() -> list[tuple[dict[str, Any], Spec]]:
    found = []
    for entry in ENTRIES:
        data = definition(entry)
        if data is not None and entry["id"] not in REFUSALS:
            found.append((entry, spec_from_api(data, now=NOW, key=entry["id"])))
    return found


def test_each_entry_is_accepted_refused_or_without_time() -> None:
    specs = accepted()
    without = [entry["id"] for entry in ENTRIES if definition(entry) is None]
    assert (len(specs), len(REFUSALS), len(without)) == (ACCEPTED, REFUSED, WITHOUT_TIME)
    for entry, spec in specs:
        before = previous_before(spec, NOW)
        assert before is not None and before < NOW, entry
        assert spec_from_json(spec_to_json(spec)) == spec
        assert len(describe(spec)) > 20 and isinstance(notes(spec), list)


def turn(zone: ZoneInfo) -> datetime | None:
    """Three hours before the zone's next change of the clock; None without one in a year."""
    at, offset = NOW, NOW.astimezone(zone).utcoffset()
    while at < NOW + timedelta(days=366):
        if at.astimezone(zone).utcoffset() != offset:
            return at - timedelta(hours=3)
        at += timedelta(minutes=30)
    return None


def oracle(entry: dict[str, Any], spec: Spec, after: datetime) -> list[datetime]:
    """The next three by a walk over the minutes of the entry's zone; of an interval by counting from its anchor."""
    if "interval_s" in entry["fields"]:
        every = timedelta(seconds=entry["fields"]["interval_s"])
        following = NOW + ((after - NOW) // every + 1) * every
        return [following + number * every for number in range(3)]
    text = entry["fields"]["cron"]
    if re.search(r"\bH\b", text):  # what H picked is within its field; what stands beside it is as it was written
        assert isinstance(spec.trigger, Cron)
        text = spec.trigger.exprs[0]
    return list(islice(runs(read(text), load_zone(spec.zone), after), 3))


def test_the_next_three_runs_are_those_of_a_walk_over_the_minutes() -> None:
    """From a fixed instant, and again from just before the next change of the zone's clock."""
    specs, turns = accepted(), {}
    compared = 0
    for entry, spec in specs:
        if spec.zone not in turns:
            turns[spec.zone] = turn(load_zone(spec.zone))
        for after in (NOW, turns[spec.zone]):
            if after is not None:
                found = list(occurrences(spec, after=after, limit=3))
                assert found == oracle(entry, spec, after), (entry["id"], entry["fields"], after)
                compared += 1
    assert compared == ACCEPTED + sum(turns[spec.zone] is not None for _, spec in specs) > ACCEPTED


@pytest.mark.parametrize(
    ("text", "picked"),
    [
        ("H H/6 * * *", r"[1-5]?\d [0-5]-23/6 \* \* \*"),
        ("H H * * *", r"[1-5]?\d (1?\d|2[0-3]) \* \* \*"),
        ("H/5 * * * *", r"[0-4]-59/5 \* \* \* \*"),
        ("H 08 * * 1-5", r"[1-5]?\d 8 \* \* 1-5"),
        ("H */4 * * 1-5", r"[1-5]?\d \*/4 \* \* 1-5"),
    ],
)
def test_what_h_picks_is_within_its_field(text: str, picked: str) -> None:
    found = set()
    for number in range(50):
        trigger = spec_from_api({"trigger": {"cron": text}}, now=NOW, key=str(number)).trigger
        assert isinstance(trigger, Cron) and re.fullmatch(picked, trigger.exprs[0]), trigger
        found.add(trigger.exprs)
    assert len(found) >= 5


# Where the peers answer otherwise or refuse: they are asked for each accepted cron entry, at both instants.
CRONSIM_REFUSES = {
    "aliases": {"R063", "R064", "R311", "R323", "R467", "R530"},
    "whole names of days": {"R234"},
    "ranges that end with SUN": {"R294", "R298"},
    "?": {"R378", "R380", "R381", "R384", "R385", "R389", "R395", "R397", "R398", "R399", "R400", "R401", "R402",
          "R403", "R406"},
    "seven fields": {"R405", "R459"},
}  # fmt: skip
CRONITER_REFUSES = {"whole names of days": {"R234"}, "6L, which it spells L6": {"R405"}}
CRONITER_DIFFERS = {"a fixed-time job runs in both passes of a repeated hour": {"R149", "R152"}}


def test_each_difference_from_cronsim_and_croniter_has_its_reason() -> None:
    refuses: dict[str, set[str]] = {"cronsim": set(), "croniter": set()}
    differs: dict[str, set[str]] = {"cronsim": set(), "croniter": set()}
    for entry, spec in accepted():
        if not isinstance(spec.trigger, Cron):
            continue
        zone, text = load_zone(spec.zone), entry["fields"]["cron"]
        text = spec.trigger.exprs[0] if re.search(r"\bH\b", text) else text
        for after in (NOW, turn(zone)) if zone.key in ("America/New_York", "Europe/London") else (NOW,):
            assert after is not None
            ours, local = list(occurrences(spec, after=after, limit=3)), after.astimezone(zone)
            for peer, ask in (("cronsim", by_cronsim), ("croniter", by_croniter)):
                try:
                    theirs = ask(text, local)
                except (CronSimError, CroniterError):
                    refuses[peer].add(entry["id"])
                else:
                    if theirs != ours:
                        differs[peer].add(entry["id"])
    assert refuses == {
        "cronsim": set().union(*CRONSIM_REFUSES.values()),
        "croniter": set().union(*CRONITER_REFUSES.values()),
    }
    assert differs == {"cronsim": set(), "croniter": set().union(*CRONITER_DIFFERS.values())}


def by_cronsim(text: str, local: datetime) -> list[datetime]:
    return [at.astimezone(UTC) for at in islice(CronSim(text, local), 3)]


def by_croniter(text: str, local: datetime) -> list[datetime]:
    peer = croniter(text, local, second_at_beginning=True)
    return [peer.get_next(datetime).astimezone(UTC) for _ in range(3)]


# Refused fields: what names the dialect or the fault, and what to write: cron fields, a trigger, a zone, or nothing.
REFUSALS: dict[str, tuple[str, dict[str, Any] | None]] = {
    **dict.fromkeys(("R081", "R083"), ("for midnight write 0", {"cron": "0 0 * * *"})),
    "R086": ("write 22-23,0-6", {"cron": "*/5 22-23,0-6 * * *"}),
    "R089": ("write 22-23,0-6", {"cron": "0 22-23,0-6 * * mon-fri"}),
    "R091": ("write 22-23/1,0-6/1", {"cron": "0 22-23/1,0-6/1 * * *"}),
    "R093": ("write 22-23,0-6", {"cron": "0,30 22-23,0-6 * * *"}),
    "R583": ("write 22-23,0-6", {"cron": "*/20 22-23,0-6 * * *"}),
    "R392": ("for midnight write 0", {"cron": "0 0 0 * * ? *"}),
    **dict.fromkeys(("R098", "R099", "R100", "R101", "R102"), ("@reboot", None)),
    "R316": ("Airflow", None),
    "R228": ("Moodle", {"cron": "H */6 * * *"}),
    **dict.fromkeys(("R232", "R667"), ("Moodle", {"cron": "H 3 * * *"})),
    "R668": ("Moodle", {"cron": "H H * * *"}),
    "R669": ("Moodle", {"cron": "H H * * H"}),
    "R302": ("not an IANA time zone", {"timezone": "Asia/Seoul"}),
    "R453": ("not an IANA time zone", {"timezone": "Iceland"}),
    "R624": ("Windows", {"timezone": "Pacific/Honolulu"}),
    "R640": ("not an IANA time zone", {"timezone": "Europe/Paris"}),
    "R480": ("EventBridge", {"cron": "00 5-14 * * ?"}),
    "R488": ("EventBridge", {"cron": "0 18 ? * MON-FRI"}),
    "R489": ("EventBridge", {"cron": "0 * * * ?"}),
    "R491": ("EventBridge", {"cron": "0 10 * * ?"}),
    "R494": ("EventBridge", {"cron": "0 */6 * * ?"}),
    "R496": ("EventBridge", {"cron": "0,30 11,12,13,14 ? APR,MAY,JUN,JUL,AUG,SEP SAT,SUN"}),
}


def refused(entry: dict[str, Any]) -> list[str]:
    """The details of a refusal; empty when the entry is accepted or has no time."""
    if (data := definition(entry)) is None:
        return []
    try:
        spec_from_api(data, now=NOW, key=entry["id"])
    except TimingInvalid as error:
        return [fault.detail for fault in error.errors]
    return []


def test_each_refusal_names_its_dialect_and_offers_what_is_accepted() -> None:
    found = {entry["id"]: told for entry in ENTRIES if (told := refused(entry))}
    assert found.keys() == REFUSALS.keys() and len(found) == REFUSED
    for number, (word, instead) in REFUSALS.items():
        assert any(word in detail for detail in found[number]), (number, found[number])
        data = definition(next(entry for entry in ENTRIES if entry["id"] == number))
        assert data is not None
        if instead is None:
            assert all("trigger with 'at'" in detail for detail in found[number])
            continue
        if "timezone" in instead:
            assert instead["timezone"] in found[number][0]
            data |= instead
        else:
            offered = next((re.search(r"write '([^']+)'", detail) for detail in found[number]), None)
            assert offered is None or offered[1] == instead["cron"]
            data["trigger"] = instead
        assert next_after(spec_from_api(data, now=NOW, key=number), NOW) is not None


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
        ("R527", "2026-07-01T12:34:05Z"),  # */5 * * * * *: every five seconds; Nomad reads a year, every five minutes
        ("R529", "2027-01-01T00:07:15Z"),  # 15 7 * * 1,3,5 *: seconds first; in Nomad 07:15 on three days of the week
    ],
)
def test_some_next_runs(number: str, next_utc: str) -> None:
    entry = next(entry for entry in ENTRIES if entry["id"] == number)
    data = definition(entry)
    assert data is not None
    assert next_after(spec_from_api(data, now=NOW), NOW) == utc(next_utc)


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
