"""Asking for a backfill over the API and with the command: what it would do, its progress, what is refused."""

from __future__ import annotations

import io
import json
import threading
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest

from tests.api.makers import NOWHERE, Makers
from tests.fixtures_api import Api
from tests.fixtures_flow import actor, run_to_the_end
from tests.operations.fixtures import work_off
from tests.operations.test_backfill import runs

if TYPE_CHECKING:
    from tenants.models import Tenant
    from tenants.registry import Registry

Conn = psycopg.Connection[Any]
# The clocks of Berlin go on in the night to the 31st: two days have 47 hours.
CHANGE = {"from": "2024-03-30", "to": "2024-04-01"}


@pytest.fixture
def hourly(api: Api) -> str:
    """The id of a schedule of acme."""
    job = Makers(api).job(kind="python", target={"task": "shardbeat.noop"})
    return str(Makers(api, 10).schedule(job=job["id"], trigger={"cron": "0 * * * *"}, timezone="Europe/Berlin")["id"])


def test_over_the_api(api: Api, hourly: str, acme: Tenant, conn: Conn, registry: Registry) -> None:
    path = f"schedules/{hourly}/backfill"
    seen = api.post(path, {**CHANGE, "dry_run": True, "max_in_flight": 200})
    assert seen.status == 200
    answer = seen.body
    assert (answer["occurrences"], answer["count"], answer["standings"]["missing"]) == (47, 47, 47)
    assert (answer["first"], answer["last"]) == ("2024-03-29T23:00:00Z", "2024-03-31T21:00:00Z")
    assert (answer["timezone"], answer["expected_end"], len(answer["sample"])) == ("Europe/Berlin", None, 20)
    assert answer["warnings"] == ["None of these has succeeded lately, so when it ends can't be said."]
    assert api.get("backfills").body["items"] == []

    made = api.post(path, {**CHANGE, "max_in_flight": 200, "reason": "new warehouse"}, **{"Idempotency-Key": "again"})
    again = api.post(path, {**CHANGE, "max_in_flight": 200, "reason": "new warehouse"}, **{"Idempotency-Key": "again"})
    assert (made.status, again.body["id"]) == (202, made.body["id"])
    assert made.headers["Location"] == f"/api/v1/backfills/{made.body['id']}"
    work_off(acme, made.body["id"], most=1)
    [some] = api.get(f"backfills?schedule={hourly}&state=running").body["items"]
    assert (some["planned"], some["counts"]["pending"]) == (47, 47)
    while work_off(acme, made.body["id"], most=2).state == "running":
        run_to_the_end(conn, registry, [acme])
    done = api.get(f"backfills/{made.body['id']}").body
    assert (done["state"], done["counts"]["succeeded"], done["expected_end"]) == ("completed", 47, None)
    assert [(day["day"], day["succeeded"]) for day in done["days"]] == [("2024-03-30", 24), ("2024-03-31", 23)]
    assert api.get(f"backfills?schedule={NOWHERE}").body["items"] == []
    seen = api.post(path, {**CHANGE, "dry_run": True})
    assert (seen.body["count"], seen.body["standings"]["ran"]) == (0, 47)


