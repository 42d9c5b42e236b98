"""The two services a process needs: those that the environment names, and the rest started here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from embedded.postgres import Postgres
from embedded.valkey import Valkey

DATABASE_VARIABLE = "DATABASE_URL"
OWNER_VARIABLE = "MIGRATION_DATABASE_URL"
BROKER_VARIABLE = "BROKER_URL"


class Services:
    """PostgreSQL and Valkey below one folder, each only where the environment gives no address for it."""

    def __init__(self, folder: Path, *, durable: bool = True, environment: Mapping[str, str] = os.environ) -> None:
        self._environment = environment
        self.postgres = None if environment.get(DATABASE_VARIABLE) else Postgres(folder / "postgres", durable=durable)
        self.valkey = None if environment.get(BROKER_VARIABLE) else Valkey(folder / "valkey")

    @property
    def embedded(self) -> list[Postgres | Valkey]:
        """Those that run here, in the order in which they start."""
        return [service for service in (self.postgres, self.valkey) if service is not None]

    def start(self) -> None:
        """Start what is embedded. Raises ServiceError; nothing is left running then."""
        try:
            for service in self.embedded:
                service.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        for service in reversed(self.embedded):
            service.stop()

    def variables(self) -> dict[str, str]:
        """What to add to the environment of every process that uses them."""
        found: dict[str, str] = {}
        if self.postgres is not None:
            found |= {DATABASE_VARIABLE: self.postgres.url, OWNER_VARIABLE: self.postgres.owner_url}
        elif not self._environment.get(OWNER_VARIABLE):
            found[OWNER_VARIABLE] = self._environment[DATABASE_VARIABLE]
        if self.valkey is not None:
            found[BROKER_VARIABLE] = self.valkey.url
        return found
