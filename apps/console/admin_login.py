"""Operators' sign-in: as slow to guess as a member's, and in the operators' own trail."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.models import User

from apps.audit.actors import Actor, address_of, at_request, operator
from apps.audit.services import record
from tenants import guard
from tenants.rates import RateLimited
from tenants.signin import Busy, hashing_slot
from tenants.work import database_now

OF_OPERATORS = 0  # in the place of a tenant's id: no tenant has it
TOO_MANY = "Too many attempts. Try again in {} s."


class OperatorLogin(AdminAuthenticationForm):
    """Counts an attempt before its password is looked at."""

    def clean(self) -> dict[str, Any]:
        name = self.cleaned_data.get("username")
        if not name or self.request is None or not self.cleaned_data.get("password"):
            return super().clean()
        account, address = name.lower(), address_of(self.request)
        try:
            guard.attempt(tenant_id=OF_OPERATORS, account=account, address=address)
            with hashing_slot():
                cleaned = super().clean()
        except RateLimited as error:
            raise forms.ValidationError(TOO_MANY.format(error.extra["retry_after_s"]), code="rate_limited") from None
        except Busy as error:
            raise forms.ValidationError(error.detail, code=error.code) from None
        except forms.ValidationError:
            found = User.objects.filter(username=name, is_staff=True).first()
            if found is not None:
                self._record(found, "session.refuse", allowed=False, reason="wrong password")
            raise
        guard.succeeded(tenant_id=OF_OPERATORS, account=account, address=address)
        self._record(self.get_user(), "session.begin")
        return cleaned

    def _record(self, user: Any, action: str, *, allowed: bool = True, reason: str = "") -> None:
        actor = Actor(name=f"admin:{user.get_username()}", role="admin", subject=operator(int(user.pk)))
        assert self.request is not None
        record(
            actor=at_request(actor, self.request), action=action, object_type="user", object_id=user.pk,
            now=database_now(), tenant_id=None, allowed=allowed, reason=reason,
        )  # fmt: skip


admin.site.login_form = OperatorLogin
