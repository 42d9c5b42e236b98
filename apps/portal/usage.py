"""Usage: how much of each limit is used, and what was done by minute, hour or day."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from django.http import HttpRequest, HttpResponse

from apps.dispatch.pool_standing import pool_standings
from apps.dispatch.standing import Standing, standings
from apps.portal.pages import Page
from apps.presenting.charts import Column, columns, meter
from apps.usage.reading import Period, history
from tenants import door

NEAR_PERCENT, FULL_PERCENT = 80, 100
SPANS = {"minute": timedelta(hours=1), "hour": timedelta(days=1), "day": timedelta(days=30)}
WORDS = {"minute": "the last hour, by minute", "hour": "the last day, by hour", "day": "the last 30 days, by day"}
FORMATS = {"minute": "%H:%M", "hour": "%H:00", "day": "%m-%d"}
TONES = (("succeeded", "ok"), ("dead", "bad"), ("expired", "warn"), ("cancelled", "idle"), ("skipped", "idle"))


class Limit(NamedTuple):
    """A limit with its picture."""

    standing: Standing
    tone: str
    word: str
    meter: str


class Usage(Page):
    """What is used of the plan, and what was done."""

    actions = {"GET": "usage.read"}
    section = "usage"

    def get(self, request: HttpRequest) -> HttpResponse:
        step = request.GET.get("step", "hour")
        step = step if step in SPANS else "hour"
        found = history(
            door.raw(), tenant_id=self.tenant.pk, step=step, start=self.now - SPANS[step], end=self.now
        )  # fmt: skip
        limits = [_limit(one) for one in standings(self.tenant, now=self.now)]
        total = sum(period.counts[name] for period in found for name, _ in TONES)
        meaning = f"Runs that ended in {WORDS[step]}: {total:,}; the table below has the numbers"
        return self.page(
            "portal/usage.html", title="Usage", limits=limits, pools=pool_standings(self.tenant),
            plan=self.tenant.plan, step=step,
            steps=[(name, words, name == step) for name, words in WORDS.items()], total=total,
            chart=columns([_column(one, FORMATS[step]) for one in found], meaning=meaning) if found else "",
            periods=list(reversed(found)),
        )  # fmt: skip


def _limit(one: Standing) -> Limit:
    percent = one.percent
    if one.limit is None or percent is None:
        return Limit(one, "idle", "no limit", "")
    full, near = percent >= FULL_PERCENT, percent >= NEAR_PERCENT
    tone, word = ("bad", "used up") if full else ("warn", "near") if near else ("ok", "within")
    picture = meter(percent / 100, tone=tone, meaning=f"{one.what}: {percent:g} per cent used")
    return Limit(one, tone, word, picture)


def _column(period: Period, form: str) -> Column:
    counts = [(tone, period.counts[name]) for name, tone in TONES]
    return Column(f"{period.starts_at:{form}}", counts)
