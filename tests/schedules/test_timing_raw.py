"""Schedules as they stand in the files of 44 other tools: accepted, or refused with the tool's spelling named."""

import re
from typing import Any

import pytest

from apps.schedules.timing import TimingInvalid, next_after, spec_from_api
from tests.schedules.test_timing_real import ENTRIES, NOW, definition

ALONE = "write the expression alone"
BY_NAME = "by their place, not by name (Celery, Moodle)"
MIDNIGHT, OVER_THE_END = "for midnight write 0", "to go over the end write"
# What a refusal of each dialect must say.
DIALECTS: dict[str, tuple[str, ...]] = {
    "crontab": ("user column of a system crontab", "the line is commented out", "@reboot", MIDNIGHT, OVER_THE_END),
    "sidekiq": ("a zone inside the expression (sidekiq", "the line is commented out"),
    "snowflake": ("a zone inside the expression (sidekiq, Snowflake)",),
    "celery": (BY_NAME, "a number of seconds (Celery)"),
    "django-celery-beat": (BY_NAME,),
    "pfsense": (BY_NAME,),
    "moodle": (BY_NAME,),
    "apscheduler": (BY_NAME, ALONE),
    "whenever": ("a Ruby scheduler (whenever, clockwork)", ALONE),
    "clockwork": ("a Ruby scheduler (whenever, clockwork)",),
    "good_job": ("times in words",),
    "appengine": ("an interval in words",),
    "eventbridge": ("EventBridge's form", "cron(...) is another scheduler's form"),
    "jenkins": ("cron(...) is another scheduler's form", ALONE),
    "systemd": ("systemd's OnCalendar", "write '@hourly'"),
    "frappe": ("write '@hourly'", "write '@daily'"),
    "prow": ("an interval, as in Prow", ALONE),
    "robfig": ("not an IANA time zone name",),
    "spring": (MIDNIGHT,),
    "github": (ALONE, "leave the comment out"),
    **dict.fromkeys(
        ("airflow", "argo", "bullmq", "cloudflare", "config-dict", "dagster", "hangfire", "k8s", "laravel", "magento",
         "n8n", "nestjs", "node-cron", "nomad", "pg_cron", "reddit-devvit", "symfony", "vercel"), (ALONE,)),
}  # fmt: skip
# Raw texts whose refusal names no dialect, with the reason.
UNNAMED: dict[str, tuple[str, ...]] = {
    "a call of the framework; the schedule is its name or its numbers, there is no text of a schedule": (
        "R243", "R244", "R245", "R619", "R621", "R622", "R626", "R627", "R628", "R630", "R631", "R633", "R634"),
    "Celery with jitter of the project's own making": ("R228", "R232"),
    "code or a placeholder that first has to be run or filled in": ("R268", "R270", "R386", "R407"),
    "the number of a row of another table": ("R284", "R285", "R286", "R287", "R288"),
    "a dictionary": ("R289", "R290", "R684"),
    "named fields with a unit of their own, or with seconds, which has no five-field form": ("R292", "R296", "R297"),
    "an instant once, quoted in code": ("R316",),
    "words of Ruby that name a day and the time of it": (
        "R334", "R336", "R337", "R338", "R341", "R345", "R351", "R352", "R353"),
    "quoted, and with a fault inside": ("R583",),
    "two times in one line": ("R649",),
    "a queue's name that only Frappe gives a time": ("R675", "R678", "R679"),
    "options of a command": ("R686",),
}  # fmt: skip
# What an offer says of the zone or of the hours that stand beside the expression.
BESIDE = {
    "R302": "the timezone that KST stands for", "R303": "timezone 'Asia/Seoul'", "R319": "timezone 'Asia/Kathmandu'",
    "R307": "the timezone that timezone.utc stands for", "R318": "the timezone that CN_TZ stands for",
    "R320": "timezone 'America/New_York'", "R321": "timezone 'Europe/Oslo'", "R640": "timezone 'EUROPE/PARIS'",
    "R322": "the timezone that TIMEZONE stands for", "R323": "timezone 'UTC'",
    "R205": "timezone 'America/New_York'", "R614": "timezone 'Asia/Seoul'",
    "R518": "windows from 13:00 to 17:00", "R521": "windows from 16:00 to 22:00",
}  # fmt: skip


def asked(raw: str, key: str) -> list[str]:
    """Why a raw text is refused; empty when it is accepted."""
    try:
        spec_from_api({"trigger": {"cron": raw.strip()}}, now=NOW, key=key)
    except TimingInvalid as error:
        return [fault.detail for fault in error.errors]
    return []


def test_each_raw_text_is_accepted_or_its_dialect_is_named() -> None:
    unnamed = [number for numbers in UNNAMED.values() for number in numbers]
    assert len(unnamed) == len(set(unnamed))
    found, accepted = [], 0
    for entry in ENTRIES:
        told = asked(entry["raw"], entry["id"])
        if not told:
            accepted += 1
        elif not any(word in told[0] for word in DIALECTS.get(entry["dialect"], ())):
            found.append(entry["id"])
    assert sorted(found) == sorted(unnamed)
    assert accepted == 187


def wanted(entry: dict[str, Any]) -> dict[str, Any]:
    data = definition(entry)
    assert data is not None, entry
    return data


def test_an_accepted_raw_text_means_what_its_file_means() -> None:
    """The same trigger as the derived fields; and the same zone, where the text has one."""
    for entry in ENTRIES:
        if not asked(entry["raw"], entry["id"]):
            spec = spec_from_api({"trigger": {"cron": entry["raw"].strip()}}, now=NOW, key=entry["id"])
            assert spec.trigger == spec_from_api(wanted(entry), now=NOW, key=entry["id"]).trigger, entry
            if "TZ=" in entry["raw"]:
                assert spec.zone == entry["fields"]["timezone"]


def test_what_is_offered_instead_is_accepted_and_means_the_same() -> None:
    offers = 0
    for entry in ENTRIES:
        told = " ".join(asked(entry["raw"], entry["id"]))
        if match := re.search(r"write (?:the expression alone: )?'(@\w+|[^' ]+ [^']+)'", told):
            trigger: dict[str, Any] = {"cron": match[1]}
        elif match := re.search(r"every_s (\d+)", told):
            trigger = {"every_s": int(match[1])}
        else:
            continue
        offers += 1
        spec = spec_from_api({"trigger": trigger}, now=NOW, key=entry["id"])
        assert next_after(spec, NOW) is not None
        data = wanted(entry)["trigger"]
        if isinstance(data.get("cron"), str):  # R is Moodle's H, and EventBridge's text has a year at its end
            data["cron"] = re.sub(r"\bR\b", "H", data["cron"])
            if entry["dialect"] == "eventbridge" and len(data["cron"].split()) == 6:
                data["cron"] = data["cron"].removesuffix(" *")
        same = spec_from_api({"trigger": data}, now=NOW, key=entry["id"])
        assert next_after(spec, NOW) == next_after(same, NOW), (entry["id"], told, data)
    assert offers > 200


@pytest.mark.parametrize("number", BESIDE)
def test_an_offer_keeps_what_stands_beside_the_expression(number: str) -> None:
    entry = next(each for each in ENTRIES if each["id"] == number)
    [told] = asked(entry["raw"], number)
    assert f" {BESIDE[number]}." in told
