"""Nobody overwrites in the Django admin what they have not seen: each form carries what it was made of.

The form holds the values that it began with, signed. When the row is otherwise by the time that it is saved, nothing
is, and the answer is 409: the same form with what was typed, and above it what has changed meanwhile. The row is locked
from the comparison to the end of the save.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core import signing
from django.db import transaction
from django.db.models import Model
from django.forms import ModelForm
from django.forms.models import model_to_dict
from django.http import HttpRequest, HttpResponse

from apps.audit.plain import plain

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
    FormBase = ModelForm[Any]
else:
    Base = FormBase = object

SEEN = "_seen"
OVERTAKEN = "It has changed since you looked at it: nothing was saved. What you typed is below; save it again to go on."


class SeenMixin(Base):
    """For a ModelAdmin whose rows are changed by a form; templates/admin/change_form.html sends the values along."""

    seen_never: tuple[str, ...] = ()  # fields that change by themselves

    def seen_besides(self, obj: Any) -> dict[str, Any]:
        """What the form shows besides the fields of its model: rows of its inlines."""
        return {}

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:  # fmt: skip
        if request.method != "POST" or object_id is None:
            return super().changeform_view(request, object_id, form_url, extra_context)
        with transaction.atomic():
            differs = self._changed_since(request, object_id)
            request.overtaken = bool(differs)  # type: ignore[attr-defined]  # get_form below asks
            response = super().changeform_view(
                request, object_id, form_url, {**(extra_context or {}), "differs": differs}
            )
        if differs:
            response.status_code = 409
        return response

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form: Any = super().get_form(request, obj, change=change, **kwargs)
        return type(form)(form.__name__, (_Overtaken, form), {}) if getattr(request, "overtaken", False) else form

    def render_change_form(
        self, request: HttpRequest, context: Any, add: bool = False, change: bool = False, form_url: str = "",
        obj: Any = None,
    ) -> Any:  # fmt: skip
        if change and obj is not None:
            told = getattr(request, "seen_now", None)  # of a form that was sent: the row itself has what was typed
            context["seen"] = signing.dumps(told or self._told(request, obj), salt=_salt(obj), compress=True)
        return super().render_change_form(request, context, add=add, change=change, form_url=form_url, obj=obj)

    def _changed_since(self, request: HttpRequest, object_id: str) -> list[tuple[str, str, str]]:
        """What differs from what was looked at: name, before, now. The row is locked."""
        obj = self.get_object(request, unquote(object_id))
        if obj is None or not self.has_change_permission(request, obj):
            return []  # which Django itself answers
        rows = self.get_queryset(request).select_for_update(no_key=True, of=("self",))
        locked = rows.filter(pk=obj.pk).first()
        if locked is None:
            return []
        now = request.seen_now = self._told(request, locked)  # type: ignore[attr-defined]  # for the form below
        try:
            before = signing.loads(request.POST.get(SEEN, ""), salt=_salt(obj))
        except signing.BadSignature:
            before = {}
        return [
            (name.replace("_", " "), before.get(name, "-"), value)
            for name, value in now.items()
            if value != before.get(name)
        ]

    def _told(self, request: HttpRequest, obj: Any) -> dict[str, str]:
        """What the form shows of a row."""
        names = [name for name in self.get_form(request, obj, change=True).base_fields if name not in self.seen_never]
        values = {**model_to_dict(obj, fields=names), **self.seen_besides(obj)}
        return {name: str(plain(value)) for name, value in values.items()}


class _Overtaken(FormBase):
    """A form that fits nothing any more."""

    def clean(self) -> Any:
        given = super().clean()
        self.add_error(None, OVERTAKEN)
        return given


def _salt(obj: Model) -> str:
    return f"seen {obj._meta.label_lower} {obj.pk}"
