"""The rows of a page of a list that an ORM query gives; the rest of paging is in `apps.presenting.paging`."""

from __future__ import annotations

from typing import TypeVar

from django.db.models import Model, QuerySet
from django.http import HttpRequest

from apps.presenting.paging import PAGE_ROWS, cursor_of

M = TypeVar("M", bound=Model)


def newest(request: HttpRequest, found: QuerySet[M], *, by: str = "pk") -> list[M]:
    """The page's rows and one more, when there are more; `by` names their id."""
    cursor = cursor_of(request)
    if cursor is not None:
        found = found.filter(**{f"{by}__lt": cursor})
    return list(found.order_by(f"-{by}")[: PAGE_ROWS + 1])
