"""Limits: a tenant gets another plan, or a plan other limits, with what differs shown first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.db import transaction

from apps.audit.services import record
from apps.console.admin_tenants import QUOTAS, PlanForm
from apps.console.roles import OPERATE
from apps.console.verbs.base import Ask, Line, Preview, Receipt, Step, Verb, version_of
from apps.console.verbs.pausing import known_tenant, tenant_named
from apps.console.verbs.registry import register
from apps.console.verbs.tenants import overbooked_lines
from kernel.errors import NotFound, Stale
from tenants.changing import tenant_change
from tenants.models import Plan, Tenant

TENANTS_SHOWN = 5


class PlanChoice(forms.Form):
    """Which plan."""

    plan = forms.ModelChoiceField(queryset=Plan.objects.order_by("name"), to_field_name="name")


@register
class ChangePlan(Verb):
    """Gives a tenant another plan; the target is its slug."""

    name, label, level, form, look_first = "tenant.plan", "Change plan", OPERATE, PlanChoice, True

    def concerns(self, ask: Ask) -> Tenant | None:
        return known_tenant(ask.target)

    def initial(self, ask: Ask) -> Mapping[str, Any]:
        return {"plan": tenant_named(ask.target).plan.name}

    def look(self, ask: Ask) -> Preview:
        tenant = tenant_named(ask.target)
        wanted: Plan = ask.given.get("plan") or tenant.plan
        same = wanted.pk == tenant.plan_id
        lines = [Line("Tenant", f"{tenant.slug}, {tenant.name}")]
        lines.append(Line("Plan", tenant.plan.name, None if same else wanted.name))
        lines += [_line(name, getattr(tenant.plan, name), getattr(wanted, name)) for name in QUOTAS]
        return Preview(
            f"Change the plan of {tenant.slug}", lines, version_of(tenant.plan_id, *_values(tenant.plan)),
            ["New limits hold from the next request and release on. What there is already stays."],
            link=f"/admin/tenants/tenant/{tenant.pk}/change/",
            asks="Choose another plan and look at what it changes." if same else "",
        )  # fmt: skip

    def do(self, ask: Ask) -> Receipt:
        tenant = tenant_named(ask.target)
        before = tenant.plan.name
        tenant_change(
            tenant=tenant, plan=ask.given["plan"], worker_group=None, reason=ask.reason, actor=ask.actor, now=ask.now
        )
        return Receipt(
            f"{tenant.slug} has the plan {ask.given['plan'].name}.", f"/admin/tenants/tenant/{tenant.pk}/change/",
            Step(self.name, ask.target, given={"plan": before}), lines=overbooked_lines(),
        )  # fmt: skip


class Quotas(PlanForm):
    """The limits of a plan; empty is none."""

    class Meta:
        model = Plan
        fields = QUOTAS


@register
class ChangeQuota(Verb):
    """Changes the limits of a plan, for all tenants that have it; the target is its name."""

    name, label, level, form, look_first = "plan.quota", "Change quota", OPERATE, Quotas, True

    def initial(self, ask: Ask) -> Mapping[str, Any]:
        return dict(zip(QUOTAS, _values(_plan(ask)), strict=True))

    def look(self, ask: Ask) -> Preview:
        plan = _plan(ask)
        changed = _changed(plan, ask.given)
        of_plan = Tenant.objects.filter(plan=plan)
        slugs = list(of_plan.order_by("slug").values_list("slug", flat=True)[:TENANTS_SHOWN])
        others = of_plan.count() - len(slugs)
        more = f" and {others:,} more" if others > 0 else ""
        lines = [Line("Plan", plan.name), Line("Tenants", f"{', '.join(slugs) or '-'}{more}")]
        lines += [_line(name, value, changed.get(name, value)) for name, value in _named(plan)]
        return Preview(
            f"Change the quota of plan {plan.name}", lines, version_of(*_values(plan)),
            ["New limits hold from the next request and release on, for each of its tenants."],
            link=f"/admin/tenants/plan/{plan.pk}/change/",
            asks="" if changed else "Change a limit and look at what it changes.",
        )  # fmt: skip

    def do(self, ask: Ask) -> Receipt:
        plan = _plan(ask)
        before, after = dict(_named(plan)), _changed(plan, ask.given)
        if version_of(*_values(plan)) != ask.version:
            raise Stale("The plan has changed meanwhile.")
        with transaction.atomic():
            if not Plan.objects.filter(pk=plan.pk, **before).update(**after):
                raise Stale("The plan has changed meanwhile.")
            record(
                actor=ask.actor, action="plan.update", object_type="plan", object_id=plan.pk, now=ask.now,
                tenant_id=None, before={name: before[name] for name in after}, after=after, reason=ask.reason,
            )  # fmt: skip
        undo = {name: "" if value is None else str(value) for name, value in before.items()}
        return Receipt(
            f"{len(after)} of the limits of plan {plan.name} were changed.", f"/admin/tenants/plan/{plan.pk}/change/",
            Step(self.name, ask.target, given=undo),
        )  # fmt: skip


def _plan(ask: Ask) -> Plan:
    found = Plan.objects.filter(name=ask.target).first()
    if found is None:
        raise NotFound("There is no such plan.")
    return found


def _named(plan: Plan) -> list[tuple[str, Any]]:
    return [(name, getattr(plan, name)) for name in QUOTAS]


def _values(plan: Plan) -> list[Any]:
    return [value for _, value in _named(plan)]


def _changed(plan: Plan, given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name, value in _named(plan) if name in given and given[name] != value}


def _line(name: str, before: Any, after: Any) -> Line:
    told = ["none" if one is None else f"{one:,}" for one in (before, after)]
    return Line(name.replace("_", " "), told[0], None if before == after else told[1])
