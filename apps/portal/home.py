"""The first page: how it stands in one sentence, what comes next, what failed last."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from apps.executions.filtering import ExecutionFilter
from apps.executions.reading import executions_read
from apps.portal.executions import lines
from apps.portal.looking import look
from apps.portal.pages import Page
from apps.portal.standing import sentence_of

SHOWN = 6


class Home(Page):
    """The overview."""

    actions = {"GET": "execution.read"}
    section = "home"

    def get(self, request: HttpRequest) -> HttpResponse:
        facts, ahead = look(self.tenant, now=self.now)
        failed = executions_read(self.tenant, ExecutionFilter(states=["dead", "expired"]), size=SHOWN).rows
        running = executions_read(self.tenant, ExecutionFilter(states=["running"]), size=SHOWN).rows
        shown = lines([*failed, *running], now=self.now)
        return self.page(
            "portal/home.html", title="Overview", facts=facts, standing=sentence_of(facts), ahead=ahead,
            failed=shown[: len(failed)], running=shown[len(failed) :],
            hour=sum(facts.last_hour.values()), done=facts.last_hour.get("succeeded", 0),
            dead=facts.last_hour.get("dead", 0),
        )  # fmt: skip
