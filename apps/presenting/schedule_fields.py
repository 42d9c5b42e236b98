"""The form of a schedule: from a definition to fields, and back to what the service reads.

Whatever the form has no field for stands as JSON in `more`, so that an edit here loses nothing that was set elsewhere.
Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from apps.presenting.fields import Field, Form, Option, choices
from apps.presenting.json_input import read_json
from apps.schedules.schedule_input import DEFAULTS
from apps.schedules.timing_spec import CHOICES
from kernel.errors import Faults, InvalidInput

UNITS = {"86400": "days", "3600": "hours", "60": "minutes", "1": "seconds"}
KINDS = (
    Option("cron", "Cron"), Option("every_s", "Interval"), Option("at", "Once"), Option("rrule", "Recurrence rule"),
    Option("other", "JSON"),
)  # fmt: skip
TEXTS = ("timezone", "start_at", "end_at", "calendar", "external_id")
NUMBERS = ("jitter_s", "grace_s", "max_runs", "pause_after_failures", "probe_after_s", "max_queue_age_s")
SELECTS = ("misfire", "overlap", "dst_gap", "dst_fold", "on_excluded")
MORE = ("misfire_max", "misfire_max_age_s", "misfire_order", "catch_up_per_s", "overlap_max", "windows", "outside")
WORKFLOW_PREFIX = "workflow:"  # what the field `job` has before the id of a workflow
# Where the service's pointers lead; the trigger's lead to the field of its kind.
PLACES = {**dict.fromkeys(MORE, "more"), "workflow": "job"}
CRON_HELP = "Five fields, or six with seconds first. Several: one a line. H spreads load."
JITTER_HELP = "Each run waits a part of it, always the same for one occurrence."
MISFIRE_WORDS = {
    "skip": "leave it out", "fire_once": "run once, for the newest one", "fire_latest_n": "run the newest ones",
    "fire_all": "run them all",
}  # fmt: skip
OVERLAP_WORDS = {
    "allow": "run beside them", "skip": "leave this one out", "buffer_one": "wait, one at most",
    "buffer_all": "wait, all of them", "cancel_running": "stop those and run",
    "replace_pending": "take the waiting one's place",
}  # fmt: skip
WORDS = {"misfire": MISFIRE_WORDS, "overlap": OVERLAP_WORDS}


class Offered(NamedTuple):
    """What can be chosen: id and name of each."""

    jobs: Sequence[tuple[str, str]]
    workflows: Sequence[tuple[str, str]]
    calendars: Sequence[tuple[str, str]]


def schedule_form(*, offered: Offered) -> Form:
    """Empty, with the defaults."""
    jobs = [*(Option(*one) for one in offered.jobs), *(_workflow(*one) for one in offered.workflows)]
    calendars = [Option(*one) for one in offered.calendars]
    return Form([
        Field("name", "Name", required=True),
        Field("job", "Job or workflow", "select", options=[Option("", "choose one"), *jobs],
              required=True),
        Field("kind", "Kind", "radio", "cron", options=KINDS),
        Field("cron", "Cron expression", "code", rows=2, help=CRON_HELP),
        Field("every", "Every", "number"),
        Field("unit", "Unit", "select", "60", options=[Option(*one) for one in UNITS.items()]),
        Field("at", "At", help="Such as 2026-03-01T08:00 in the time zone below, or with an offset."),
        Field("rrule", "Rule", "code", rows=2, help="Such as FREQ=MONTHLY;BYDAY=-1FR (RFC 5545)."),
        Field("dtstart", "First occurrence", help="DTSTART. Empty: from now on."),
        Field("trigger", "Trigger", "code", rows=5, help='As the API takes it, such as {"every": {"weeks": 2}}.'),
        Field("timezone", "Time zone", value="UTC", suggestions="zones"),
        Field("start_at", "Not before", help="Empty: from now on."),
        Field("end_at", "Not after", help="Empty: without an end."),
        Field("misfire", "When a run was missed", "select", "fire_once", options=_worded("misfire")),
        Field("grace_s", "Missed after", "number", "60", unit="s late"),
        Field("overlap", "When the last run still goes on", "select", "allow", options=_worded("overlap")),
        Field("jitter_s", "Spread over", "number", "0", unit="s", help=JITTER_HELP),
        Field("max_queue_age_s", "Expire when not started after", "number", unit="s", help="Empty: as the job says."),
        Field("max_runs", "End after", "number", unit="runs"),
        Field("pause_after_failures", "Pause after", "number", unit="failures in a row"),
        Field("probe_after_s", "Then try once after", "number", unit="s"),
        Field("dst_gap", "When the clock skips its time", "select", "run_after", options=choices(CHOICES["dst_gap"])),
        Field("dst_fold", "When its time comes twice", "select", "first", options=choices(CHOICES["dst_fold"])),
        Field("calendar", "Calendar of days to leave out", "select", options=[Option("", "none"), *calendars]),
        Field("on_excluded", "On a day that is left out", "select", "skip", options=choices(CHOICES["on_excluded"])),
        Field("payload", "Payload", "code", rows=4, help="JSON. Empty: the job's."),
        Field("labels", "Labels", "area", rows=2, help="One a line, such as team: billing."),
        Field("external_id", "External id", help="Your own id for it, such as its name in your repository."),
        Field("more", "Other members", "code", rows=4, help=f"JSON object with any of: {', '.join(MORE)}."),
        Field("revision", "Revision", "hidden"),
    ])  # fmt: skip


def fill(form: Form, given: Mapping[str, Any]) -> None:
    """From a definition, as the API would answer it."""
    form["name"].value, form["job"].value = str(given.get("name") or ""), str(given.get("job") or "")
    if given.get("workflow"):
        form["job"].value = f"{WORKFLOW_PREFIX}{given['workflow']}"
    for name in (*TEXTS, *NUMBERS, *SELECTS):
        value = given.get(name)
        form[name].value = "" if value is None else str(value)
    form["timezone"].value = form["timezone"].value or "UTC"
    _offer_calendar(form)
    _fill_trigger(form, given.get("trigger") or {})
    form["payload"].value = "" if given.get("payload") is None else _text(given["payload"])
    form["labels"].value = "\n".join(f"{name}: {value}" for name, value in (given.get("labels") or {}).items())
    more = {name: given[name] for name in MORE if given.get(name) not in (None, DEFAULTS[name])}
    form["more"].value = _text(more) if more else ""


def definition_of(form: Form) -> dict[str, Any]:
    """What the service reads. InvalidInput with what can't even be told."""
    faults = Faults()
    chosen = form.text("job")
    word = "workflow" if chosen.startswith(WORKFLOW_PREFIX) else "job"
    data: dict[str, Any] = {"name": form.text("name"), word: chosen.removeprefix(WORKFLOW_PREFIX) or None}
    data["trigger"] = _trigger(form, faults)
    for name in (*TEXTS, *SELECTS):
        if form.text(name):
            data[name] = form.text(name)
    for name in NUMBERS:
        if form.text(name):
            data[name] = _number(form, name, faults)
    for name in ("payload", "more"):
        try:
            value = read_json(form, name)
        except InvalidInput as error:
            faults.errors += error.errors
            continue
        if name == "payload" and value is not None:
            data["payload"] = value
        elif name == "more" and value is not None:
            _take_more(data, value, faults)
    data["labels"] = labels_of(form, faults)
    faults.raise_if_any()
    return data


