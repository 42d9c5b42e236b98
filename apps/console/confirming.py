"""Pages that say first what they would do, and then do only what was looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from kernel.errors import InvalidInput, ShardbeatError

PERMISSION = "operations.change_operation"


class ConfirmedForm(forms.Form):
    """What is asked for. `seen` is what was looked at."""

    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    @property
    def given(self) -> dict[str, Any]:
        """What was filled in."""
        return {name: value for name, value in self.cleaned_data.items() if name != "seen" and value not in (None, "")}

    @property
    def meant(self) -> str:
        """What is asked for, as a text to be compared."""
        return "\n".join(f"{name}={value}" for name, value in sorted(self.given.items()))

    @property
    def was_seen(self) -> bool:
        """Whether just this was looked at."""
        seen: str = self.cleaned_data["seen"]
        return seen.replace("\r\n", "\n") == self.meant


def confirmed_page(
    admin: Any, request: HttpRequest, form: ConfirmedForm, ask: Callable[[], HttpResponse | tuple[int, Any]], *,
    template: str, **context: Any,
) -> HttpResponse:  # fmt: skip
    """Shows the form, and what `ask` answers to it: over how many things it would be, and what is shown of it as
    `outlook`; or where to go on when it was done."""
    outlook: Any = None
    if form.is_bound and form.is_valid():
        try:
            found = ask()
            if isinstance(found, HttpResponse):
                return found
            count, outlook = found
            form.data = {**form.cleaned_data, "seen": form.meant if count else ""}
        except ShardbeatError as error:
            refuse(form, error)
    shown = {**admin.admin_site.each_context(request), "opts": admin.opts, "form": form, "outlook": outlook, **context}
    return TemplateResponse(request, template, shown)


def refuse(form: forms.BaseForm, error: ShardbeatError) -> None:
    """What a service refused, at the fields that it is about."""
    if not isinstance(error, InvalidInput):
        form.add_error(None, error.detail)
        return
    for fault in error.errors:
        name = fault.pointer.rsplit("/", 1)[-1]
        form.add_error(name if name in form.fields else None, fault.detail)


def asked_for(request: HttpRequest, operation_id: UUID) -> HttpResponse:
    """The operation's page, which says that it was asked for."""
    messages.success(request, "It was asked for, and begins within moments.")
    return HttpResponseRedirect(reverse("admin:operations_operation_change", args=[operation_id], current_app="tenant"))
