"""Pausing, resuming, cancelling, undoing; canaries, limits and what holds an operation back."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from io import StringIO
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.fixtures_flow import (
    actor,
    count,
    make_job,
    make_schedule,
    make_ticket,
    ready_of,
    run_to_the_end,
    settle_as,
    started_now,
)
from tests.operations.fixtures import ask, passes, read, receipt, work_off

if TYPE_CHECKING:
    from tenants.models import Tenant
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]


def test_definitions_are_paused_labelled_and_put_back_where_nobody_touched_them(acme: Tenant) -> None:
    from apps.operations.services import operation_undo
    from apps.schedules.models import Job, Schedule
    from apps.schedules.services import job_update, schedule_resume
    from tenants import door
    from tenants.work import database_now

    jobs = [make_job(acme, name=f"import {n}", labels={"team": "old", "tier": "1"}) for n in range(3)]
    schedules = [make_schedule(acme, jobs[0], name=f"nightly {n}") for n in range(3)]
    paused = ask(acme, "pause", "schedules", {"name": "nightly"}, reason="the supplier is down")
    assert work_off(acme, paused.pk).succeeded == 3
    again = work_off(acme, ask(acme, "pause", "schedules", {"name": "nightly"}).pk)
    assert receipt(acme, again.pk)[0] == (1, "skipped", "already_paused")
    labels = {"team": "billing", "tier": None, "new": "yes"}
    labelled = ask(acme, "label", "jobs", {"label": {"team": "old"}}, params={"labels": labels})
    assert work_off(acme, labelled.pk).succeeded == 3

    def now_are() -> tuple[list[str], list[dict[str, str]]]:
        with door.inside(acme):
            states = [one.status for one in Schedule.objects.order_by("name")]
            return states, [one.labels for one in Job.objects.filter(pk__in=jobs).order_by("name")]

    assert now_are() == (["paused"] * 3, [{"team": "billing", "new": "yes"}] * 3)
    now = database_now()
    schedule_resume(tenant=acme, actor=actor(acme), schedule_id=schedules[1], now=now)
    job_update(tenant=acme, actor=actor(acme), job_id=jobs[2], patch={"labels": {"team": "mine"}}, now=now)
    for one in (paused, labelled):
        operation_undo(tenant=acme, actor=actor(acme), operation_id=one.pk, now=now)
    undone = work_off(acme, paused.pk)

    assert (undone.state, undone.undone, undone.succeeded) == ("undone", 2, 1)
    assert receipt(acme, paused.pk)[1] == (2, "succeeded", "changed_since")
    assert work_off(acme, labelled.pk).undone == 3  # of the last one what nobody changed
    assert _command("--id", str(paused.pk), "--undo", "--dry-run", "--format", "json")["state"] == "undone"
    assert [row["action"] for row in _command("--format", "json")] == ["label", "pause", "pause"]
    assert now_are() == (
        ["active"] * 3, [{"team": "old", "tier": "1"}, {"team": "old", "tier": "1"}, {"team": "mine", "tier": "1"}],
    )  # fmt: skip


def test_reruns_wait_for_their_canary_and_an_undo_cancels_what_has_not_begun(
    acme: Tenant, conn: Conn, registry: Registry
) -> None:
    from apps.operations.services import operation_cancel, operation_resume, operation_undo
    from kernel.errors import Conflict
    from tenants.work import database_now

    job = make_job(acme, retry={"max_attempts": 1})
    for _ in range(6):
        make_ticket(acme, job)
    run_to_the_end(conn, registry, [acme])
    one = ask(acme, "rerun", "executions", {"job": str(job)}, canary=2, max_in_flight=3)
    work_off(acme, one.pk, most=5)
    first = read(acme, one.pk)
    assert (first.running, first.pending, first.canary_passed) == (2, 4, False)

    made = ready_of(conn, acme)
    settle_as(conn, registry, started_now(conn, made[:1], uuid.uuid4()), "failed")
    held = work_off(acme, one.pk, most=5)
    assert (held.state, held.paused_reason, held.failed, held.running) == ("paused", "canary_failed", 1, 1)
    now = database_now()
    operation_resume(tenant=acme, actor=actor(acme), operation_id=one.pk, now=now)
    on = work_off(acme, one.pk, most=5)
    assert (on.state, on.running, on.pending) == ("running", 3, 2), "at most three at a time"
    begun = started_now(conn, [made[1]], uuid.uuid4())
    operation_cancel(tenant=acme, actor=actor(acme), operation_id=one.pk, now=now)
    with pytest.raises(Conflict, match="is cancelled"):
        operation_resume(tenant=acme, actor=actor(acme), operation_id=one.pk, now=now)
    operation_undo(tenant=acme, actor=actor(acme), operation_id=one.pk, now=now)
    work_off(acme, one.pk, most=5)
    left = read(acme, one.pk)
    assert (left.state, left.undone, left.running) == ("undoing", 2, 1), "what has begun goes on"
    assert count(conn, "SELECT count(*) FROM t_acme.operations_item WHERE state = 'running' AND done_at IS NULL") == 1
    settle_as(conn, registry, begun)

    done = work_off(acme, one.pk)
    assert (done.state, done.succeeded, done.failed, done.undone, done.pending) == ("undone", 1, 1, 2, 2)
    assert {state for _, state, _ in receipt(acme, one.pk)[4:]} == {"pending"}
    assert not ready_of(conn, acme)


def test_what_holds_an_operation_back_and_what_stops_it(
    acme: Tenant, conn: Conn, registry: Registry, plan: Callable[..., None]
) -> None:
    from apps.operations.models import Operation
    from apps.operations.services import operation_pause, operation_repace
    from kernel.errors import InvalidInput, Stale
    from tenants import door
    from tenants.work import database_now

    job = make_job(acme, retry={"max_attempts": 1})
    for _ in range(4):
        make_ticket(acme, job)
    run_to_the_end(conn, registry, [acme])
    one = ask(acme, "rerun", "executions", {"job": str(job)}, rate_per_s=0.5, stop_after_failures=2, max_in_flight=4)
    plan(max_live=1)
    conn.execute("UPDATE tenants_tenant SET status = 'suspended' WHERE slug = 'acme'")
    work_off(acme, one.pk, most=3)
    assert read(acme, one.pk).state == "planning", "a suspended tenant's operations wait"
    conn.execute("UPDATE tenants_tenant SET status = 'active' WHERE slug = 'acme'")
    work_off(acme, one.pk, most=2)
    assert read(acme, one.pk).running == 1
    assert passes() == {}, "the next one is due in two seconds"
    now = database_now()
    with pytest.raises(InvalidInput):
        operation_repace(tenant=acme, actor=actor(acme), operation_id=one.pk, now=now, given={"rate_per_s": 0})
    changed = operation_repace(
        tenant=acme, actor=actor(acme), operation_id=one.pk, now=now, given={"rate_per_s": None}, expect=[1]
    )
    with pytest.raises(Stale):
        operation_pause(tenant=acme, actor=actor(acme), operation_id=one.pk, now=now, expect=[1])
    assert (changed.rate_per_s, changed.revision) == (None, 2)
    work_off(acme, one.pk, most=1)
    waits = read(acme, one.pk)
    assert (waits.running, waits.pending, waits.waits_for) == (1, 3, "quota_exceeded")
    plan(max_live=None)
    for _ in range(2):
        settle_as(conn, registry, started_now(conn, ready_of(conn, acme)[:1], uuid.uuid4()), "failed")
        with door.inside(acme):
            Operation.objects.update(next_at=None)
        work_off(acme, one.pk, most=2)
    done = read(acme, one.pk)
    assert (done.state, done.failed) == ("stopped", 2)
    run_to_the_end(conn, registry, [acme])
    ended = work_off(acme, one.pk)
    assert (ended.succeeded, ended.running) == (2, 0) and ended.finished_at is not None


def _command(*options: str) -> Any:
    """What `manage.py operation` prints of acme's."""
    from django.core.management import call_command

    out = StringIO()
    call_command("operation", "--tenant", "acme", *options, stdout=out)
    return json.loads(out.getvalue())
