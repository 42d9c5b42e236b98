"""Dead letters: one run again or resolved, all of a cause replayed or resolved, and who sees to a cause."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms

from apps.console.assigning import Assigned, assign, assigned, operators, unassign
from apps.console.letters import cause_url, letter_url
from apps.console.replaying import ReplayFields, pace_given
from apps.console.roles import OPERATE, RESPOND
from apps.console.shown import masked
from apps.console.verbs.base import Ask, Line, Preview, Receipt, Step, Verb, version_of
from apps.console.verbs.live import id_of, page_of
from apps.console.verbs.registry import register
from apps.deadletters.groups import Group, group_read
from apps.deadletters.models import DeadLetter
from apps.operations.models import Operation
from apps.operations.services import Wish, operation_create, operation_rehearse
from apps.operations.states import ENDS
from apps.outcomes.replay import deadletter_replay
from apps.outcomes.resolve import deadletter_reopen, deadletter_resolve
from apps.presenting.shown import error_line, moment
from kernel.errors import NotFound


class _OfLetter(Verb):
    """What the verbs of one letter share; `of` is the state that it must be in."""

    scope = "tenant"
    becomes = ""
    of = "open"

    def look(self, ask: Ask) -> Preview:
        letter = DeadLetter.objects.filter(pk=id_of(ask)).first()
        if letter is None:
            raise NotFound("There is no such dead letter.")
        state = letter.resolution or "open"
        lines = [
            Line("Execution", str(letter.execution_id)),
            Line("Error", error_line(masked(letter.error))),
            Line("Failed", f"{moment(letter.created_at)} UTC, after {letter.attempts:,} attempts"),
            Line("State", state, self.becomes),
        ]
        refused = "" if state == self.of else f"It was {state} already." if letter.resolved_at else "It is open."
        link = letter_url(ask.inside, letter.pk)
        return Preview(f"{self.label}: dead letter {letter.pk}", lines, version_of(state), refused=refused, link=link)


@register
class ReplayLetter(_OfLetter):
    """Runs a dead execution again."""

    name, label, level, key, becomes = "deadletter.replay", "Replay", RESPOND, "r", "replayed"

    def do(self, ask: Ask) -> Receipt:
        made = deadletter_replay(tenant=ask.inside, actor=ask.actor, letter_id=id_of(ask), now=ask.now)
        return Receipt(
            f"Execution {made} runs again.", page_of(ask, made),
            undo=Step("ticket.cancel", str(made), ask.inside.slug),
        )  # fmt: skip


@register
class ResolveLetter(_OfLetter):
    """Closes it without a run; the reason is its note."""

    name, label, level, key = "deadletter.resolve", "Resolve", RESPOND, "x"
    becomes = "resolved, with the reason as its note"

    def do(self, ask: Ask) -> Receipt:
        deadletter_resolve(tenant=ask.inside, actor=ask.actor, letter_id=id_of(ask), now=ask.now, note=ask.reason)
        undo = Step("deadletter.reopen", ask.target, ask.inside.slug)
        return Receipt("It is resolved without a run.", letter_url(ask.inside, ask.target), undo=undo)


@register
class ReopenLetter(_OfLetter):
    """The way back."""

    name, label, level, key = "deadletter.reopen", "Reopen", RESPOND, "o"
    becomes, of = "open", "resolved"

    def do(self, ask: Ask) -> Receipt:
        deadletter_reopen(tenant=ask.inside, actor=ask.actor, letter_id=id_of(ask), now=ask.now, reason=ask.reason)
        undo = Step("deadletter.resolve", ask.target, ask.inside.slug)
        return Receipt("It is open again.", letter_url(ask.inside, ask.target), undo=undo)


class _OfCause(Verb):
    """What the verbs of all open letters of one cause share. The target is its fingerprint."""

    scope = "tenant"

    def lines(self, group: Group) -> list[Line]:
        count = f"{group.letters:,}{'' if group.is_exact else '+'}"
        return [
            Line("Cause", error_line(masked(group.error))),
            Line("Open dead letters", count),
            Line("First and last", f"{moment(group.oldest_at)} to {moment(group.newest_at)} UTC"),
        ]

    def group(self, ask: Ask) -> Group:
        found = group_read(ask.inside, ask.target)
        if found is None:
            raise NotFound("No dead letter of this cause is open.")
        return found


class _ManyOfCause(_OfCause):
    """An operation over all that are open now. Its version changes when another one begins or ends."""

    action = ""

    def look(self, ask: Ask) -> Preview:
        group = self.group(ask)
        found = operation_rehearse(tenant=ask.inside, actor=ask.actor, wish=self.wish(ask), now=ask.now)
        alive = _alive(ask)
        lines = [*self.lines(group), Line("Would be worked off", f"{found.count:,} dead letters")]
        warnings = [*found.warnings, *(f"Operation {one} is at work on this cause already." for one in alive)]
        return Preview(
            f"{self.label} of this cause", lines, version_of(group.fingerprint, [str(one) for one in alive]), warnings,
            link=cause_url(ask.inside, group.fingerprint),
        )  # fmt: skip

    def wish(self, ask: Ask) -> Wish:
        filter_, pace = {"fingerprint": ask.target}, pace_given(ask.given)
        return Wish(self.action, "dead_letters", filter_, self.params(ask), pace, ask.reason)

    def params(self, ask: Ask) -> dict[str, Any]:
        return {}

    def do(self, ask: Ask) -> Receipt:
        made = operation_create(tenant=ask.inside, actor=ask.actor, wish=self.wish(ask), now=ask.now)
        slug = ask.inside.slug
        return Receipt(
            f"Operation {made.pk} works them off, from the next pass of a dispatcher on.",
            f"/t/{slug}/admin/operations/{made.pk}/",
            undo=Step("operation.cancel", str(made.pk), slug),
        )  # fmt: skip


@register
class ReplayCause(_ManyOfCause):
    """Runs again all that are open now."""

    name, label, level, key, form = "deadletters.replay", "Replay all", OPERATE, "r", ReplayFields
    look_first, action = True, "replay"

    def params(self, ask: Ask) -> dict[str, Any]:
        return {"new_key": bool(ask.given.get("new_key"))}


@register
class ResolveCause(_ManyOfCause):
    """Closes all that are open now; the reason is their note."""

    name, label, level, key, hard, action = "deadletters.resolve", "Resolve all", OPERATE, "x", True, "resolve"


class AssignForm(forms.Form):
    operator = forms.ChoiceField(help_text="Who sees to it.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        logins = [user.get_username() for user in operators()]
        self.fields["operator"].choices = [(login, login) for login in logins]  # type: ignore[attr-defined]  # a choice


class _Assigning(_OfCause):
    """Whose it is: whether or not a letter of it is open, since more may come."""

    def seen(self, ask: Ask, after: str) -> Preview:
        group, who = group_read(ask.inside, ask.target), _seen_to(ask)
        if group is None and who is None:
            self.group(ask)
        told = self.lines(group) if group is not None else [Line("Open dead letters", "0")]
        return Preview(
            f"{self.label}: this cause", [*told, Line("Seen to by", who.login if who else "nobody", after)],
            version_of(who), link=cause_url(ask.inside, ask.target),
        )  # fmt: skip


@register
class Assign(_Assigning):
    """Somebody sees to a cause."""

    name, label, level, key, form = "deadletters.assign", "Assign", RESPOND, "a", AssignForm

    def look(self, ask: Ask) -> Preview:
        return self.seen(ask, str(ask.given.get("operator") or "whoever is chosen below"))

    def do(self, ask: Ask) -> Receipt:
        login, before = str(ask.given["operator"]), _seen_to(ask)
        assign(tenant=ask.inside, fingerprint=ask.target, login=login, actor=ask.actor, now=ask.now)
        undo = _back_to(ask, before) if before else Step("deadletters.unassign", ask.target, ask.inside.slug)
        return Receipt(f"{login} sees to it.", cause_url(ask.inside, ask.target), undo=undo)


@register
class Unassign(_Assigning):
    """Nobody in particular does any more."""

    name, label, level = "deadletters.unassign", "Unassign", RESPOND

    def look(self, ask: Ask) -> Preview:
        return self.seen(ask, "nobody")

    def do(self, ask: Ask) -> Receipt:
        before = _seen_to(ask)
        unassign(tenant=ask.inside, fingerprint=ask.target, actor=ask.actor, now=ask.now)
        undo = _back_to(ask, before)
        return Receipt("Nobody in particular sees to it.", cause_url(ask.inside, ask.target), undo=undo)


def _seen_to(ask: Ask) -> Assigned | None:
    """Who sees to the cause."""
    return next(iter(assigned([ask.target], tenant_id=ask.inside.pk).values()), None)


def _back_to(ask: Ask, before: Assigned | None) -> Step:
    """Whose it was is chosen in the form already."""
    given = {"operator": before.login} if before else {}
    return Step("deadletters.assign", ask.target, ask.inside.slug, given=given)


def _alive(ask: Ask) -> list[UUID]:
    """Operations that have not ended and were asked for with this cause."""
    found = Operation.objects.filter(target="dead_letters", filter__fingerprint=ask.target).exclude(state__in=ENDS)
    return list(found.order_by("pk").values_list("pk", flat=True)[:10])
