"""Other schedulers' spellings are refused with the equivalent, and the equivalent is one."""

import re
from datetime import UTC, datetime

import pytest

from apps.schedules import timing
from apps.schedules.timing import TimingInvalid, spec_from_api

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def refusal(text: str) -> str:
    with pytest.raises(TimingInvalid) as caught:
        spec_from_api({"trigger": {"cron": text}}, now=NOW)
    (error,) = caught.value.errors
    return error.detail


@pytest.mark.parametrize(
    ("text", "equivalent"),
    [
        ("Mon..Fri *-*-* 09:00", "0 9 * * MON-FRI"),
        ("OnCalendar=Mon *-*-* 09:00:00 Europe/Berlin", "0 9 * * MON"),
        ("*-*-01 00:00:00", "0 0 1 * *"),
        ("*-01,07-01 03:00", "0 3 1 1,7 *"),
        ("Sat,Sunday 08:30:15", "15 30 8 * * SAT,SUN"),
        ("*:0/15", "*/15 * * * *"),
        ("*-*-* *:05/10:00", "5/10 * * * *"),
        ("0 3 * * * /usr/bin/backup --all", "0 3 * * *"),
        ("0 3 * * * root /usr/bin/backup", "0 3 * * *"),
        ("*/5 * * * * python manage.py send", "*/5 * * * *"),
        ("every day at 9", "0 9 * * *"),
        ("every weekday at 9:30", "30 9 * * 1-5"),
        ("every Monday at 5 pm", "0 17 * * MON"),
        ("every sunday at 12am", "0 0 * * SUN"),
        ("cron(0 18 ? * 2-6 *)", "0 18 ? * MON-FRI"),
    ],
)
def test_another_dialect_gets_its_equivalent(text: str, equivalent: str) -> None:
    found = re.search(r"write '([^']+)'", refusal(text))
    assert found and found[1] == equivalent
    spec_from_api({"trigger": {"cron": equivalent}}, now=NOW)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("at(2026-11-20T13:00:00)", "use a trigger with 'at' and 2026-11-20T13:00:00"),
        ("2026-01-02 03:04:05", "a single instant"),
        ("cron_tz=Europe/Berlin 0 9 * * *", "CRON_TZ= in capitals"),
        ("OnCalendar=Mon *-*-* 09:00 Europe/Berlin", "timezone 'Europe/Berlin'"),
        ("0 0 LW-1 * *", "takes no offset"),
        ("0 0 W * *", "W needs its day"),
        ("0 0 * * SAT-MON", "SAT,SUN,MON"),
        ("0 0 * * 5-1", "FRI,SAT,SUN,MON"),
        ("every day at 25", "every_s 86400"),
    ],
)
def test_what_has_no_equivalent_says_what_to_do(text: str, says: str) -> None:
    assert says in refusal(text)


def test_quartz_weekdays_are_read_as_crons_with_a_note() -> None:
    spec = spec_from_api({"trigger": {"cron": "0 0 12 ? * 2-6"}}, now=NOW)
    assert any("Quartz" in note for note in timing.notes(spec))
    assert "Tuesday to Saturday" in timing.describe(spec)
    assert timing.notes(spec_from_api({"trigger": {"cron": "0 0 12 * * 2-6"}}, now=NOW)) == []


@pytest.mark.parametrize(
    ("trigger", "words"),
    [
        ("FREQ=DAILY;BYHOUR=9", "Every day at 09:00 from 2026-01-01"),
        ("FREQ=DAILY;BYHOUR=1,2;BYMINUTE=0,30", "Every day at 01:00, 01:30, 02:00 and 02:30 from 2026-01-01"),
        ("FREQ=DAILY;UNTIL=20260103", "Every day at 00:00 from 2026-01-01 until 2026-01-03"),
        ("FREQ=DAILY;BYMINUTE=0,1,2,3,4,5,6;COUNT=1", "at minute 0, 1, 2, 3, 4, 5 and 6 of hour 0 from"),
        ("FREQ=HOURLY;BYHOUR=9,10", "Every hour in the hours 9 and 10"),
        ("DTSTART:20260101T000000\nRRULE:FREQ=WEEKLY\nRDATE:20260105T000000", "and at 1 more instant ("),
    ],
)  # fmt: skip
def test_rules_have_words(trigger: str, words: str) -> None:
    assert words in timing.describe(spec_from_api({"trigger": {"rrule": trigger}}, now=NOW))


def test_a_rule_of_hours_keeps_elapsed_time_and_says_so() -> None:
    def noted(rule: str) -> list[str]:
        return timing.notes(spec_from_api({"trigger": {"rrule": rule}, "timezone": "Europe/Berlin"}, now=NOW))

    assert ["elapsed time" in note for note in noted("FREQ=HOURLY")] == [True]
    assert ["skips its time" in note for note in noted("FREQ=DAILY")] == [True]
    assert noted("FREQ=MINUTELY;INTERVAL=5") == []


@pytest.mark.parametrize(
    ("trigger", "jitter_s", "says"),
    [
        ({"cron": "H 3 * * *"}, 0, "picks H:"),
        ({"cron": ["0 3 * * *", "H(0-29)/10 * * * *"]}, 5, "picks H and jitter:"),
        ({"cron": "0 3 * * *"}, 5, "picks jitter:"),
        ({"every_s": 60}, 0, ""),
        ({"cron": "0 3 * MAR THU"}, 0, ""),
    ],
)
def test_a_preview_without_an_id_says_what_the_id_will_pick(trigger: object, jitter_s: int, says: str) -> None:
    spec = spec_from_api({"trigger": trigger, "jitter_s": jitter_s}, now=NOW)
    notes = timing.seed_notes(spec, trigger)
    assert [says in note for note in notes] == ([True] if says else [])
