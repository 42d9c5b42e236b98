"""What an operator may do, read in one statement: Django's own backend takes one for the user and one for the groups.

It comes before Django's, which finds in the user's cache what was read here. Signing in is left to that one: sessions
name the backend that they began with.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Permission


class Permissions:
    """A backend that knows nobody and reads what somebody may do, once a request."""

    def authenticate(self, request: Any, **credentials: Any) -> None:
        """Nobody signs in here."""

    def has_perm(self, user_obj: Any, perm: str, obj: Any = None) -> bool:
        return perm in self.get_all_permissions(user_obj, obj)

    def has_module_perms(self, user_obj: Any, app_label: str) -> bool:
        return any(name.startswith(f"{app_label}.") for name in self.get_all_permissions(user_obj))

    def get_all_permissions(self, user_obj: Any, obj: Any = None) -> set[str]:
        if not user_obj.is_active or user_obj.is_anonymous or obj is not None:
            return set()
        if not hasattr(user_obj, "_perm_cache"):  # where Django's own backend looks, too
            user_obj._perm_cache = _read(user_obj)
        found: set[str] = user_obj._perm_cache
        return found


def _read(user: Any) -> set[str]:
    every = Permission.objects.order_by()
    rows = every if user.is_superuser else every.filter(user=user).union(every.filter(group__user=user))
    return {f"{app}.{codename}" for app, codename in rows.values_list("content_type__app_label", "codename")}
