"""Saved views: pages with their filters that an operator goes back to, for themself or for everybody."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q

from apps.audit.actors import Actor
from apps.audit.services import record
from apps.console.models import SavedView
from apps.console.roles import OPERATE, may
from kernel.errors import Conflict, FieldError, Forbidden, InvalidInput, NotFound

NAME_CHARS, URL_CHARS = 80, 2_000
OWN_MAX = 50  # of one operator
SHOWN_MAX = 30  # in the navigation
LISTED_MAX = 500
# A page of operators, by its path alone: a view is a link, and leads nowhere else.
PLACE = re.compile(r"/(?:admin|t/[a-z0-9-]{1,40}/admin)/[!-\[\]-~]*")


def views_of(user: Any, *, most: int = SHOWN_MAX) -> Sequence[SavedView]:
    """Those of an operator and the shared ones, by name."""
    return list(_seen(user).order_by("name", "pk")[:most])


def is_page(url: str) -> bool:
    """Whether a view may lead there."""
    return len(url) <= URL_CHARS and PLACE.fullmatch(url) is not None


def view_save(*, user: Any, name: str, url: str, shared: bool, actor: Actor, now: datetime) -> SavedView:
    """Keeps a view. InvalidInput, Conflict (the name is taken, or there are too many)."""
    name = _named(name)
    if not is_page(url):
        raise InvalidInput([FieldError("/url", "invalid", "must be the address of a page of operators")])
    if SavedView.objects.filter(owner=user).count() >= OWN_MAX:
        raise Conflict(f"You have {OWN_MAX} views; delete one first.")
    try:
        with transaction.atomic():
            made = SavedView.objects.create(owner=user, name=name, url=url, shared=shared, created_at=now)
            _record(made, "view.save", actor, now, after={"name": name, "url": url, "shared": shared})
    except IntegrityError as error:
        raise Conflict("You have a view of this name.") from error
    return made


def view_change(*, user: Any, view_id: int, name: str, shared: bool, actor: Actor, now: datetime) -> None:
    """Another name, and whether everybody sees it. NotFound, Forbidden, InvalidInput, Conflict."""
    name = _named(name)
    try:
        with transaction.atomic():
            view = _own(user, view_id)
            before = {"name": view.name, "shared": view.shared}
            SavedView.objects.filter(pk=view.pk).update(name=name, shared=shared)
            _record(view, "view.change", actor, now, before=before, after={"name": name, "shared": shared})
    except IntegrityError as error:
        raise Conflict("Its owner has a view of this name.") from error


def view_delete(*, user: Any, view_id: int, actor: Actor, now: datetime) -> None:
    """Forgets a view. NotFound, Forbidden."""
    with transaction.atomic():
        view = _own(user, view_id)
        _record(view, "view.delete", actor, now, before={"name": view.name, "url": view.url, "shared": view.shared})
        SavedView.objects.filter(pk=view.pk).delete()


def may_change(user: Any, view: SavedView) -> bool:
    """Its owner, and of a shared one whoever keeps order among them."""
    return view.owner_id == user.pk or (view.shared and may(user, OPERATE))


def _own(user: Any, view_id: int) -> SavedView:
    """The view, locked. Another's that is not shared is as good as missing."""
    view: SavedView | None = _seen(user).select_for_update().filter(pk=view_id).first()
    if view is None:
        raise NotFound("There is no such view.")
    if not may_change(user, view):
        raise Forbidden("It is somebody else's.")
    return view


def _seen(user: Any) -> Any:
    return SavedView.objects.filter(Q(owner=user) | Q(shared=True))


def _named(name: str) -> str:
    name = " ".join(name.split())
    if not name or len(name) > NAME_CHARS or not name.isprintable():
        raise InvalidInput([FieldError("/name", "invalid", f"must be 1 to {NAME_CHARS} characters")])
    return name


def _record(view: SavedView, action: str, actor: Actor, now: datetime, **changed: Any) -> None:
    record(actor=actor, action=action, object_type="view", object_id=view.pk, now=now, tenant_id=None, **changed)
