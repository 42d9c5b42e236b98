"""The page of what-if questions: a form, bars and a table. It reads, simulates for seconds, and changes nothing."""

import threading
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg
from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from psycopg.errors import QueryCanceled

from apps.audit.trail import database_now
from apps.console.reading import STATEMENT_MS
from apps.dispatch.simulation.asking import Question, answer_of, gather
from apps.dispatch.simulation.changes import KNOWN, read_sets
from apps.dispatch.simulation.scenarios import SCENARIOS
from apps.dispatch.simulation.text import percent, seconds
from apps.schedules.timing_trigger import read_instant
from kernel.errors import Faults, InvalidInput
from tenants import door
from tenants.registry import Registry

RUNS_MAX = 60_000
LIMIT_S = 6.0  # of each of two simulations
CHANGES_MAX = 20
SHOWN = 50  # tenants
BAR_W, ROW_H = 420, 52  # px: a tenant's name, and its two bars below
PERMISSIONS = ("tickets.view_ticket", "tenants.view_plan")
WINDOWS = (
    ("15", "the last 15 minutes"),
    ("60", "the last hour"),
    ("240", "the last 4 hours"),
    ("1440", "the last day"),
)
WINDOW = "window"
_one_at_a_time = threading.Lock()


class Form(forms.Form):
    """What is asked. Everything is in the address, so that it can be pasted."""

    source = forms.ChoiceField(
        label="Runs of",
        choices=[
            ("History", WINDOWS),
            ("A window", [(WINDOW, "history or schedules, between the times below")]),
            ("Schedules", [("+15", "the next 15 minutes"), ("+60", "the next hour")]),
            ("Synthetic", [(name, f"{name}: {one['about']}") for name, one in SCENARIOS.items()]),
        ],
    )
    since = forms.CharField(
        label="From", required=False, max_length=40,
        help_text="Of a window: such as 2026-11-30T08:00Z, UTC where it names no offset. Past or future, not both.",
    )  # fmt: skip
    until = forms.CharField(label="To", required=False, max_length=40, help_text="At most seven days later.")
    changes = forms.CharField(
        label="What if", required=False, max_length=2_000, widget=forms.Textarea(attrs={"rows": 4, "cols": 60}),
        help_text="A change in each line, such as tenant.acme.weight=3 or slots.http=400. Nothing: only the present.",
    )  # fmt: skip
    seed = forms.IntegerField(initial=0, min_value=0, max_value=2**31, required=False)


class Bar(NamedTuple):
    """One tenant in the picture: two bars, in pixels."""

    slug: str
    y: int
    present: float
    what_if: float | None


@admin.site.admin_view
def page(request: HttpRequest) -> HttpResponse:
    """The form, and with a question its answer."""
    if not request.user.has_perms(PERMISSIONS):
        raise PermissionDenied
    form = Form(request.GET if "source" in request.GET else None)
    context: dict[str, Any] = {
        **admin.site.each_context(request), "title": "What if", "place": "overview", "form": form, "known": KNOWN,
        "runs_max": f"{RUNS_MAX:,}", "limit_s": LIMIT_S,
    }  # fmt: skip
    status = 200
    if form.is_bound and not form.is_valid():
        status = 400
    elif form.is_bound:
        found, fault, status = _answered(form.cleaned_data)
        context["fault"] = fault
        if found is not None:
            context |= _shown(found)
    return TemplateResponse(request, "console/simulate.html", context, status=status)


def _answered(asked: dict[str, Any]) -> tuple[dict[str, Any] | None, str, int]:
    if not _one_at_a_time.acquire(blocking=False):
        return None, "Another simulation is running here. Ask again in some seconds.", 503
    try:
        lines = [line for line in asked["changes"].splitlines() if line.strip()]
        if len(lines) > CHANGES_MAX:
            return None, f"At most {CHANGES_MAX} changes.", 400
        question = _question(asked, lines)
        line = door.Line("simulate page", opened=_short_statements)
        try:
            registry = Registry(line)
            registry.refresh(force=True)
            material = gather(question, now=database_now(), conn=line.get(), tenancies=registry.by_id)
        finally:
            line.close()
        return answer_of(question, material), "", 200
    except InvalidInput as error:
        return None, " ".join(f"{fault.pointer}: {fault.detail}" for fault in error.errors), 400
    except QueryCanceled:
        return None, "Reading takes too long: choose a shorter window.", 503
    finally:
        _one_at_a_time.release()


