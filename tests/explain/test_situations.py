"""Explanations name the true cause: one row of the table for each situation."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from tests.explain import situations, situations_ended, situations_schedules
from tests.explain.stage import Stage
from tests.explain.table import SITUATIONS, Situation

TABLES = (situations, situations_ended, situations_schedules)  # to import them fills the table


def explained_of(stage: Stage, kind: str, key: UUID, instant: datetime | None = None, **more: Any) -> Any:
    from apps.dispatch.explaining.execution import execution_explain
    from apps.dispatch.explaining.schedules import schedule_explain
    from tenants.models import Tenant
    from tenants.work import in_tenant

    tenant = Tenant.objects.select_related("plan").filter(pk=stage.tenant.pk).get()
    if kind == "execution":
        return in_tenant(tenant, lambda: execution_explain(tenant, key, now=stage.now, named=True, **more))
    return in_tenant(tenant, lambda: schedule_explain(tenant, key, now=stage.now, at=instant, named=True, **more))


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda one: one.name)
def test_the_true_cause_is_named(situation: Situation, stage: Stage) -> None:
    from apps.dispatch.explaining.shape import explanation_shape, explanation_text

    found = explained_of(stage, *situation.make(stage))
    verdict = found.verdict
    assert (verdict.code, verdict.fine) == (situation.code, situation.fine), verdict
    for part in situation.says:
        assert part in verdict.detail, verdict.detail
    assert len(verdict.holders) == situation.holders
    assert (verdict.clears_at is not None) == situation.clears, verdict
    assert verdict.code in explanation_text(found) and explanation_shape(found)["verdict"]["detail"] == verdict.detail


def test_the_table_is_complete() -> None:
    from apps.dispatch.admission import CODES
    from apps.dispatch.explaining.words import STEP_WORDS, WORDS

    named = {one.code for one in SITUATIONS}
    # These hold no run back that there is: a paused schedule makes none, and a day's runs are counted when made.
    assert set(CODES) - named <= {"schedule_paused", "daily_quota", "not_yet_due"}
    assert set(WORDS) - named <= set(STEP_WORDS), "each code that has words is the cause of a situation"
    assert len(SITUATIONS) >= 50
