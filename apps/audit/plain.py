"""Values of the Django admin's forms as JSON holds them."""

from datetime import date, datetime
from decimal import Decimal
from typing import Any

from django.db.models import Model, QuerySet


def plain(value: Any) -> Any:
    """The value as JSON holds it; of a row its key."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Model):
        return value.pk
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | QuerySet):
        return [plain(one) for one in value]
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else repr(value) if isinstance(value, bytes) else str(value)
