"""The audit page's filters, and what it shows of a row."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.contrib.auth.models import User
from django.utils.dateparse import parse_datetime

from apps.audit.actors import member, operator
from apps.audit.looking import OPERATORS_OWN, Wanted
from apps.audit.shown import Shown
from apps.console.machines.slugs import slugs_of
from apps.console.shown import masked
from apps.console.verbs.trail import OPERATORS
from kernel.printing import printable
from tenants.models import Member, Tenant

NAMES = ("actor", "action", "object", "tenant", "request", "since", "until", "window", "refused")
WINDOWS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}
FIRST_YEAR, LAST_YEAR = 1970, 9000
NOBODY = -1
VALUE_CHARS = 200
CHANGES_SHOWN = 20


class Change(NamedTuple):
    """What one field was and is; None where the row says nothing of it."""

    name: str
    before: str | None
    after: str | None


class Row(NamedTuple):
    """A row of the trail with its tenant's slug, which is empty for the operators' own and where it is gone."""

    shown: Shown
    slug: str
    changes: list[Change]


def given_of(query: Mapping[str, str]) -> dict[str, str]:
    """What is asked for, without what no database has."""
    return {name: query.get(name, "").replace("\0", "").strip()[:200] for name in NAMES}


def wanted_of(given: Mapping[str, str], *, now: datetime) -> Wanted:
    """What does not exist finds nothing, and what is nonsense asks for nothing."""
    filters: dict[str, Any] = {}
    if given["actor"]:
        filters["actor__in"] = _actors(given["actor"])
    if given["action"]:
        filters["action__startswith" if "." not in given["action"] else "action"] = given["action"]
    if given["request"]:
        filters["request_id"] = given["request"]
    if given["refused"]:
        filters["allowed"] = False
    since = now - WINDOWS[given["window"]] if given["window"] in WINDOWS else moment_of(given["since"])
    return Wanted(_tenant_id(given["tenant"]), given["object"], since, moment_of(given["until"]), filters)


def rows_of(found: list[Shown]) -> list[Row]:
    """The rows as the page shows them."""
    slugs = slugs_of(one.event.tenant_id for one in found if one.event.tenant_id)
    return [Row(one, slugs.get(one.event.tenant_id or 0, ""), changes_of(one)) for one in found]


def changes_of(one: Shown) -> list[Change]:
    """Field by field, without secrets."""
    before, after = (value if isinstance(value, dict) else {} for value in (one.event.before, one.event.after))
    before, after = masked(before), masked(after)
    names = list(dict.fromkeys([*before, *after]))[:CHANGES_SHOWN]
    return [Change(printable(str(name))[:80], _text(before, name), _text(after, name)) for name in names]


def moment_of(text: str) -> datetime | None:
    """A time as the page's fields send it, in UTC; None when it is none."""
    try:
        found = parse_datetime(text) if text else None
    except ValueError:
        return None
    if found is None or not FIRST_YEAR <= found.year <= LAST_YEAR:
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def _text(values: Mapping[str, Any], name: str) -> str | None:
    return printable(str(values[name]))[:VALUE_CHARS] if name in values else None


def _tenant_id(slug: str) -> int | None:
    if not slug:
        return None
    if slug == OPERATORS:
        return OPERATORS_OWN
    found = Tenant.objects.filter(slug=slug).values_list("pk", flat=True).first()
    return NOBODY if found is None else int(found)


def _actors(text: str) -> list[str]:
    """The trail holds numbers of persons: those of the logins that are called so, with or without `admin:`."""
    name = text.removeprefix("admin:").removeprefix("member:").partition(" (")[0]
    members = Member.objects.filter(email=name.lower()).values_list("uid", flat=True)[:100]
    operators = User.objects.filter(username=name).values_list("pk", flat=True)
    return [text, *(member(uid) for uid in members), *(operator(pk) for pk in operators)]
