"""JSON that people type into a form."""

from __future__ import annotations

from typing import Any

import orjson

from apps.presenting.fields import Form
from kernel.errors import FieldError, InvalidInput


def read_json(form: Form, name: str, *, default: Any = None) -> Any:
    """The value of a field, `default` when it is empty. InvalidInput says where it can't be read."""
    text = form.text(name)
    if not text:
        return default
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        detail = f"must be JSON: {error.msg} in line {error.lineno}, column {error.colno}."
        raise InvalidInput([FieldError(f"/{name}", "not_json", detail)]) from error
