"""The rules of all verbs: who may, whether it is still what they looked at, and a row about every refused attempt.

The effect's own row is written by its service, in the transaction of the effect.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from apps.audit.refused import note
from apps.console import roles
from apps.console.verbs.base import Ask, Changed, Preview, Receipt, Verb
from kernel.errors import Conflict, Forbidden, NotFound, ShardbeatError, Stale

REASON_CHARS = 500


def verb_look(verb: Verb, ask: Ask, *, user: Any) -> Preview:
    """What it would do, for whoever may look; with the reason when this operator can't do it now. NotFound."""
    preview = verb.look(ask)
    return replace(preview, refused=roles.lacks(user, verb.level) or preview.refused)


def verb_do(verb: Verb, ask: Ask, *, user: Any) -> Receipt:
    """Does it. Forbidden, Changed, Conflict, NotFound, and what the service raises; each leaves a row that says so."""
    try:
        if lack := roles.lacks(user, verb.level):
            raise Forbidden(lack)
        preview = verb.look(ask)
        if preview.version != ask.version:  # first: it may be why it can't be done
            raise Changed(preview)
        if preview.refused or preview.asks:
            raise Conflict(preview.refused or preview.asks)
        try:
            return verb.do(ask)
        except Stale as error:
            raise Changed(verb.look(ask)) from error
    except NotFound:
        raise
    except ShardbeatError as error:
        _note(verb, ask, error)
        raise


def _note(verb: Verb, ask: Ask, error: ShardbeatError) -> None:
    note(
        error, actor=ask.actor, action=verb.name, object_id=ask.target, now=ask.now,
        tenant_id=ask.tenant.pk if ask.tenant else None,
        asked={"reason": ask.reason[:REASON_CHARS]} if ask.reason else None,
    )  # fmt: skip