def labels_of(form: Form, faults: Faults) -> dict[str, str]:
    """One a line, `name: value`."""
    found: dict[str, str] = {}
    for line in form.text("labels").splitlines():
        name, colon, value = line.partition(":")
        if not line.strip():
            continue
        if not colon:
            faults.add("/labels", "type", f"{line.strip()[:60]!r} is none: write name: value.")
            continue
        found[name.strip()] = value.strip()
    return found


def places_of(form: Form) -> dict[str, str]:
    """Where faults of the trigger belong, by its kind."""
    kind = form.text("kind")
    return {
        **PLACES,
        "trigger": {"every_s": "every", "other": "trigger"}.get(kind, kind if kind in form.fields else "cron"),
    }


def _trigger(form: Form, faults: Faults) -> Any:
    kind = form.text("kind")
    if kind == "cron":
        lines = [line.strip() for line in form.text("cron").splitlines() if line.strip()]
        if not lines:
            faults.add("/trigger/cron", "required", "Give an expression, such as 0 3 * * *.")
        return {"cron": lines[0] if len(lines) == 1 else lines}
    if kind == "every_s":
        every = _number(form, "every", faults, pointer="/trigger/every_s")
        unit = int(form.text("unit")) if form.text("unit") in UNITS else 1
        return {"every_s": every * unit if isinstance(every, int) else every}
    if kind == "at":
        return {"at": form.text("at")}
    if kind == "rrule":
        start = form.text("dtstart")
        return {"rrule": form.text("rrule"), **({"dtstart": start} if start else {})}
    try:
        return read_json(form, "trigger")
    except InvalidInput as error:
        faults.errors += error.errors
        return None


def _fill_trigger(form: Form, trigger: Mapping[str, Any]) -> None:
    given = {name: value for name, value in trigger.items() if value is not None}
    names = set(given)
    form["kind"].value = "other"
    form["trigger"].value = _text(given)
    if names == {"cron"}:
        form["kind"].value = "cron"
        form["cron"].value = given["cron"] if isinstance(given["cron"], str) else "\n".join(given["cron"])
    elif names == {"every_s"} and isinstance(given["every_s"], int):
        form["kind"].value = "every_s"
        unit = next(unit for unit in UNITS if given["every_s"] % int(unit) == 0)
        form["every"].value, form["unit"].value = str(given["every_s"] // int(unit)), unit
    elif names == {"at"}:
        form["kind"].value, form["at"].value = "at", str(given["at"])
    elif "rrule" in names and names <= {"rrule", "dtstart"} and isinstance(given["rrule"], str):
        form["kind"].value, form["rrule"].value = "rrule", given["rrule"]
        form["dtstart"].value = str(given.get("dtstart") or "")


def _take_more(data: dict[str, Any], more: Any, faults: Faults) -> None:
    if not isinstance(more, dict):
        faults.add("/more", "type", "must be a JSON object.")
        return
    for name, value in more.items():
        if name not in MORE:
            faults.add("/more", "unknown_field", f"{name[:60]!r} does not belong here: {', '.join(MORE)}.")
        else:
            data[name] = value


def _number(form: Form, name: str, faults: Faults, *, pointer: str = "") -> int | None:
    text = form.text(name)
    if text.isascii() and text.isdigit() and len(text) < 16:
        return int(text)
    faults.add(pointer or f"/{name}", "type", "must be a whole number.")
    return None


def _workflow(key: str, name: str) -> Option:
    return Option(f"{WORKFLOW_PREFIX}{key}", f"workflow: {name}")


def _offer_calendar(form: Form) -> None:
    value = form["calendar"].value
    if value and value not in {one.value for one in form["calendar"].options}:
        form["calendar"].options = [*form["calendar"].options, Option(value, value)]


def _worded(name: str) -> list[Option]:
    return [Option(value, WORDS[name].get(value, value.replace("_", " "))) for value in CHOICES[name]]


def _text(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
