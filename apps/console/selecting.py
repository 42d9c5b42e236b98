"""What is ticked on one page of a table."""

from typing import Any

from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest


def refuse_hidden(model_admin: Any, request: HttpRequest) -> None:
    """PermissionDenied for an action that somebody sends although their role does not offer it; that is in the trail.

    Django itself only says that no action was selected; and it fails on an id that is none, so those are left out.
    """
    name = request.POST.get("action", "")
    there_are = (*(model_admin.actions or ()), *getattr(model_admin, "verbs", ()))
    if name and name in there_are and name not in model_admin.get_actions(request):
        raise PermissionDenied
    sent = request.POST.copy()
    sent.setlist(ACTION_CHECKBOX_NAME, [one for one in sent.getlist(ACTION_CHECKBOX_NAME) if _is_id(model_admin, one)])
    request.POST = sent  # type: ignore[assignment]  # as it was, without them


def ticked(model_admin: Any, request: HttpRequest) -> list[Any]:
    """The ids that are ticked on the page."""
    sent = request.POST.getlist(ACTION_CHECKBOX_NAME)[: model_admin.list_per_page]
    return [model_admin.model._meta.pk.to_python(one) for one in sent if _is_id(model_admin, one)]


def _is_id(model_admin: Any, text: str) -> bool:
    try:
        model_admin.model._meta.pk.to_python(text)
    except ValidationError:
        return False
    return bool(text)
