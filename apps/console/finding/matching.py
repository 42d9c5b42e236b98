"""What a text that was typed or pasted may mean: pages, tenants, a tenant's schedules and jobs, an id."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from urllib.parse import quote, urlencode
from uuid import UUID

from django.db.models import Q

from apps.console.finding.locating import Conn, Place, TooSlow, in_history, in_shared, in_tenant
from apps.console.middleware import CLOSED
from apps.console.reading import as_uuid, short_statements
from apps.schedules.models import Job, Schedule
from kernel.pools import WORKFLOW
from tenants import door
from tenants.models import Tenant

TEXT_CHARS = 200
EACH = 8  # of a kind
RUN_KEY = re.compile(r"([0-9a-f]{32})\.\d{8}T\d{6}Z")

# kind -> its page: below the tenant's admin, or below /admin/ for what is no tenant's
IN_TENANT = {
    "execution": "executions/{id}/", "schedule": "schedules/{id}/", "operation": "operations/{id}/",
    "backfill": "backfills/{id}/", "attempt": "executions/attempt/{id}/change/", "job": "schedules/job/{id}/change/",
    "deadletter": "dead-letters/{id}/", "webhook": "webhooks/webhook/{id}/change/",
}  # fmt: skip
OVER_ALL = {"worker": "workers/{id}/", "dispatcher": "dispatchers/{id}/", "member": "tenants/member/?q={id}"}
WORDS = {"deadletter": "dead letter"}


class Page(NamedTuple):
    """A page of the console, as the navigation names it."""

    title: str
    url: str


class Found(NamedTuple):
    """One answer: what it is, its name, whose it is, and where."""

    kind: str
    title: str
    detail: str
    url: str


@dataclass(slots=True)
class Answer:
    """All answers. `after` is not None when an id was looked for in some tenants and others are left."""

    found: list[Found] = field(default_factory=list)
    note: str = ""
    after: int | None = None


def find(
    text: str, *, conn: Conn, pages: Sequence[Page], now: datetime, slug: str = "", after: int = 0
) -> Answer:  # fmt: skip
    """What the text may mean. `slug` names the tenant whose pages it was typed on; `after` goes on with the history."""
    words = text.replace("\0", "")[:TEXT_CHARS].split()
    if not words:
        return Answer([Found("page", one.title, "", one.url) for one in pages])
    answer, rest = Answer(), " ".join(words)
    tenant = _tenant(words[0]) if len(words) > 1 else None
    if tenant is not None:  # "acme nightly"
        rest = " ".join(words[1:])
    run_key = RUN_KEY.fullmatch(rest)
    key = UUID(run_key[1]) if run_key else as_uuid(rest)
    if key is not None:
        _by_id(answer, key, conn, now, tenant or _tenant(slug), after, run_key=rest if run_key else "")
        return answer
    if tenant is None:
        answer.found += [Found("page", one.title, "", one.url) for one in pages if _in(words, one.title)]
        answer.found += _tenants(rest)
    tenant = tenant or _tenant(slug)
    if tenant is not None:
        answer.found += _definitions(tenant, rest)
    if not answer.found:
        answer.note = (
            "Nothing has this name. A tenant's schedules and jobs are found with its name before theirs: acme nightly."
        )
    return answer


def _by_id(
    answer: Answer, key: UUID, conn: Conn, now: datetime, tenant: Tenant | None, after: int, *, run_key: str
) -> None:
    """The shared tables first, then the tenant that is named, then whoever had runs when the id was made."""
    place = in_shared(conn, key) if not after else None
    tenants = 0
    try:
        if place is None and tenant is not None and not after:
            place, tenants = in_tenant(tenant.pk, tenant.schema_name, key), 1
        if place is None:
            place, seen, answer.after = in_history(conn, key, now=now, after=after)
            tenants += seen
    except TooSlow:
        answer.note = "The database is too slow to look into histories now."
        return
    if place is not None:
        answer.found += _at(place, key, run_key)
    elif answer.after is not None:
        answer.note = f"Not in {tenants} tenants that had runs when it was made; there are more."
    else:
        answer.note = (
            f"Nothing has this id: no shared table knows it, nor does the history of {tenants or 'any'}"
            f" tenant{'' if tenants == 1 else 's'} that had runs when it was made."
        )


def _at(place: Place, key: UUID, run_key: str) -> Iterator[Found]:
    word = WORDS.get(place.kind, place.kind)
    tenant = Tenant.objects.filter(pk=place.tenant_id).first()
    slug = tenant.slug if tenant is not None else ""
    if place.kind in OVER_ALL:
        yield Found(word, str(key), slug, "/admin/" + OVER_ALL[place.kind].format(id=key))
        return
    root = _home(tenant) if tenant is not None else ""
    if tenant is None or tenant.status in CLOSED:
        yield Found(word, str(key), slug, root or "/admin/tenants/")
        return
    if run_key:
        query = urlencode({"window": "all", "q": run_key})
        yield Found("execution", run_key, slug, f"{root}executions/?{query}")
    path = IN_TENANT.get(place.kind)
    yield Found(word, str(key), slug, root + (path.format(id=key) if path else ""))


def _tenant(slug: str) -> Tenant | None:
    """The tenant whose pages are open under this slug."""
    return Tenant.objects.exclude(status__in=CLOSED).filter(slug=slug).first() if slug else None


def _home(tenant: Tenant) -> str:
    """Its pages; of one that has none (any more) its row."""
    return (
        f"/admin/tenants/tenant/{tenant.pk}/change/" if tenant.status in CLOSED else f"/t/{quote(tenant.slug)}/admin/"
    )


def _tenants(text: str) -> Iterator[Found]:
    wanted = Q(slug__icontains=text) | Q(name__icontains=text)
    for one in Tenant.objects.filter(wanted).order_by("slug")[:EACH]:
        yield Found("tenant", one.slug, one.name, _home(one))


def _definitions(tenant: Tenant, text: str) -> list[Found]:
    """Schedules and jobs of one open tenant that have the text in their names."""
    root = _home(tenant)
    wanted = Q(name__icontains=text, deleted_at=None)
    with short_statements(), door.inside(tenant):
        schedules = list(Schedule.objects.filter(wanted).order_by("name")[:EACH].values_list("pk", "name"))
        jobs = list(
            Job.objects.filter(wanted, workflow_id=None).order_by("name")[:EACH].values_list("pk", "name", "kind")
        )
    return [
        *(Found("schedule", name, tenant.slug, root + IN_TENANT["schedule"].format(id=pk)) for pk, name in schedules),
        *(
            Found("workflow" if kind == WORKFLOW else "job", name, tenant.slug, root + IN_TENANT["job"].format(id=pk))
            for pk, name, kind in jobs
        ),
    ]


def _in(words: Sequence[str], title: str) -> bool:
    return all(word.casefold() in title.casefold() for word in words)
