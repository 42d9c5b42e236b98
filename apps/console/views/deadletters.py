"""What fails, and what failed for good, over all tenants: by cause. Shared tables only."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.http import HttpRequest

from apps.console.assigning import assigned
from apps.console.chips import chips
from apps.console.letters import Window, chart, fingerprint_of, since, spark, window_chips, window_of
from apps.console.machines.slugs import slugs_of
from apps.console.pages import page
from apps.usage import failures
from apps.usage.failures import Group
from kernel.errors import NotFound
from tenants import door
from tenants.models import Tenant

GROUPS_MOST = 60
TENANTS_NAMED = 3
TENANTS_SHOWN = 200
TEXT_CHARS = 253
WHAT = {"letters": "dead letters", "failures": "all failed attempts"}


class Line(NamedTuple):
    """A cause of the list. `slugs` are some of its tenants; `sample` is one execution, where its tenant is known."""

    group: Group
    spark: str
    slugs: list[str]
    more: int
    sample: str
    logins: list[str]


@page("deadletters", "dead-letters/", title="Dead letters", template="console/deadletters.html")
def deadletters(request: HttpRequest, now: datetime) -> dict[str, Any]:
    """Causes of dead letters, or of all failed attempts; by host, class and tenant."""
    window, what = window_of(request), request.GET.get("what", "")
    what = what if what in WHAT else "letters"
    given = {name: request.GET.get(name, "").strip()[:TEXT_CHARS] for name in ("host", "tenant", "q")}
    tenant_id, faults = None, []
    if given["tenant"]:
        tenant_id = Tenant.objects.filter(slug=given["tenant"]).values_list("pk", flat=True).first()
        faults = [] if tenant_id else ["There is no such tenant: all are shown."]
    found = failures.groups(
        door.raw(), step=window.step, since=since(window, now), most=GROUPS_MOST,
        by="attempts" if what == "failures" else "letters", tenant_id=tenant_id,
    )  # fmt: skip
    groups = _fitting(found.groups, host=given["host"], text=given["q"])
    return {
        "lines": _lines(groups, window, now, letters=what == "letters"), "since": found.since, "what": what,
        "cut": len(found.groups) >= GROUPS_MOST, "most": GROUPS_MOST, "given": given, "faults": faults,
        "windows": window_chips(request, window), "window": window,
        "whats": chips(request, "what", WHAT.items(), chosen=what),
        "hosts": failures.hosts(groups)[:TENANTS_NAMED],
        "letters": sum(one.letters for one in groups), "attempts": sum(one.attempts for one in groups),
        "tenants": len({one for group in groups for one in group.tenants}),
    }  # fmt: skip


@page("cause-of-letters", "dead-letters/<str:fingerprint>/", title="Cause", place="deadletters",
      template="console/deadletters_cause.html")  # fmt: skip
def cause(request: HttpRequest, now: datetime, fingerprint: str) -> dict[str, Any]:
    """One cause: to whom it happens, and when."""
    window = window_of(request)
    found = failures.groups(
        door.raw(), step=window.step, since=since(window, now), fingerprint=fingerprint_of(fingerprint) or "-"
    ).groups
    described = failures.cause_of(door.raw(), fingerprint)
    if described is None and not found:
        raise NotFound("Nothing of this cause has been seen in a month.")
    group = found[0] if found else Group(fingerprint, 0, 0, [], described, [])
    of_tenants = failures.tenants_of(door.raw(), fingerprint, step=window.step, since=since(window, now))
    slugs = slugs_of(one.tenant_id for one in of_tenants[:TENANTS_SHOWN])
    seen_to = assigned([fingerprint])
    return {
        "group": group, "cause": group.cause, "window": window, "windows": window_chips(request, window),
        "chart": chart(group, window=window, now=now), "tenants": len(of_tenants), "shown_most": TENANTS_SHOWN,
        "rows": [
            (one, slugs.get(one.tenant_id, ""), seen_to.get((one.tenant_id, fingerprint)))
            for one in of_tenants[:TENANTS_SHOWN]
        ],
        "since": since(window, now),
    }  # fmt: skip


def _fitting(groups: Sequence[Group], *, host: str, text: str) -> list[Group]:
    words = text.casefold()
    return [
        one
        for one in groups
        if (not host or (one.cause is not None and one.cause.host == host))
        and (not words or (one.cause is not None and words in " ".join(one.cause[:4]).casefold()))
    ]


def _lines(groups: Sequence[Group], window: Window, now: datetime, *, letters: bool) -> list[Line]:
    slugs = slugs_of(
        one for group in groups for one in [*group.tenants, *([group.cause.tenant_id] if group.cause else [])]
    )
    logins: dict[str, set[str]] = {}
    for (_, fingerprint), one in assigned([group.fingerprint for group in groups if group.fingerprint]).items():
        logins.setdefault(fingerprint, set()).add(one.login)
    lines = []
    for group in groups:
        known = [slugs[one] for one in group.tenants if one in slugs]
        slug = slugs.get(group.cause.tenant_id, "") if group.cause else ""
        lines.append(
            Line(
                group, spark(group, window=window, now=now, letters=letters), known[:TENANTS_NAMED],
                len(group.tenants) - len(known[:TENANTS_NAMED]),
                f"/t/{slug}/admin/executions/{group.cause.execution_id}/" if slug and group.cause else "",
                sorted(logins.get(group.fingerprint, ())),
            )
        )  # fmt: skip
    return lines
