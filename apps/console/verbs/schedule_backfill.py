"""Past occurrences of a schedule, once more or for the first time: what it would do is looked at before it is done."""

from __future__ import annotations

from typing import Any

from django import forms

from apps.console.roles import OPERATE
from apps.console.schedules.access import schedule_url
from apps.console.verbs.base import Ask, Line, Preview, Receipt, Step
from apps.console.verbs.registry import register
from apps.console.verbs.schedules import OfSchedule
from apps.operations.backfill.reading import outlook_shape
from apps.operations.backfill.recognising import ONLY
from apps.operations.backfill.services import Rehearsal, backfill_ask
from apps.operations.backfill.wish import AT_ONCE
from apps.operations.backfill.within import ORDERS
from apps.operations.pacing import WHOLE_MAX
from apps.presenting.shown import moment
from kernel.errors import InvalidInput

TIME_CHARS = 40
ONLY_WORDS = {"missing": "that never ran", "failed": "that have failed", "all": "all of them, once more"}
ORDER_WORDS = {"asc": "the oldest first", "desc": "the newest first"}
WHEN = "A date, or a time such as 2026-03-01T08:00, in the schedule's zone."


class BackfillForm(forms.Form):
    """`begin` and `end` are "from" and "to" of the service: the first is a word of Python's."""

    begin = forms.CharField(label="From", max_length=TIME_CHARS, help_text=WHEN)
    end = forms.CharField(label="To", max_length=TIME_CHARS, help_text="The same. It does not belong to the range.")
    only = forms.ChoiceField(label="Those", choices=[(one, ONLY_WORDS[one]) for one in ONLY])
    order = forms.ChoiceField(choices=[(one, ORDER_WORDS[one]) for one in ORDERS])
    max_in_flight = forms.IntegerField(
        label="At once", min_value=1, max_value=WHOLE_MAX, required=False, help_text=f"Runs; empty: {AT_ONCE}."
    )


@register
class Backfill(OfSchedule):
    """Live work goes first; it is an operation, which can be paused and cancelled."""

    name, label, level, key, form, look_first = "schedule.backfill", "Backfill", OPERATE, "b", BackfillForm, True

    def look(self, ask: Ask) -> Preview:
        found = self.found(ask)
        link = schedule_url(ask.inside, found.schedule.pk)
        title, version = f"{self.label}: {found.schedule.name}", self.version(found)
        lines = [Line("Schedule", found.schedule.name), Line("Job", found.schedule.job.name)]
        if not ask.given:
            text = "Say which of its past occurrences are to run, then look at what that would do."
            return Preview(title, lines, version, [text], link=link)
        try:
            outlook = self._outlook(ask)
        except InvalidInput as error:
            said = "; ".join(f"{LABELS.get(one.pointer, one.pointer)}: {one.detail}" for one in error.errors)
            return Preview(title, lines, version, refused=said, link=link)
        if not outlook["count"]:
            said = "There is nothing in this range to run."
            return Preview(title, [*lines, *_lines(outlook)], version, refused=said, link=link)
        return Preview(title, [*lines, *_lines(outlook)], version, outlook["warnings"], link=link)

    def do(self, ask: Ask) -> Receipt:
        found = self.as_seen(ask)
        made = backfill_ask(
            tenant=ask.inside, actor=ask.actor, schedule_id=found.schedule.pk, now=ask.now,
            data={**_data(ask), "reason": ask.reason},
        )  # fmt: skip
        assert not isinstance(made, Rehearsal)
        slug = ask.inside.slug
        return Receipt(
            "The backfill was asked for, and begins within moments.", f"/t/{slug}/admin/backfills/{made.pk}/",
            then=[Step("operation.pause", str(made.pk), slug), Step("operation.cancel", str(made.pk), slug)],
        )  # fmt: skip

    def _outlook(self, ask: Ask) -> dict[str, Any]:
        found = self.found(ask)
        seen = backfill_ask(
            tenant=ask.inside, actor=ask.actor, schedule_id=found.schedule.pk, now=ask.now,
            data={**_data(ask), "dry_run": True},
        )  # fmt: skip
        assert isinstance(seen, Rehearsal)
        return outlook_shape(*seen)


LABELS = {"/from": "From", "/to": "To"}


def _data(ask: Ask) -> dict[str, Any]:
    given = {name: value for name, value in ask.given.items() if value not in (None, "")}
    return {{"begin": "from", "end": "to"}.get(name, name): value for name, value in given.items()}


def _lines(outlook: dict[str, Any]) -> list[Line]:
    """What it would do, and what that means for the tenant's quotas."""
    counted = [(name.replace("_", " "), count) for name, count in outlook["standings"].items() if count]
    standings = "".join(f", {count:,} {name}" for name, count in counted)
    found = [
        Line("Occurrences in the range", f"{outlook['occurrences']:,}{standings}"),
        Line("Would run", f"{outlook['count']:,}"),
    ]
    if outlook["count"]:
        found.append(Line("First and last", f"{moment(outlook['first'])} and {moment(outlook['last'])} UTC"))
        ends = f"{moment(outlook['expected_end'])} UTC" if outlook["expected_end"] else "not known"
        found.append(Line("Would have ended about", ends))
    return [*found, *(_quota(one) for one in outlook["quotas"])]


def _quota(one: dict[str, Any]) -> Line:
    used = f"{one['use']:,} of {one['limit']:,} in use, this adds {one['adds']:,}"
    return Line(f"Quota {one['quota'].replace('_', ' ')}", used if one["enough"] else f"{used}: too much")
