"""The parts of pages that renew themselves, made of what is known: HTML and SVG, once for all who look.

Links are whole addresses, since the parts are on pages of both sites; no part knows who looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.template.loader import render_to_string

from apps.console.snapshot import pictures
from apps.console.snapshot.checks import checks
from apps.console.verdict.machines import LOST_S
from apps.console.verdict.values import Facts, Spell, Verdict, counted
from apps.console.verdict.work import LATE_S
from kernel.durations import span

STRIP = ("sentence", "tiles", "changes")  # on every page
OVERVIEW = (*STRIP, "lateness", "backlog", "throughput", "ahead", "failures", "shares", "shards", "machines", "checks")
SETS = {"strip": STRIP, "overview": OVERVIEW}  # by what a page asks for
WORSE = 1.5  # times the failure rate of last week
CHANGES = 6


class Tile(NamedTuple):
    """One number: what it is, what it is of, and where its rows are; `parts` are what it is the sum of, each with its
    own. `word` says what a tone that is not well means."""

    name: str
    value: str
    scope: str
    url: str
    tone: str = "idle"
    word: str = ""
    parts: tuple[tuple[str, str], ...] = ()


def parts(facts: Facts, found: Sequence[Verdict], memory: dict[str, Any]) -> dict[str, str]:
    """The parts by name: those of STRIP and OVERVIEW."""
    slow = memory.get("slow", {})
    now = facts.now
    past, backlog = pictures.by_minute(slow.get("past", ()), now), pictures.by_minute(slow.get("backlog", ()), now)
    changes = slow.get("changes", ())
    marks = pictures.marks(changes, now)
    drawn = {
        "lateness": pictures.lateness(past, marks, now),
        "backlog": pictures.backlog(backlog, marks, now),
        "throughput": pictures.throughput(past, now),
        "shards": pictures.shards(facts),
        "ahead": pictures.ahead(slow.get("ahead", ()), facts),
    }
    context = {
        "facts": facts,
        "tiles": tiles(facts),
        "checks": checks(facts),
        "changes": changes[:CHANGES],
        "changed": len(changes),
        "top": slow.get("top", ()),
        "ahead": sum(runs for _, runs in slow.get("ahead", ())),
        "ahead_most": max((runs for _, runs in slow.get("ahead", ())), default=0),
        "capacity": round(facts.capacity),
        "shares": shares(facts),
        "dispatchers": [one for one in facts.dispatchers if one.silent_s < LOST_S],
        "drawn": drawn,
        "ended": [sum(row[at] for row in past.values()) for at in range(4)],
        "waited": backlog[max(backlog)] if backlog else (None,) * 6,
        "workers": [one for one in facts.workers if one.silent_s < 0],
    }
    told = {name: render_to_string(f"console/live/{name}.html", context) for name in OVERVIEW if name != "sentence"}
    return {"sentence": sentence(found), **told}


def sentence(found: Sequence[Verdict]) -> str:
    """The first of what the rules said, and how many more there are."""
    return render_to_string("console/live/sentence.html", {"verdict": found[0], "others": len(found) - 1})


def tiles(facts: Facts) -> list[Tile]:
    """The four numbers of the strip."""
    late, spell = facts.oldest_due_s, facts.lately
    own = f", {facts.late.limited:,} of {facts.late.runs:,} late ones at own limits" if facts.late.limited else ""
    return [
        Tile(
            "Oldest due", span(late), "due entries, all tenants", "/admin/due/dueentry/?due=now", _tone(late >= LATE_S),
            "late",
        ),
        Tile(
            "Due backlog", facts.tickets("ready", besides=facts.due), _drain(facts), "/admin/tenants/",
            parts=(
                (f"{counted(facts.due)} due", "/admin/due/dueentry/?due=now"),
                (f"{facts.tickets('ready')} ready", "/admin/live/?state=ready"),
            ),
        ),
        Tile(
            "Lateness p99", "-" if spell.p99_s is None else span(spell.p99_s), f"5 min, n = {spell.times:,}{own}",
            "/admin/#lateness", _tone(spell.p99_s is not None and spell.p99_s >= LATE_S), "late",
        ),
        Tile(
            "Failure rate", _percent(facts.hour), f"attempts, 1 h; last week {_percent(facts.week_ago, none='none')}",
            "/admin/dead-letters/?what=failures&window=1h", _failing(facts), "high",
        ),
    ]  # fmt: skip


def shares(facts: Facts) -> list[dict[str, Any]]:
    """Of what is due and runs, by tenant."""
    total = sum(one.due + one.running for one in facts.shares) or 1
    return [
        {
            "slug": one.slug,
            "due": one.due,
            "running": one.running,
            "percent": round(100 * (one.due + one.running) / total),
        }
        for one in facts.shares
        if one.due or one.running
    ]


def _drain(facts: Facts) -> str:
    """When what waits for nothing but the platform is gone; what is held waits for something else."""
    if not facts.measured:
        return "nobody measures"
    waits = facts.due + sum(one.waiting for one in facts.pools)
    held = sum(one.held for one in facts.pools)
    told = f"{counted(held)} held, " if held else ""
    if not waits:
        return f"{told}nothing else waits" if held else "nothing waits"
    faster = sum(one.out_per_s - one.in_per_s for one in facts.pools)
    return f"{told}gone in {span(waits / faster)}" if faster > 0.01 else f"{told}not shrinking"


def _percent(spell: Spell, *, none: str = "-") -> str:
    share = spell.failing
    return none if share is None else f"{100 * share:.1f} %"


def _failing(facts: Facts) -> str:
    now, before = facts.hour.failing, facts.week_ago.failing
    if now is None:
        return "idle"
    worse = now > 0.05 if before is None else now > max(0.05, before * WORSE)
    return "warn" if worse else "ok"


def _tone(bad: bool) -> str:
    return "bad" if bad else "ok"
