"""Why the sentence on every page says what it says: the evidence, what to do, and the verbs that do it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest

from apps.console.pages import page
from apps.console.snapshot.middleware import snapshot_of
from apps.console.verdict.runbooks import RUNBOOKS
from apps.console.verdict.values import Verdict


@page("cause", "cause/", title="Cause", template="console/cause.html", place="overview")
def cause(request: HttpRequest, now: datetime) -> dict[str, Any]:
    """All rules that hold, the one of the sentence first. `?code=` puts another one first."""
    found = snapshot_of(request)
    verdicts = list(found.verdicts) if found is not None else []
    wanted = request.GET.get("code", "")
    verdicts.sort(key=lambda one: one.code != wanted)  # stable: the others keep their order
    shown = [_shown(one) for one in verdicts]
    return {
        "first": shown[0] if shown else None, "others": shown[1:], "made_at": found.made_at if found else now,
        "title": "Cause" if shown and shown[0]["verdict"].code != "on_time" else "All is well",
    }  # fmt: skip


def _shown(one: Verdict) -> dict[str, Any]:
    return {"verdict": one, "runbook": RUNBOOKS[one.code]}