def test_what_is_refused(api: Api, other_api: Api, hourly: str) -> None:
    path = f"schedules/{hourly}/backfill"
    wrong = api.post(path, {"from": "2024-03-01", "to": "2999-01-01", "max_in_flight": 0, "only": "x", "cron": "*"})
    assert wrong.faults == {
        "/to": "range", "/max_in_flight": "range", "/only": "choice", "/cron": "unknown_field",
    }  # fmt: skip
    assert api.post(path, []).status == 400
    assert api.post(path, {**CHANGE, "dry_run": "yes"}).faults == {"/dry_run": "type"}
    assert api.post(f"schedules/{NOWHERE}/backfill", CHANGE).status == 404
    assert other_api.post(path, CHANGE).status == 404

    make = Makers(api, 20)
    workflow = make.workflow({"name": "load", "delay_s": 1, "depends_on_previous": True})["id"]
    own = f"workflows/{workflow}/backfill"
    assert api.post(own, CHANGE).faults == {"/schedule": "no_schedule"}
    first = api.post("schedules", {"name": "first", "workflow": workflow, "trigger": {"cron": "0 3 * * *"}}).body["id"]
    assert api.post(own, {**CHANGE, "dry_run": True}).body["count"] == 2
    assert api.post(own, {**CHANGE, "order": "desc"}).faults == {"/order": "contradiction"}
    api.post("schedules", {"name": "second", "workflow": workflow, "trigger": {"cron": "0 4 * * *"}})
    assert api.post(own, CHANGE).faults == {"/schedule": "required"}
    assert api.post(own, {**CHANGE, "schedule": hourly}).faults == {"/schedule": "not_found"}
    made = api.post(own, {**CHANGE, "schedule": first}).body
    assert (made["workflow"], made["job"], made["schedule"]) == (workflow, None, first)


class Terminal(io.StringIO):
    """A person who types this."""

    def isatty(self) -> bool:
        return True


def test_with_the_command(
    hourly: str, acme: Tenant, conn: Conn, registry: Registry, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It asks who sits at a terminal, shows a bar until the last run has ended, and says by its exit how it went."""
    from django.core.management import call_command
    from django.db import connection

    from apps.operations.backfill.reading import backfills
    from apps.operations.loops import OperationService
    from apps.operations.services import operation_cancel
    from tenants import door
    from tenants.work import database_now

    given = ["--tenant", "acme", "--schedule", hourly, "--from", "2024-03-31", "--to", "2024-04-01"]
    call_command("backfill", *given, "--dry-run")
    assert capsys.readouterr().out.startswith(
        "23 occurrences in the range: 23 missing.\n"
        "23 would run, from 2024-03-30T23:00:00Z to 2024-03-31T21:00:00Z.\nNote: None of these"
    )
    for typed, more, words in (
        ("no\n", [], "[y/N] Nothing was done."), ("", [], "[y/N] Nothing was done."), ("", ["--yes"], "/max_in_flight"),
    ):  # fmt: skip
        monkeypatch.setattr("sys.stdin", Terminal(typed))
        with pytest.raises(SystemExit) as stopped:
            call_command("backfill", *given, *more, *(["--max-in-flight", "0"] if more else []))
        assert (stopped.value.code, words in capsys.readouterr().err) == (2, True)
    with door.inside(acme):
        assert not backfills().exists()

    stop = threading.Event()

    def platform() -> None:
        try:
            while not stop.wait(0.05):
                OperationService().run_once()
                run_to_the_end(conn, registry, [acme])
        finally:
            connection.close()

    thread = threading.Thread(target=platform)
    thread.start()
    try:
        monkeypatch.setattr("sys.stdin", io.StringIO())  # as from a script: nobody is asked
        call_command("backfill", *given, "--format", "json", "--max-in-flight", "30")
    finally:
        stop.set()
        thread.join(30)
    shown = capsys.readouterr()
    assert json.loads(shown.out)["counts"]["succeeded"] == 23
    assert shown.err.splitlines()[-1].startswith(f"[{'#' * 30}] 23/23 100 %  completed")
    assert len(runs(conn, acme, UUID(hourly))) == 23

    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    call_command("backfill", *given, "--only", "all", "--no-wait")
    backfill_id = capsys.readouterr().out.strip()
    operation_cancel(tenant=acme, actor=actor(acme), operation_id=UUID(backfill_id), now=database_now())
    with pytest.raises(SystemExit) as stopped:
        call_command("backfill", "--tenant", "acme", "--watch", backfill_id)
    assert stopped.value.code == 1
    assert f"{backfill_id} cancelled: nothing was to be run." in capsys.readouterr().out
