"""The demo's jobs and schedules, in the API's own form: what people run, and targets that fail in each way.

Everything carries an `external_id`, so that a later run finds what an earlier one made and only mends targets whose
receiver moved to another port.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from django.db.models import F

from apps.audit.services import Actor
from apps.schedules.models import Job, JobVersion, Schedule
from apps.schedules.services import job_create, job_update, schedule_create
from tenants import door
from tenants.models import Role, Tenant

SCHEDULES = Path(__file__).with_name("schedules.jsonl")
FAST_RETRY = {"max_attempts": 2, "backoff": "fixed", "base_s": 1, "jitter": "none"}
FIRST_FAILURE_AFTER_S = 10
ACTOR = Actor(name="command:demo", role=Role.ADMIN)


class Counts(NamedTuple):
    """What `fill` did."""

    made: int
    mended: int


@dataclass(frozen=True)
class Item:
    """A job with its schedule."""

    key: str
    job: dict[str, Any]
    schedule: dict[str, Any]


def fill(tenant: Tenant, items: Iterable[Item], *, now: datetime) -> Counts:
    """Make what is missing. What a user changed or deleted stays so."""
    with door.inside(tenant):
        jobs = {job.external_id: job for job in Job.objects.exclude(external_id=None)}
        scheduled = set(Schedule.objects.exclude(external_id=None).values_list("external_id", flat=True))
        targets = dict(JobVersion.objects.filter(version=F("job__version")).values_list("job_id", "target"))
    made = mended = 0
    for item in items:
        job = jobs.get(item.key)
        if job is None:
            job = job_create(tenant=tenant, actor=ACTOR, data=item.job, now=now).job
        elif job.deleted_at is None and moved(targets[job.pk].get("url", ""), item.job["target"]["url"]):
            target = {"target": {"url": item.job["target"]["url"]}}
            job_update(tenant=tenant, actor=ACTOR, job_id=job.pk, patch=target, now=now)
            mended += 1
        if item.key not in scheduled and job.deleted_at is None:
            schedule_create(tenant=tenant, actor=ACTOR, data={**item.schedule, "job": str(job.pk)}, now=now)
            made += 1
    return Counts(made, mended)


def moved(was: str, wanted: str) -> bool:
    """Whether only the port differs: the receiver came up on another one."""
    old, new = urlsplit(was), urlsplit(wanted)
    return old.port != new.port and (old.hostname, old.path, old.query) == (new.hostname, new.path, new.query)


def items(number: int, *, of: int, receiver: str, now: datetime) -> Iterator[Item]:
    """What tenant `number` of `of` has: its share of the real schedules, and the failing targets."""
    yield from _troubled(receiver, now)
    lines = SCHEDULES.read_text().splitlines()
    for row in map(json.loads, lines[number::of]):
        trigger = {name: row[name] for name in ("cron", "every_s") if name in row}
        yield _item(row["name"], f"{receiver}/ok/{row['name']}", trigger=trigger, timezone=row.get("timezone", "UTC"))


def _troubled(receiver: str, now: datetime) -> Iterator[Item]:
    minute, now_and_then = {"cron": "* * * * *"}, {"cron": "*/5 * * * *"}
    soon = {"at": (now + timedelta(seconds=FIRST_FAILURE_AFTER_S)).isoformat()}
    yield _item("fails-at-the-start", f"{receiver}/fail", trigger=soon, retry=FAST_RETRY)
    yield _item("always-fails", f"{receiver}/fail", trigger=minute, retry=FAST_RETRY)
    yield _item(
        "nobody-listens", f"http://127.0.0.2:{urlsplit(receiver).port}/", trigger=now_and_then, retry=FAST_RETRY
    )
    yield _item("is-gone", f"{receiver}/gone", trigger=now_and_then, retry=FAST_RETRY)
    once = {"max_attempts": 1}
    yield _item("too-slow", f"{receiver}/slow?s=30", trigger=now_and_then, retry=once, timeout_s=2)
    yield _item("takes-its-time", f"{receiver}/slow?s=25", trigger=minute, timeout_s=40)
    patient = {**FAST_RETRY, "max_attempts": 5}
    yield _item("works-at-the-third-attempt", f"{receiver}/flaky", trigger=minute, retry=patient)


def _item(
    name: str,
    url: str,
    *,
    trigger: dict[str, Any],
    timezone: str = "UTC",
    retry: dict[str, Any] | None = None,
    timeout_s: int = 20,
) -> Item:
    key = f"demo:{name}"
    job: dict[str, Any] = {
        "name": name,
        "kind": "http",
        "target": {"url": url, "method": "POST"},
        "payload": {"task": name},
        "timeout_s": timeout_s,
        "labels": {"source": "demo"},
        "external_id": key,
    }
    if retry is not None:
        job["retry"] = retry
    schedule = {
        "name": name, "trigger": trigger, "timezone": timezone, "labels": {"source": "demo"}, "external_id": key,
    }  # fmt: skip
    return Item(key=key, job=job, schedule=schedule)
