"""Operators sign in with Django's own form; guessing is slowed as it is for tenants' people, and noted."""

from typing import Any

from django import forms
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.models import User

from apps.audit.actors import Actor, address_of, at_request, operator
from apps.audit.services import record
from tenants import guard
from tenants.rates import RateLimited
from tenants.signin import Busy, hashing
from tenants.work import database_now

OPERATORS = 0  # no tenant has this number
NAME_CHARS = 254


class GuardedLogin(AdminAuthenticationForm):
    """Counts each attempt before its password is looked at."""

    def clean(self) -> dict[str, Any]:
        name = str(self.cleaned_data.get("username") or "")
        if not name or not self.cleaned_data.get("password"):
            return super().clean()  # looks at nothing, so it is neither an attempt nor a success
        account = name[:NAME_CHARS].casefold()
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
        except forms.ValidationError:
            found = User.objects.filter(username=name, is_staff=True).first()
            if found is not None:
                self._record(found, "session.refuse", allowed=False, reason="wrong password")
            raise
        guard.succeeded(tenant_id=OPERATORS, account=account, address=address)
        self._record(self.get_user(), "session.begin")
        return cleaned

    def _record(self, user: Any, action: str, *, allowed: bool = True, reason: str = "") -> None:
        """In the operators' own trail."""
        assert self.request is not None
        actor = Actor(name=f"admin:{user.get_username()}", role="admin", subject=operator(int(user.pk)))
        record(
            actor=at_request(actor, self.request), action=action, object_type="user", object_id=user.pk,
            now=database_now(), tenant_id=None, allowed=allowed, reason=reason,
        )  # fmt: skip
