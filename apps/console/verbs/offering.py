"""Where a verb's page is, and what its button looks like to one operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from apps.console import roles
from apps.console.verbs.base import Step, Verb
from apps.console.verbs.registry import verb_named


@dataclass(frozen=True, slots=True)
class Offer:
    """A button: `off` says why it can't be pressed, empty when it can."""

    verb: Verb
    label: str
    url: str
    off: str = ""


def verb_url(
    verb: Verb, target: object, *, tenant: str = "", given: Mapping[str, str] | None = None
) -> str:  # fmt: skip
    """The address of its page; `tenant` is a slug, for verbs in a tenant, and `given` fills in its fields."""
    query = f"?{urlencode(given)}" if given else ""
    before = f"/t/{quote(tenant, safe='')}" if verb.scope == "tenant" else ""
    return f"{before}/admin/do/{quote(verb.name, safe='.')}/{quote(str(target), safe='')}/{query}"


def many_url(verb: Verb, *, tenant: str = "") -> str:
    """The address of its page for several rows; `tenant` is the slug of whose site it is on, "" for the public one."""
    before = f"/t/{quote(tenant, safe='')}" if tenant else ""
    return f"{before}/admin/do-many/{quote(verb.name, safe='.')}/"


def offer(step: Step, *, user: Any, off: str = "") -> Offer | None:
    """The button of a step; None when there is no such verb, or it has no tenant to be in."""
    verb = verb_named(step.verb)
    if verb is None or (verb.scope == "tenant" and not step.tenant):
        return None
    url = verb_url(verb, step.target, tenant=step.tenant, given=step.given)
    return Offer(verb, verb.button(step.target), url, roles.lacks(user, verb.level) or off)
