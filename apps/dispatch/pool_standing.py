"""Where a tenant stands in the pools of which its plan reserves or bounds slots."""

from typing import NamedTuple

from tenants import door
from tenants.models import Tenant

_POOLS = """
SELECT pp.pool, pp.reserved_slots, pp.max_slots,
       (SELECT count(*) FROM tickets_ticket t
        WHERE t.tenant_id = %(tenant)s AND t.pool = pp.pool AND t.state IN ('queued', 'running'))
FROM tenants_planpool pp WHERE pp.plan_id = %(plan)s ORDER BY pp.pool
"""


class PoolStanding(NamedTuple):
    """Slots of one pool: what it gets whenever it wants, the most it gets (None: any), and what it has now."""

    pool: str
    reserved_slots: int
    max_slots: int | None
    use: int


def pool_standings(tenant: Tenant) -> list[PoolStanding]:
    """Of those pools that the tenant's plan names; one statement."""
    rows = door.raw().execute(_POOLS, {"tenant": tenant.pk, "plan": tenant.plan_id})
    return [PoolStanding._make(row) for row in rows]
