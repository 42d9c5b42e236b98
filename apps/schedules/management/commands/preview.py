"""Shows when a schedule would run, before it is saved: local time, UTC and what the clock does."""

from datetime import datetime
from typing import Any

from django.core.management.base import CommandParser

from apps.schedules import timing
from apps.schedules.timing_preview import preview
from apps.schedules.timing_spec import CHOICES, instant_text
from apps.schedules.timing_trigger import read_instant
from kernel.clock import utc_now
from kernel.errors import Faults
from tenants.commands import Command as Base

MAX_COUNT = 10_000


class Command(Base):
    help = "Show the next runs of a schedule that need not exist. Exit 2 with the reason when the schedule is invalid."

    def add_arguments(self, parser: CommandParser) -> None:
        trigger = parser.add_mutually_exclusive_group(required=True)
        trigger.add_argument("--cron", action="append", metavar="EXPRESSION", help="May be given several times.")
        trigger.add_argument("--every", type=int, metavar="SECONDS")
        trigger.add_argument("--at", metavar="TIME")
        parser.add_argument("--anchor", metavar="TIME", help="Phase of --every; --start or --after when not given.")
        parser.add_argument("--timezone", help="IANA name, such as Europe/Berlin; UTC when not given.")
        parser.add_argument("--start", metavar="TIME", help="Start of the window, inclusive.")
        parser.add_argument("--end", metavar="TIME", help="End of the window, inclusive.")
        parser.add_argument("--jitter", type=int, default=0, metavar="SECONDS")
        parser.add_argument("--dst-gap", choices=CHOICES["dst_gap"])
        parser.add_argument("--dst-fold", choices=CHOICES["dst_fold"])
        parser.add_argument("--key", default="", help="Id of the schedule, which seeds H and jitter.")
        parser.add_argument("--after", metavar="TIME", help="Only later runs; now when not given.")
        parser.add_argument("--count", type=int, default=5, help=f"At most {MAX_COUNT}.")

    def handle(self, *args: Any, **options: Any) -> None:
        if not 1 <= options["count"] <= MAX_COUNT:
            self.refuse(f"--count must be from 1 to {MAX_COUNT}.")
        after = _after(options["after"])
        spec = timing.spec_from_api(_definition(options), now=after, key=options["key"])
        shown = preview(spec, after=after, count=options["count"], key=options["key"])
        answer = [
            {"nominal_local": each.nominal_local, "at": instant_text(each.at), "flags": each.flags} for each in shown
        ]
        lines = [timing.describe(spec), *(f"Note: {note}." for note in timing.notes(spec))]
        lines += [f"{each['nominal_local']}  {each['at']}  {' '.join(each['flags'])}".rstrip() for each in answer]
        self.show({"occurrences": answer}, "\n".join(lines), as_json=options["format"] == "json")


def _after(text: str | None) -> datetime:
    faults = Faults()
    after = utc_now() if text is None else read_instant(text, "--after", "UTC", faults)
    faults.raise_if_any()
    assert after is not None
    return after


def _definition(options: dict[str, Any]) -> dict[str, Any]:
    cron = options["cron"]
    if cron is not None:
        trigger = {"cron": cron[0] if len(cron) == 1 else cron}
    elif options["every"] is not None:
        trigger = {"every_s": options["every"], "anchor": options["anchor"]}
    else:
        trigger = {"at": options["at"]}
    return {
        "trigger": trigger,
        "timezone": options["timezone"],
        "start_at": options["start"],
        "end_at": options["end"],
        "jitter_s": options["jitter"],
        "dst_gap": options["dst_gap"],
        "dst_fold": options["dst_fold"],
    }
