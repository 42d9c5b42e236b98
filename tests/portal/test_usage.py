"""Usage on its page: every limit with its share, and what ran."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.portal.stock import stock

if TYPE_CHECKING:
    from tenants.models import Tenant


def test_limits_and_their_shares(acme: Tenant, conn: Any, registry: Any, console_of: Any) -> None:
    from tenants.models import Plan, PlanPool

    stock(acme, conn, registry)
    slots = PlanPool.objects.create(plan=acme.plan, pool="http", reserved_slots=7)
    Plan.objects.filter(pk=acme.plan_id).update(max_jobs=1, max_schedules=10)
    try:
        page = console_of(acme, "viewer").get("/console/usage")
    finally:
        Plan.objects.filter(pk=acme.plan_id).update(max_jobs=None, max_schedules=None)
        slots.delete()
    words = {one.standing.quota: one.word for one in page.context["limits"]}
    assert words["max_jobs"] == "used up" and words["max_schedules"] == "within" and words["max_live"] == "no limit"
    assert "Nothing ran then" in page.content.decode() and "Slots by pool" in page.content.decode()
    assert [(one.pool, one.reserved_slots, one.max_slots) for one in page.context["pools"]] == [("http", 7, None)]


@pytest.mark.parametrize("step", ["minute", "hour", "day", "century"])
def test_what_ran_is_drawn_and_written(
    acme: Tenant, globex: Tenant, conn: Any, console_of: Any, step: str
) -> None:  # fmt: skip
    from apps.usage.figures import ENDS
    from apps.usage.models import Rollup
    from tests.api.makers import utc_now

    assert "succeeded" in ENDS
    seconds = {"minute": 60, "day": 86_400}.get(step, 3_600)
    at = utc_now().replace(second=0, microsecond=0) - timedelta(minutes=5)
    for tenant, count in ((acme, 1_234), (globex, 987_654)):
        Rollup.objects.create(tenant_id=tenant.pk, step_s=seconds, starts_at=at, succeeded=count, dead=1)
    page = console_of(acme).get(f"/console/usage?step={step}")
    text = page.content.decode()
    assert page.context["total"] == 1_235 and "1,234" in text and "987,654" not in text and "<svg" in text
