"""/usage: what the tenant uses of what its plan allows, and what it did."""

from datetime import datetime, timedelta
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.documents_usage import UsageAnswer, UsageHistoryAnswer
from apps.api.endpoint import Endpoint
from apps.api.openapi import operation, parameter
from apps.dispatch.pool_standing import pool_standings
from apps.dispatch.standing import Standing, standings
from apps.usage.reading import PERIODS_MAX, STEP_S, Period, Spread, history
from tenants import door

TAG = "usage"
STEPS = tuple(STEP_S)
USUAL = {"minute": timedelta(hours=1), "hour": timedelta(days=1), "day": timedelta(days=30)}


class Usage(Endpoint):
    """Every limit and its use."""

    actions = {"GET": "usage.read"}

    @operation("usage_read", "Read every limit of the plan and its use now", answer=UsageAnswer, tag=TAG)
    def get(self, request: Request) -> Response:
        self.query().finish()
        plan = self.tenant.plan
        with door.inside(self.tenant):
            found = standings(self.tenant, now=self.now)
            pools = pool_standings(self.tenant)
        found.append(self._requests())
        return Response(
            {
                "as_of": self.now,
                "plan": plan.name,
                "quotas": [standing_shape(one) for one in found],
                "pools": [one._asdict() for one in pools],
                "worker_group": self.tenant.worker_group or plan.worker_group or None,
                "min_interval_s": plan.min_interval_s,
                "max_payload_bytes": plan.max_payload_bytes,
                "retention_days": plan.retention_days,
                "archive_days": plan.archive_days,
            }
        )

    def _requests(self) -> Standing:
        limit, standing = self.tenant.plan.max_api_requests_per_min, self.inner.standing
        known = standing is not None and limit is not None
        use = standing.limit - standing.remaining if standing is not None and known else 0
        resets_at = self.now + timedelta(seconds=standing.reset_s) if standing is not None and known else None
        what = "requests of this key or person in a minute"
        return Standing("max_api_requests_per_min", what, limit, use, known or limit is None, resets_at)


class UsageHistory(Endpoint):
    """What was done, by minute, hour or day."""

    actions = {"GET": "usage.read"}

    @operation(
        "usage_history", "Read what was done, by minute, hour or day", answer=UsageHistoryAnswer, tag=TAG,
        parameters=[
            parameter("step", {"type": "string", "enum": list(STEPS), "default": "hour"}, text="length of the periods"),
            parameter("from", datetime, text="periods that begin then or later; RFC 3339"),
            parameter("to", datetime, text="periods that begin earlier than this; RFC 3339; now when left out"),
        ],
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        query = self.query("step", "from", "to")
        steps = query.choices("step", STEPS)
        if len(steps) > 1:
            query.faults.add("?step", "choice", f"must be one of {', '.join(STEPS)}.")
        step = steps[0] if steps else "hour"
        end = query.instant("to") or self.now
        start = query.instant("from") or end - USUAL[step]
        if end < start:
            query.faults.add("?to", "contradiction", "must not be earlier than `from`.")
        elif (end - start).total_seconds() / STEP_S[step] > PERIODS_MAX:
            query.faults.add("?from", "range", f"At most {PERIODS_MAX:,} periods in one answer; take a longer step.")
        query.finish()
        found = history(door.raw(), tenant_id=self.tenant.pk, step=step, start=start, end=end)
        return Response(
            {
                "as_of": self.now,
                "step": step,
                "from": start,
                "to": end,
                "items": [period_shape(one) for one in found],
            }
        )


def standing_shape(one: Standing) -> dict[str, Any]:
    """A limit as the API answers it."""
    return {
        "quota": one.quota, "what": one.what, "limit": one.limit, "use": one.use, "use_is_exact": one.exact,
        "percent": one.percent, "resets_at": one.resets_at,
    }  # fmt: skip


def period_shape(one: Period) -> dict[str, Any]:
    """A period as the API answers it."""
    counts = dict(one.counts)
    run_ms = counts.pop("run_ms")
    return {
        "starts_at": one.starts_at,
        **counts,
        "run_s": run_ms / 1_000,
        "dispatch_lateness": _spread(one.spreads["dispatch"]),
        "start_lateness": _spread(one.spreads["start"]),
        "duration": _spread(one.spreads["duration"]),
    }


def _spread(one: Spread) -> dict[str, Any]:
    shown = {name: getattr(one, name) for name in ("p50_s", "p95_s", "p99_s")}
    return {"count": one.times, **{name: None if took is None else round(took, 3) for name, took in shown.items()}}
