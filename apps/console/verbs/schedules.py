"""Schedules: run now, pause, resume, delete, put an older version back."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django import forms

from apps.console.reading import as_uuid
from apps.console.roles import OPERATE, RESPOND
from apps.console.schedules.access import MISSING, access_schedule, list_url, schedule_url
from apps.console.schedules.missed import Missed, missed_while
from apps.console.verbs.base import Ask, Line, Preview, Receipt, Step, Verb, version_of
from apps.console.verbs.live import page_of
from apps.console.verbs.registry import register
from apps.dispatch.submit import schedule_trigger
from apps.presenting.schedule_shown import differences
from apps.presenting.shown import look_of, moment
from apps.schedules import services
from apps.schedules.defined import DefinedSchedule, schedule_as_given
from apps.schedules.models import ScheduleVersion
from apps.schedules.reading import schedule_shapes
from apps.schedules.schedule_input import health_of, runs_of, timing_of, waiting_of
from apps.schedules.timing import TimingInvalid, spec_from_json
from apps.schedules.timing_preview import preview
from apps.schedules.timing_spec import CHOICES
from apps.schedules.timing_trigger import read_instant
from kernel.errors import Faults, NotFound, Stale

NEXT = 3
VALUE_CHARS = 300
TIME_CHARS = 40


class OfSchedule(Verb):
    """What they share: how the schedule stands, what comes next, and that it is still what was looked at."""

    scope = "tenant"
    title = ""

    def look(self, ask: Ask) -> Preview:
        found = self.found(ask)
        (shape,) = schedule_shapes(ask.inside, [found], now=ask.now)
        lines = [
            Line("Schedule", found.schedule.name), Line("Job", found.schedule.job.name),
            Line("Status", look_of(shape["status"]).word, self.becomes(shape)),
            *(Line(f"Next run {number}", text) for number, text in enumerate(_next(found, shape, ask.now), 1)),
        ]  # fmt: skip
        return Preview(
            title=f"{self.label}: {found.schedule.name}", lines=[*lines, *self.more(ask, found, shape)],
            version=self.version(found), warnings=self.warnings(ask, found, shape), refused=self.refused(shape),
            link=schedule_url(ask.inside, found.schedule.pk),
        )  # fmt: skip

    def version(self, found: DefinedSchedule) -> str:
        return version_of(found.schedule.pk, found.schedule.revision)

    def found(self, ask: Ask) -> DefinedSchedule:
        """The schedule. NotFound."""
        key = as_uuid(ask.target.partition("/")[0])
        if key is None:
            raise NotFound(MISSING)
        return access_schedule(key)

    def as_seen(self, ask: Ask) -> DefinedSchedule:
        """The schedule, to do something to it. NotFound; Stale when it is no longer as it was looked at."""
        found = self.found(ask)
        if ask.version != self.version(found):
            raise Stale("The schedule has changed since; look again.")
        return found

    def becomes(self, shape: dict[str, Any]) -> str | None:
        """The status it has then; None where it stays."""
        return None

    def more(self, ask: Ask, found: DefinedSchedule, shape: dict[str, Any]) -> list[Line]:
        return []

    def warnings(self, ask: Ask, found: DefinedSchedule, shape: dict[str, Any]) -> list[str]:
        return []

    def refused(self, shape: dict[str, Any]) -> str:
        return ""


class TriggerForm(forms.Form):
    overlap = forms.ChoiceField(
        label="When runs of it are alive", required=False,
        choices=[("", "as the schedule says"), *((one, one.replace("_", " ")) for one in CHOICES["overlap"])],
    )  # fmt: skip


@register
class Trigger(OfSchedule):
    """Its job once, now."""

    name, label, level, key, form = "schedule.trigger", "Run now", RESPOND, "r", TriggerForm

    def warnings(self, ask: Ask, found: DefinedSchedule, shape: dict[str, Any]) -> list[str]:
        said = ["Its job runs once, with the schedule's payload. The next runs stay as they are."]
        if found.schedule.job.paused_at is not None:
            said.append("What it runs is paused: the run waits until that is resumed.")
        return said

    def do(self, ask: Ask) -> Receipt:
        found = self.as_seen(ask)
        made = schedule_trigger(
            tenant=ask.inside, actor=ask.actor, schedule_id=found.schedule.pk, now=ask.now,
            overlap=ask.given.get("overlap") or None, reason=ask.reason,
        )  # fmt: skip
        return Receipt(
            f"{found.schedule.name} was started as {made}.", page_of(ask, made),
            undo=Step("execution.cancel", str(made), ask.inside.slug),
        )  # fmt: skip


class PauseForm(forms.Form):
    resume_at = forms.CharField(
        label="Go on by itself at",
        max_length=TIME_CHARS,
        required=False,
        help_text="Such as 2026-03-01T08:00, in the schedule's zone. Empty: until somebody resumes it.",
    )


@register
class Pause(OfSchedule):
    """Nothing of it runs until a time, or until somebody resumes it."""

    name, label, level, key, form = "schedule.pause", "Pause", RESPOND, "p", PauseForm

    def becomes(self, shape: dict[str, Any]) -> str | None:
        return look_of("paused").word

    def refused(self, shape: dict[str, Any]) -> str:
        return "It is completed: there is nothing to pause." if shape["status"] == "completed" else ""

    def more(self, ask: Ask, found: DefinedSchedule, shape: dict[str, Any]) -> list[Line]:
        faults = Faults()
        until = _resume_at(ask, found, faults)
        if faults.errors:
            return [Line("Goes on by itself", faults.errors[0].detail)]
        if until is None:
            return [Line("Goes on", "when somebody resumes it")]
        missed = missed_while(found, since=ask.now, until=until, now=until, catch_up=False)
        return [Line("Goes on by itself", f"{moment(until)} UTC"), *_missed_lines(missed)]

    def warnings(self, ask: Ask, found: DefinedSchedule, shape: dict[str, Any]) -> list[str]:
        missed = (
            "What is due before that is left out."
            if ask.given.get("resume_at")
            else "Whoever resumes it says whether what was missed is made up for, as its misfire policy says."
        )
        return ["What runs now goes on. No debt builds up while it is paused.", missed]

    def do(self, ask: Ask) -> Receipt:
        found, faults = self.as_seen(ask), Faults()
        until = _resume_at(ask, found, faults)
        faults.raise_if_any()
        services.schedule_pause(
            tenant=ask.inside, actor=ask.actor, schedule_id=found.schedule.pk, now=ask.now, reason=ask.reason,
            resume_at=until, expect={found.schedule.revision},
        )  # fmt: skip
        ends = f" It goes on by itself at {moment(until)} UTC." if until is not None else ""
        return Receipt(
            f"{found.schedule.name} is paused.{ends}", schedule_url(ask.inside, found.schedule.pk),
            undo=Step("schedule.resume", ask.target, ask.inside.slug),
        )  # fmt: skip


class ResumeForm(forms.Form):
    catch_up = forms.BooleanField(label="Make up for what it missed, as its misfire policy says", required=False)


@register
class Resume(OfSchedule):
    """It goes on from now."""

    name, label, level, key, form = "schedule.resume", "Resume", RESPOND, "p", ResumeForm

    def becomes(self, shape: dict[str, Any]) -> str | None:
        return look_of("active").word

    def refused(self, shape: dict[str, Any]) -> str:
        return "" if shape["status"] == "paused" else "It is not paused."

    def more(self, ask: Ask, found: DefinedSchedule, shape: dict[str, Any]) -> list[Line]:
        if shape["paused_at"] is None:
            return []
        catch_up = bool(ask.given.get("catch_up"))
        return _missed_lines(
            missed_while(found, since=shape["paused_at"], until=ask.now, now=ask.now, catch_up=catch_up)
        )  # fmt: skip

    def do(self, ask: Ask) -> Receipt:
        found = self.as_seen(ask)
        services.schedule_resume(
            tenant=ask.inside, actor=ask.actor, schedule_id=found.schedule.pk, now=ask.now,
            catch_up=bool(ask.given.get("catch_up")), expect={found.schedule.revision}, reason=ask.reason,
        )  # fmt: skip
        return Receipt(
            f"{found.schedule.name} goes on.", schedule_url(ask.inside, found.schedule.pk),
            undo=Step("schedule.pause", ask.target, ask.inside.slug),
        )  # fmt: skip


@register
class Delete(OfSchedule):
    """It never runs again."""

    name, label, level, hard = "schedule.delete", "Delete", OPERATE, True

    def becomes(self, shape: dict[str, Any]) -> str | None:
        return "deleted"

    def warnings(self, ask: Ask, found: DefinedSchedule, shape: dict[str, Any]) -> list[str]:
        return ["It never runs again. Its history stays, and what runs now goes on. This can't be taken back."]

    def do(self, ask: Ask) -> Receipt:
        found = self.as_seen(ask)
        services.schedule_delete(
            tenant=ask.inside, actor=ask.actor, schedule_id=found.schedule.pk, now=ask.now,
            expect={found.schedule.revision}, reason=ask.reason,
        )  # fmt: skip
        return Receipt(f"{found.schedule.name} is deleted.", list_url(ask.inside))


@register
class Restore(OfSchedule):
    """An older version in the place of the current one: the undo of an edit. The target is `<schedule>/<version>`."""

    name, label, level = "schedule.restore", "Put it back", OPERATE

    def button(self, target: str) -> str:
        """Versions do not hold all that an edit may have changed."""
        return "Put it back (not name and labels)"

    def more(self, ask: Ask, found: DefinedSchedule, shape: dict[str, Any]) -> list[Line]:
        older = _older(ask, found)
        changed = differences(schedule_as_given(found), _as_of(found, older))
        return [
            Line("Version put back", str(older.version)),
            *(Line(name, _text(now_is), _text(then)) for name, now_is, then in changed),
        ]

    def warnings(self, ask: Ask, found: DefinedSchedule, shape: dict[str, Any]) -> list[str]:
        return ["Name and labels stay as they are: versions do not hold them."]

    def do(self, ask: Ask) -> Receipt:
        found = self.as_seen(ask)
        data = _as_of(found, _older(ask, found))
        before = found.schedule.version
        saved = services.schedule_replace(
            tenant=ask.inside, actor=ask.actor, schedule_id=found.schedule.pk, data=data, now=ask.now,
            expect={found.schedule.revision}, reason=ask.reason,
        )  # fmt: skip
        schedule = saved.schedule
        return Receipt(
            f"{schedule.name} is as it was, and version {schedule.version} now.",
            schedule_url(ask.inside, schedule.pk),
            undo=Step(self.name, f"{schedule.pk}/{before}", ask.inside.slug),
        )  # fmt: skip


def _next(found: DefinedSchedule, shape: dict[str, Any], now: datetime) -> list[str]:
    after = max(now, shape["resume_at"] or now)
    try:
        runs = preview(
            spec_from_json(found.definition.spec), after=after, count=NEXT, key=str(found.schedule.pk)
        )  # fmt: skip
    except TimingInvalid:
        return []
    return [f"{moment(one.at)} UTC" for one in runs]


def _resume_at(ask: Ask, found: DefinedSchedule, faults: Faults) -> datetime | None:
    text = str(ask.given.get("resume_at") or "").strip()
    if not text:
        return None
    try:
        zone = spec_from_json(found.definition.spec).zone
    except TimingInvalid:  # a text that can't be read has no zone, and may be paused all the same
        zone = "UTC"
    until = read_instant(text, "/resume_at", zone, faults)
    if until is not None and until <= ask.now:
        faults.add("/resume_at", "past", "This lies in the past; leave it empty to resume it by hand.")
    return until


def _missed_lines(missed: Missed) -> list[Line]:
    if missed.ends is None:
        return [Line("Missed meanwhile", "nothing")]
    first, last = (f"{moment(one)} UTC" for one in missed.ends)
    span = f"{missed.count:,}, from {first} to {last}" if missed.count > 1 else f"1, at {first}"
    return [Line("Missed meanwhile", span), Line("Of those would run", f"{missed.made_up:,}")]


def _older(ask: Ask, found: DefinedSchedule) -> ScheduleVersion:
    text = ask.target.partition("/")[2]
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0
    older = ScheduleVersion.objects.filter(schedule_id=found.schedule.pk, version=number).first()
    if older is None:
        raise NotFound("There is no such version.")
    return older


def _as_of(found: DefinedSchedule, older: ScheduleVersion) -> dict[str, Any]:
    """The schedule as its owner could have written it, with what decides and what is sent from the older version."""
    definition, schedule = older.definition, found.schedule
    named = UUID(definition.get("job") or definition.get("workflow") or str(schedule.job_id))
    return {
        **schedule_as_given(found), **runs_of(definition, named), **timing_of(definition), **health_of(definition),
        **waiting_of(definition), "payload": older.payload,
    }  # fmt: skip


def _text(value: Any) -> str:
    text = "-" if value is None else str(value)
    return text if len(text) <= VALUE_CHARS else f"{text[:VALUE_CHARS]}..."
