"""The demo's workflows: a load that comes through, and one of which a step fails each time and tells so.

As with the demo's jobs, what is there already stays as it is but for the receiver's port.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from apps.schedules.models import Job, Schedule
from apps.schedules.services import schedule_create
from apps.workflows.definitions.defined import workflow_defined, workflow_shape
from apps.workflows.definitions.services import workflow_create, workflow_update
from demo.content import ACTOR, FAST_RETRY, Counts
from kernel.pools import WORKFLOW
from tenants import door
from tenants.models import Tenant

LABELS = {"source": "demo"}
EVERY_TWO_MINUTES = {"cron": "*/2 * * * *"}


def fill(tenant: Tenant, *, receiver: str, now: datetime) -> Counts:
    """Make what is missing, with a schedule each."""
    with door.inside(tenant):
        found = {job.external_id: job for job in Job.objects.filter(kind=WORKFLOW).exclude(external_id=None)}
        scheduled = set(Schedule.objects.exclude(external_id=None).values_list("external_id", flat=True))
    made = mended = 0
    for data in definitions(receiver):
        key = data["external_id"]
        job = found.get(key)
        if job is None:
            job = workflow_create(tenant=tenant, actor=ACTOR, data=data, now=now).job
        elif job.deleted_at is None:
            mended += _mend(tenant, job, receiver, now)
        if key not in scheduled and job.deleted_at is None:
            schedule = {
                "name": data["name"], "workflow": str(job.pk), "trigger": EVERY_TWO_MINUTES, "labels": LABELS,
                "external_id": key,
            }  # fmt: skip
            schedule_create(tenant=tenant, actor=ACTOR, data=schedule, now=now)
            made += 1
    return Counts(made, mended)


def definitions(receiver: str) -> Iterator[dict[str, Any]]:
    """In the API's form."""

    def call(path: str, **more: Any) -> dict[str, Any]:
        return {"kind": "http", "target": {"url": f"{receiver}/{path}", "method": "POST"}, "timeout_s": 20, **more}

    yield {
        "name": "load-regions",
        "external_id": "demo:load-regions",
        "labels": LABELS,
        "input": {"regions": ["eu", "us", "asia"]},
        "steps": [
            {"name": "extract", "job": call("ok/extract")},
            {
                "name": "transform",
                "needs": ["extract"],
                "for_each": {"items": "{{ input.regions }}", "max_in_flight": 2},
                "input": {"region": "{{ item }}", "from": "{{ steps.extract.output.done }}"},
                "job": call("ok/transform"),
            },
            {"name": "load", "needs": ["transform"], "input": "{{ steps.transform.output }}", "job": call("ok/load")},
        ],
    }
    yield {
        "name": "export-orders",
        "external_id": "demo:export-orders",
        "labels": LABELS,
        "steps": [
            {"name": "collect", "job": call("ok/collect")},
            {"name": "check", "needs": ["collect"], "job": call("flaky", retry={**FAST_RETRY, "max_attempts": 5})},
            {"name": "upload", "needs": ["check"], "job": call("fail", retry=FAST_RETRY)},
            {"name": "archive", "needs": ["upload"], "job": call("ok/archive")},
            {"name": "clean-up", "needs": [{"step": "upload", "on": "finished"}], "job": call("ok/clean-up")},
        ],
        "on_failure": {
            "job": call("ok/notify"),
            "input": {"text": "{{ run.workflow }} failed at {{ run.failed_step }}: {{ run.error.message }}"},
        },
    }


def _mend(tenant: Tenant, job: Job, receiver: str, now: datetime) -> bool:
    """The receiver came up on another port: its address is changed wherever it stands."""
    with door.inside(tenant):
        shape = workflow_shape(workflow_defined(job))
    parts = {name: shape[name] for name in ("steps", "on_failure")}
    text = json.dumps(parts)
    host, _, port = receiver.rpartition(":")
    moved = re.sub(rf"{re.escape(host)}:\d+/", f"{host}:{port}/", text)
    if moved == text:
        return False
    workflow_update(tenant=tenant, actor=ACTOR, workflow_id=job.pk, patch=json.loads(moved), now=now)
    return True
