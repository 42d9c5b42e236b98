"""The console as Django knows it."""

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class ConsoleConfig(AppConfig):
    name = "apps.console"
    label = "console"

    def ready(self) -> None:
        post_migrate.connect(_make_roles, sender=self)


def _make_roles(using: str, **given: Any) -> None:
    """The groups of the roles, with what this version knows of."""
    from apps.console.roles import roles_make  # models are not ready when this module is read

    roles_make(using=using)
