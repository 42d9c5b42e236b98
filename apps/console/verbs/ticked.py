"""Verbs on the rows that are ticked in a table of the stock admin."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.options import IS_POPUP_VAR
from django.http import HttpRequest, HttpResponse

from apps.console import roles
from apps.console.selecting import ticked
from apps.console.verbs.base import Verb
from apps.console.verbs.many import key_of, many_look
from apps.console.verbs.registry import verb_named

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
else:
    Base = object


class TickedMixin(Base):
    """For a ModelAdmin: `verbs` names what is offered. Whose role is not enough sees below the table why."""

    verbs: tuple[str, ...] = ()
    change_list_template = "console/change_list.html"

    def keys_of(self, ids: list[Any]) -> Iterable[str]:
        """The verbs' targets, as the page for several rows takes them."""
        return map(key_of, ids)

    def on_all(self, request: HttpRequest, verb: Verb) -> HttpResponse | None:
        """All pages of the list are meant. It leads to an operation where there is one; else it is refused."""
        self.message_user(request, "Tick rows of one page: all pages at once are not offered.", messages.ERROR)
        return None

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        found: dict[str, Any] = super().get_actions(request)
        if IS_POPUP_VAR not in request.GET:
            found |= {
                one.name: (partial(_act, one), one.name, f"{one.label}: what is ticked")
                for one in self._verbs()
                if not roles.lacks(request.user, one.level)
            }
        return found

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        off = [(one.label, lack) for one in self._verbs() if (lack := roles.lacks(request.user, one.level))]
        return super().changelist_view(request, {**(extra_context or {}), "verbs_off": off})

    def _verbs(self) -> list[Verb]:
        found = [verb_named(name) for name in self.verbs]
        return [one for one in found if one is not None]


def _act(verb: Verb, page: TickedMixin, request: HttpRequest, queryset: Any) -> HttpResponse | None:
    """The page that says first what it would do."""
    if request.POST.get("select_across") == "1":
        return page.on_all(request, verb)
    keys = list(page.keys_of(ticked(page, request)))
    return many_look(page.admin_site, request, verb.name, keys, back=request.get_full_path()) if keys else None
