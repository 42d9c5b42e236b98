"""What a worker needs to make deliveries: where to, and what signs, as the webhooks are at that moment."""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql

from apps.secrets.vault import Vault
from apps.webhooks.jobs import TEST_VERSION
from kernel.errors import ShardbeatError
from tenants.registry import Tenancy

Conn = psycopg.Connection[Any]

_READ = """
SELECT id, url, enabled, deleted_at IS NOT NULL, secret, CASE WHEN former_until > %s THEN former_secret ELSE '' END
FROM {schema}.webhooks_webhook WHERE id = ANY(%s)
"""


@dataclass(frozen=True, slots=True)
class Receiver:
    """A webhook as an attempt finds it. `unreadable` says why its secret can't be used."""

    url: str
    enabled: bool
    signing_secrets: tuple[str, ...] = field(repr=False)
    unreadable: ShardbeatError | None = None

    @property
    def target(self) -> dict[str, Any]:
        """As the target of an HTTP job."""
        return {"url": self.url, "method": "POST"}

    def takes(self, job_version: int) -> bool:
        """Whether it is still to be called; what somebody tries out is sent also to one that is disabled."""
        return self.enabled or job_version == TEST_VERSION


def receivers(
    conn: Conn, tenancy: Tenancy, vault: Vault, webhook_ids: Collection[UUID], *, now: datetime
) -> dict[UUID, Receiver]:
    """By webhook; those that are deleted are left out."""
    query = sql.SQL(_READ).format(schema=sql.Identifier(tenancy.schema))
    rows = [row for row in conn.execute(query, [now, list(webhook_ids)]).fetchall() if not row[3]]
    found = vault.values(conn, tenancy, {name for row in rows for name in row[4:] if name}, now=now)
    made = {}
    for webhook_id, url, enabled, _, *names in rows:
        secrets = tuple(found.values[name] for name in names if name in found.values)
        wrong = next((found.unreadable[name] for name in names if name in found.unreadable), None)
        made[webhook_id] = Receiver(url, enabled, secrets, wrong if not secrets else None)
    return made
