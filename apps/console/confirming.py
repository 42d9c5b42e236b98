"""What pages share on which operators ask for something: the permission that it takes, and how a refusal is shown."""

from __future__ import annotations

from django import forms

from kernel.errors import InvalidInput, ShardbeatError

PERMISSION = "operations.change_operation"


def refuse(form: forms.BaseForm, error: ShardbeatError) -> None:
    """What a service refused, at the fields that it is about."""
    if not isinstance(error, InvalidInput):
        form.add_error(None, error.detail)
        return
    for fault in error.errors:
        name = fault.pointer.rsplit("/", 1)[-1]
        form.add_error(name if name in form.fields else None, fault.detail)
