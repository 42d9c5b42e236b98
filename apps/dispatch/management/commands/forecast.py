"""How many runs are expected, and when: the fullest minutes, who is in them, and what jitter would make of one."""

from datetime import UTC, datetime
from typing import Any

import orjson
from django.core.management.base import CommandParser

from apps.dispatch.forecast.capacity import Capacity, capacity_of
from apps.dispatch.forecast.summing import fullest
from apps.dispatch.forecast.trying import Trial, try_jitter
from apps.due import forecast
from apps.due.forecast import WEEK_HOURS, Total
from apps.schedules.load_hints import JITTERS_S, minute_of
from apps.schedules.loads import hint_shape, load_hint
from apps.schedules.reading import schedules_with
from apps.schedules.timing import spec_from_json
from apps.schedules.timing_trigger import read_instant
from apps.schedules.timing_triggers import instant_text
from apps.usage import pressure
from kernel.errors import Faults
from tenants import door
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base
from tenants.models import Tenant
from tenants.work import database_now, in_tenant


class Command(Base):
    help = (
        "Say how many runs of all tenants are expected in the next week. Exit 1 when a minute is above what the"
        " workers can carry, or when nothing is known."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--fullest", type=int, default=5, metavar="N", help="So many of the fullest minutes. 5")
        parser.add_argument("--hours", type=int, default=0, metavar="N", help="And the next N hours, up to 168.")
        parser.add_argument("--tenant", metavar="SLUG", help="With --jitter or --schedule.")
        parser.add_argument(
            "--jitter", type=int, metavar="S",
            help="A dry run: the fullest minute, or that of --at, if the tenant's schedules in it had so much jitter.",
        )  # fmt: skip
        parser.add_argument("--at", metavar="TIME", help="With --jitter: a minute of the next 24 hours.")
        parser.add_argument("--schedule", metavar="ID", help="What this schedule meets: its load_hint.")

    def handle(self, *args: Any, **options: Any) -> None:
        now, conn = database_now(), door.raw()
        if not 0 <= options["hours"] <= WEEK_HOURS or not 0 <= options["fullest"] <= 100:
            self.refuse(f"--hours is from 0 to {WEEK_HOURS}, --fullest from 0 to 100.")
        if (options["jitter"] is not None or options["schedule"] is not None) != bool(options["tenant"]):
            self.refuse("--tenant goes with --jitter or --schedule.")
        total = forecast.read(conn)
        if total is None:
            self.show(
                {"known": False}, "Nothing is known yet: a dispatcher makes the forecast.", as_json=_json(options)
            )
            raise SystemExit(EXIT_FOUND)
        if options["schedule"]:
            self._schedule(self.tenant(options["tenant"]), options, now)
        elif options["jitter"] is not None:
            self._try(self.tenant(options["tenant"]), total, options, now)
        else:
            self._all(total, options, now)

    def _all(self, total: Total, options: dict[str, Any], now: datetime) -> None:
        capacity = capacity_of(pressure.read(door.raw()))
        known = dict(total.of_minutes(now))
        peaks = {one["at"]: one["tenants"] for one in total.peaks}
        sample = next(((one["looked_at"], one["entries"]) for one in total.peaks if "looked_at" in one), None)
        slugs = dict(Tenant.objects.values_list("pk", "slug")) if peaks else {}
        minutes = [
            {"at": at, "runs": known[at],
             "tenants": [[slugs.get(one[0], "gone"), one[1]] for one in peaks.get(at, ())] or None}
            for at in fullest(total, now, options["fullest"])
        ]  # fmt: skip
        shape = {
            "known": True, "as_of": total.made_at, "entries": total.entries, "oldest_at": total.oldest_at,
            "next_60_minutes": sum(runs for _, runs in total.of_minutes(now, 60)), "next_24_hours": sum(known.values()),
            "next_7_days": sum(runs for _, runs in total.of_hours(now)),
            "tenants_from": sample and {"looked_at": sample[0], "entries": sample[1]},
            "capacity_per_minute": capacity and round(capacity.per_minute), "fullest": minutes,
            "hours": [{"at": at, "runs": runs} for at, runs in total.of_hours(now, options["hours"])],
        }  # fmt: skip
        self.show(shape, _text(shape, capacity), as_json=_json(options))
        if capacity is not None and max(known.values(), default=0) > capacity.per_minute:
            raise SystemExit(EXIT_FOUND)

    def _try(self, tenant: Tenant, total: Total, options: dict[str, Any], now: datetime) -> None:
        jitter_s = options["jitter"]
        if not 1 <= jitter_s <= JITTERS_S[-1]:
            self.refuse(f"--jitter is from 1 to {JITTERS_S[-1]} seconds.")
        minute = next(iter(fullest(total, now, 1)), None)
        if options["at"]:
            faults = Faults()
            given = read_instant(options["at"], "/at", "UTC", faults)
            minute = None if given is None else minute_of(given.astimezone(UTC))
        if minute is None or minute not in dict(total.of_minutes(now)):
            self.refuse("Give a minute of the next 24 hours as --at.")
        trial = try_jitter(door.raw(), tenant, total, minute=minute, jitter_s=jitter_s, now=now)
        shape = {
            "minute": minute, "jitter_s": jitter_s, **trial._asdict(), "fullest_before": trial.fullest_before,
            "fullest_after": trial.fullest_after,
        }  # fmt: skip
        self.show(shape, _tried(trial, minute, jitter_s, tenant), as_json=_json(options))

    def _schedule(self, tenant: Tenant, options: dict[str, Any], now: datetime) -> None:
        key = self.id_of(options["schedule"])
        found = in_tenant(tenant, lambda: schedules_with([key]))
        if not found:
            self.refuse("There is no such schedule.")
        told = load_hint(door.raw(), spec_from_json(found[0].definition.spec), key=str(key), now=now)
        if told is None:
            self.show({"load_hint": None}, "It does not run within a day.", as_json=_json(options))
            return
        hint = told.hint
        lines = [
            f"{hint.level}: {instant_text(hint.at)} has {hint.times_usual:g} times the runs of the average minute."
        ]
        lines += [
            f"{name}: {orjson.dumps(one.changes).decode()}; {_at(one.at)} would have {one.times_usual:g} times."
            for name, one in (("Another minute", hint.quieter), ("Jitter", hint.jitter)) if one is not None
        ]  # fmt: skip
        self.show({"load_hint": hint_shape(told)}, "\n".join(lines), as_json=_json(options))


def _json(options: dict[str, Any]) -> bool:
    return bool(options["format"] == "json")


def _text(shape: dict[str, Any], capacity: Capacity | None) -> str:
    lines = [
        f"{shape['entries']:,} due entries, as of {_at(shape['as_of'])}; all read since {_at(shape['oldest_at'])}.",
        f"Expected runs: {shape['next_60_minutes']:,} in 60 minutes, {shape['next_24_hours']:,} in 24 hours,"
        f" {shape['next_7_days']:,} in 7 days.",
        "Capacity: " + (
            "not known, no live worker was measured." if capacity is None
            else f"{capacity.per_minute:,.0f} a minute, {capacity.slots:,} slots."
        ),
    ]  # fmt: skip
    if shape["fullest"]:
        lines.append("Fullest minutes of the next 24 hours" + _sampled(shape["tenants_from"]) + ":")
    for one in shape["fullest"]:
        who = ", ".join(f"{slug} {runs:,}" for slug, runs in (one["tenants"] or ())[:5])
        lines.append(f"  {_at(one['at'])}  {one['runs']:>9,}  {who}".rstrip())
    if shape["hours"]:
        lines.append("By hours:")
    lines += [f"  {_at(one['at'])}  {one['runs']:>9,}" for one in shape["hours"]]
    return "\n".join(lines)


def _sampled(sample: dict[str, int] | None) -> str:
    if sample is None or sample["looked_at"] >= sample["entries"]:
        return ""
    return f", tenants about, from {sample['looked_at']:,} of {sample['entries']:,} due entries"


def _tried(trial: Trial, minute: datetime, jitter_s: int, tenant: Tenant) -> str:
    lines = [
        f"{trial.runs:,} runs of {tenant.slug} in {_at(minute)}, spread over {jitter_s} s: the fullest of these minutes"
        f" has {trial.fullest_after:,} runs instead of {trial.fullest_before:,}. Nothing was changed."
    ]
    if trial.capped:
        lines.append(f"Only {trial.looked_at:,} of its schedules were looked at.")
    near = ", ".join(f"{_at(at)} ({runs:,})" for at, runs in trial.quietest)
    return "\n".join([*lines, f"Quietest minutes near it: {near}."] if near else lines)


def _at(at: datetime) -> str:
    return instant_text(at.replace(microsecond=0))
