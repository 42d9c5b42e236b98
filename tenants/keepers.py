"""Who has a say when a tenant is deleted: modules that `TENANT_KEEPERS` names, since they lie above this package."""

from functools import cache
from importlib import import_module
from typing import Any, Protocol, cast

import psycopg
from django.conf import settings

Conn = psycopg.Connection[Any]


class Keeper(Protocol):
    """What such a module has."""

    def kept_by(self, conn: Conn, schema: str) -> str:
        """Why nothing of this tenant may be deleted, as a sentence; empty when it may.

        The caller holds the tenant's row, so that what it answers stays so until the transaction ends.
        """

    def remove_some(self, conn: Conn, tenant_id: int, schema: str) -> int:
        """Removes a bounded part of what the tenant has outside of the database, at no transaction's expense; how many
        things. 0: nothing is left. May be called again after a crash. A ShardbeatError when it does not work now."""

    def orphans(self, conn: Conn) -> list[str]:
        """What is outside of the database and belongs to no tenant, named for people."""


@cache
def keepers() -> tuple[Keeper, ...]:
    """All of them."""
    return tuple(cast("Keeper", import_module(name)) for name in settings.TENANT_KEEPERS)


def kept_by(conn: Conn, schema: str) -> str:
    """The first reason for which nothing of a tenant may be deleted; empty when there is none."""
    return next((reason for one in keepers() if (reason := one.kept_by(conn, schema))), "")


def remove_some(conn: Conn, tenant_id: int, schema: str) -> int:
    """Removes a part of what is outside of the database; 0 when nothing is left."""
    return next((count for one in keepers() if (count := one.remove_some(conn, tenant_id, schema))), 0)
