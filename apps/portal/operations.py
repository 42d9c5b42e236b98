"""Operations: what was asked for over many things, how far it is, and what became of each."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest, HttpResponse

from apps.operations.models import Operation
from apps.operations.pacing import NAMES as PACE_NAMES
from apps.operations.reading import items_read, name_of, operation_access, undo_blocked
from apps.operations.states import ITEM_STATES, STATES, sources_of
from apps.portal.pages import Offer, Page
from apps.presenting.fields import Field, Form, Option, choices
from apps.presenting.paging import listed, newest, number_of
from apps.presenting.progress import bar, counted
from apps.presenting.shown import look_of
from apps.schedules.names import names_of

SHOWN_ITEMS = 100


class OperationList(Page):
    """All of them, newest first."""

    actions = {"GET": "operation.read"}
    section = "operations"

    def get(self, request: HttpRequest) -> HttpResponse:
        form = Form([Field("state", "State", "select", options=[Option("", "any"), *choices(STATES)])])
        form.take(request.GET)
        state = form.text("state")
        found = Operation.objects.filter(state=state) if state in STATES else Operation.objects.all()
        rows = [(one, bar(one)) for one in newest(request, found)]
        return self.page(
            "portal/operations.html", title="Operations", form=form, filtered=bool(state),
            listed=listed(request, rows, key=lambda row: row[0].pk),
        )  # fmt: skip


class OperationDetail(Page):
    """One of them, with its items."""

    actions = {"GET": "operation.read"}
    section = "operations"

    def get(self, request: HttpRequest, operation_id: UUID) -> HttpResponse:
        one = operation_access(actor=self.actor, operation_id=operation_id, need="operation.read")
        state = request.GET.get("state", "")
        state = state if state in ITEM_STATES else ""
        page = items_read(one, states=[state] if state else [], after=number_of(request), size=SHOWN_ITEMS)
        targets = [item.target_id for item in page.rows]
        names = names_of(
            jobs=targets if one.target == "jobs" else (), schedules=targets if one.target == "schedules" else ()
        )
        known = {str(key): name for key, name in (*names.jobs.items(), *names.schedules.items())}
        return self.page(
            "portal/operation.html", title=name_of(one), one=one, bar=bar(one), more=page.after,
            items=[(item, known.get(str(item.target_id), item.target_id)) for item in page.rows],
            counts=counted(one), state=state, offers=self._offers(one),
            pace=[(name.replace("_", " "), getattr(one, name)) for name in PACE_NAMES if getattr(one, name)],
        )  # fmt: skip

    def _offers(self, one: Operation) -> list[Offer]:
        found = []
        for verb, label, kind in (
            ("resume", "Resume", "primary"), ("pause", "Pause", ""), ("update", "Change its pace", ""),
            ("undo", "Undo", ""), ("cancel", "Cancel", "danger"),
        ):  # fmt: skip
            if one.state in sources_of("cancel" if verb == "update" else verb):
                found.append(
                    self.offer(label, f"portal:operation-{verb}", f"operation.{verb}", one.pk, kind=kind,
                               blocked=undo_blocked(one) if verb == "undo" else "")
                )  # fmt: skip
        return found


def state_word(one: Operation) -> str:
    """Its state as a word."""
    return look_of(one.state).word