def _short_statements(conn: "psycopg.Connection[Any]") -> None:
    conn.execute(f"SET statement_timeout = {STATEMENT_MS}")


def _question(asked: dict[str, Any], lines: list[str]) -> Question:
    changes, source, seed = read_sets(lines), asked["source"], asked["seed"] or 0
    if source in SCENARIOS:
        return Question(changes, seed, SCENARIOS[source], runs_max=RUNS_MAX, limit_s=LIMIT_S)
    since, until = _window(asked) if source == WINDOW else _around(database_now(), source)
    return Question(changes, seed, None, since, until, runs_max=RUNS_MAX, limit_s=LIMIT_S)


def _window(asked: dict[str, Any]) -> tuple[datetime | None, datetime | None]:
    faults = Faults()
    since, until = (
        read_instant(asked[name], label, "UTC", faults) for name, label in (("since", "From"), ("until", "To"))
    )
    faults.raise_if_any()
    return since, until


def _around(now: datetime, minutes: str) -> tuple[datetime, datetime]:
    """The last so many minutes, or with a plus sign the next."""
    length = timedelta(minutes=int(minutes))
    return (now, now + length) if minutes.startswith("+") else (now - length, now)


def _shown(found: dict[str, Any]) -> dict[str, Any]:
    before, after = found["present"]["tenants"], found.get("what_if", {"tenants": {}})["tenants"]
    slugs = sorted(before.keys() | after.keys(), key=lambda slug: (-(before.get(slug, {}).get("p95") or 0), slug))
    longest = max([one["p95"] or 0 for side in (before, after) for one in side.values()], default=0) or 1
    bars = [
        Bar(
            slug, place * ROW_H, _width(before.get(slug), longest),
            _width(after.get(slug), longest) if "what_if" in found else None,
        )
        for place, slug in enumerate(slugs[:SHOWN])
    ]  # fmt: skip
    rows = [(slug, _cells(before.get(slug)), _cells(after.get(slug)), _error(found, slug)) for slug in slugs[:SHOWN]]
    pools = [
        (name, _use(pool), _use(found.get("what_if", {"pools": {}})["pools"].get(name)))
        for name, pool in found["present"]["pools"].items()
    ]
    return {
        "answer": found, "rows": rows, "pools": pools, "bars": bars, "left_out": max(0, len(slugs) - SHOWN),
        "svg_h": len(bars) * ROW_H, "svg_w": BAR_W, "longest": seconds(longest), "runs": f"{found['window']['runs']:,}",
    }  # fmt: skip


def _width(one: dict[str, Any] | None, longest: float) -> float:
    return round(BAR_W * ((one or {}).get("p95") or 0) / longest, 1)


def _cells(one: dict[str, Any] | None) -> list[str]:
    """runs, p50, p95, p99, longest, share of what was due, what held it back."""
    if one is None:
        return ["-"] * 7
    share = "-" if one["share_of_due"] is None else f"{one['share_of_due']:.0%}{' starved' if one['starved'] else ''}"
    held = ", ".join(f"{code} {total:,.0f} s" for code, total in list(one["held_by_s"].items())[:2])
    times = [seconds(one[name]) for name in ("p50", "p95", "p99", "longest")]
    return [f"{one['runs']:,}", *times, share, held or "-"]


def _error(found: dict[str, Any], slug: str) -> str:
    return percent(found.get("error", {"tenants": {}})["tenants"].get(slug, {}).get("p95"))


def _use(pool: dict[str, Any] | None) -> str:
    if pool is None or pool["utilisation"] is None:
        return "-"
    return f"{pool['utilisation']:.0%} of {pool['slots']:,}"
