"""Shows when a schedule would run, before it is saved: local time, UTC and what the clock does."""

from datetime import datetime
from typing import Any

from django.core.management.base import CommandParser

from apps.schedules import timing
from apps.schedules.timing_preview import Occurrence, left_out, preview, preview_previous
from apps.schedules.timing_spec import CHOICES
from apps.schedules.timing_trigger import read_instant
from apps.schedules.timing_triggers import instant_text
from kernel.clock import utc_now
from kernel.errors import Faults
from tenants.commands import Command as Base

MAX_COUNT = 10_000


class Command(Base):
    help = "Show the next runs of a schedule that need not exist. Exit 2 with the reason when the schedule is invalid."

    def add_arguments(self, parser: CommandParser) -> None:
        trigger = parser.add_mutually_exclusive_group(required=True)
        trigger.add_argument("--cron", action="append", metavar="EXPRESSION", help="May be given several times.")
        trigger.add_argument("--every", metavar="SECONDS", help="Or a length: 90s, 1h30m, 1 month, 2 weeks.")
        trigger.add_argument("--rrule", metavar="RULE", help="RFC 5545, such as FREQ=MONTHLY;BYDAY=-1FR.")
        trigger.add_argument("--at", metavar="TIME")
        parser.add_argument(
            "--anchor", metavar="TIME", help="Phase of --every, DTSTART of --rrule; --start or --after when not given."
        )
        parser.add_argument("--timezone", help="IANA name, such as Europe/Berlin; UTC when not given.")
        parser.add_argument("--start", metavar="TIME", help="Start of the window, inclusive.")
        parser.add_argument("--end", metavar="TIME", help="End of the window, inclusive.")
        parser.add_argument("--jitter", type=int, default=0, metavar="SECONDS")
        parser.add_argument("--dst-gap", choices=CHOICES["dst_gap"])
        parser.add_argument("--dst-fold", choices=CHOICES["dst_fold"])
        parser.add_argument("--key", default="", help="Id of the schedule, which seeds H and jitter.")
        parser.add_argument("--after", metavar="TIME", help="Only later runs; now when not given.")
        parser.add_argument("--until", metavar="TIME", help="Only runs up to this, inclusive.")
        parser.add_argument("--count", type=int, help=f"At most {MAX_COUNT}; 5, or with --until {MAX_COUNT}.")
        parser.add_argument("--previous", type=int, default=0, metavar="N", help="Also the last N before --after.")
        parser.add_argument("--window", action="append", metavar="FROM-TO", help="Such as 08:00-18:00; several times.")
        parser.add_argument("--outside", choices=CHOICES["outside"], help="What happens outside of windows.")
        parser.add_argument("--max-runs", type=int, metavar="N")

    def handle(self, *args: Any, **options: Any) -> None:
        count = options["count"] if options["count"] is not None else 5 if options["until"] is None else MAX_COUNT
        if not 1 <= count <= MAX_COUNT or not 0 <= options["previous"] <= MAX_COUNT:
            self.refuse(f"--count must be from 1 to {MAX_COUNT}, --previous from 0.")
        zone = options["timezone"] if options["timezone"] in timing.zone_names() else "UTC"
        after = _instant("--after", options["after"], zone) or utc_now()
        until = _instant("--until", options["until"], zone)
        if until is not None and until <= after:
            self.refuse("--until must be later than --after, or than now.")
        spec = timing.spec_from_api(_definition(options), now=after, key=options["key"])
        shown = preview(spec, after=after, until=until, count=count, key=options["key"])
        earlier = preview_previous(spec, before=after, count=options["previous"], key=options["key"])
        answer = [_line(each) for each in shown]
        before = [_line(each) for each in earlier]
        notes = timing.notes(spec)
        if not options["key"]:
            notes += timing.seed_notes(spec, _definition(options)["trigger"])
        lines = [timing.describe(spec), *(f"Note: {note}." for note in notes)]
        lines += [_text(each) for each in before] + ["--- now ---"] * bool(before) + [_text(each) for each in answer]
        whole: dict[str, Any] = {"occurrences": answer}
        if before:
            whole["previous"] = before
        end = until if until is not None and len(shown) < count else shown[-1].nominal_at if shown else after
        missing = left_out(spec, after=after, until=end)
        if missing:
            whole["left_out"] = [{"nominal_local": each.nominal_local, "flags": each.flags} for each in missing]
            lines += [f"{each.nominal_local}  does not run: {each.words[0]}" for each in missing]
        self.show(whole, "\n".join(lines), as_json=options["format"] == "json")


def _line(each: Occurrence) -> dict[str, Any]:
    return {"nominal_local": each.nominal_local, "at": instant_text(each.at), "flags": each.flags}


def _text(line: dict[str, Any]) -> str:
    return f"{line['nominal_local']}  {line['at']}  {' '.join(line['flags'])}".rstrip()


def _instant(name: str, text: str | None, zone: str) -> datetime | None:
    faults = Faults()
    found = None if text is None else read_instant(text, name, zone, faults)
    faults.raise_if_any()
    return found


def _definition(options: dict[str, Any]) -> dict[str, Any]:
    cron = options["cron"]
    if cron is not None:
        trigger = {"cron": cron[0] if len(cron) == 1 else cron}
    elif options["every"] is not None:
        trigger = {**_every(options["every"]), "anchor": options["anchor"]}
    elif options["rrule"] is not None:
        trigger = {"rrule": options["rrule"].replace("\\n", "\n"), "dtstart": options["anchor"]}
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
        "windows": [_window(text) for text in options["window"]] if options["window"] else None,
        "outside": options["outside"],
        "max_runs": options["max_runs"],
    }


def _every(text: str) -> dict[str, Any]:
    if text.lstrip("-").isdigit():
        return {"every_s": int(text)}
    number, _, unit = text.partition(" ")
    if number.isdigit() and unit:
        return {"every": {unit if unit.endswith("s") else unit + "s": int(number)}}
    return {"every": text}


def _window(text: str) -> dict[str, str]:
    start, _, end = text.partition("-")
    return {"from": start, "to": end}
