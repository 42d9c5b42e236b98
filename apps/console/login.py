"""Operators sign in with Django's own form; guessing is slowed as it is for tenants' people."""

from typing import Any

from django import forms
from django.contrib.admin.forms import AdminAuthenticationForm

from apps.audit.actors import address_of
from tenants import guard
from tenants.rates import RateLimited
from tenants.signin import Busy, hashing

OPERATORS = 0  # no tenant has this number
NAME_CHARS = 254


class GuardedLogin(AdminAuthenticationForm):
    """Counts each attempt before its password is looked at."""

    def clean(self) -> dict[str, Any]:
        account = str(self.cleaned_data.get("username") or "")[:NAME_CHARS].casefold()
        assert self.request is not None  # the login page always gives it
        address = address_of(self.request)
        try:
            guard.attempt(tenant_id=OPERATORS, account=account, address=address)
        except RateLimited as error:
            wait_s = error.extra["retry_after_s"]
            raise forms.ValidationError(f"Too many attempts. Try again in {wait_s} s.", code="rate_limited") from error
        try:
            with hashing():
                cleaned: dict[str, Any] = super().clean()
        except Busy as error:
            raise forms.ValidationError(error.detail, code="busy") from error
        guard.succeeded(tenant_id=OPERATORS, account=account, address=address)
        return cleaned
