"""Actions on what is ticked on one page. "Select all" over pages never loops over a queryset here."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.http import HttpRequest


def ticked(model_admin: Any, request: HttpRequest) -> list[UUID]:
    """The ids that are ticked on the page; none, with a message, when all pages were selected."""
    if request.POST.get("select_across") == "1":
        model_admin.message_user(request, "Tick rows of one page: all pages at once are not offered.", messages.ERROR)
        return []
    found = []
    for text in request.POST.getlist(ACTION_CHECKBOX_NAME)[: model_admin.list_per_page]:
        try:
            found.append(UUID(text))
        except ValueError:
            continue
    return found
