"""What the answer gives away and to whom, what it costs, and that the words are written down."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.explain.situations import as_many_as_the_job_allows_run, as_many_as_the_plan_allows_run, the_pool_is_full
from tests.explain.situations_schedules import it_does_not_fall_on_that_time
from tests.explain.stage import Stage
from tests.explain.test_situations import explained_of
from tests.fixtures_api import Api

DOCS = Path(__file__).resolve().parents[2] / "docs" / "explain.md"
MANY = 100_000
STATEMENTS_MAX = 12


def test_every_code_is_documented() -> None:
    from apps.dispatch.explaining.words import WORDS

    text = DOCS.read_text()
    assert [code for code in WORDS if f"`{code}`" not in text] == []


def test_every_rule_of_admission_has_its_words() -> None:
    from apps.dispatch.admission import CODES
    from apps.dispatch.explaining.words import ADMISSION_WORDS

    assert tuple(ADMISSION_WORDS) == CODES


def test_get_and_post_answer_the_same(stage: Stage, api: Api) -> None:
    _, run = as_many_as_the_job_allows_run(stage)[:2]
    found = api.get(f"executions/{run}/explain").body
    asked = api.post(f"executions/{run}/explain", {}).body
    assert found["verdict"] | {"detail": ""} == asked["verdict"] | {"detail": ""}
    refused = [one["code"] for one in found["checks"] if not one["ok"]]
    assert refused == ["job_concurrency"] and found["position"] == {"ahead": 0, "is_exact": True, "key": None}
    assert found["verdict"]["link"].startswith("/api/v1/jobs/") and len(found["verdict"]["holders"]) == 2


def test_tenants_are_told_nothing_of_others_work(stage: Stage) -> None:
    _, run = the_pool_is_full(stage)[:2]
    theirs, ours = (explained_of(stage, "execution", run, operator=operator) for operator in (False, True))
    assert theirs.verdict.code == ours.verdict.code == "pool_full"
    assert (theirs.verdict.limit, theirs.verdict.use) == (None, None)
    assert ours.verdict.limit == ours.verdict.use == 2, "one slot, and one run that waits for it"
    assert all(one.use is None for one in theirs.checks if one.level == "pool")


def test_runs_that_are_due_say_what_they_wait_for(stage: Stage, api: Api) -> None:
    """In lists as well, and in pull queues, whose runs no release loop looks at."""
    job = stage.job(kind="pull", queue="invoices", target={}, max_concurrency=1)
    first, second = stage.run(job), stage.run(job)
    assert reasons(api, job) == {str(first): None, str(second): None}
    answer = api.post("queues/invoices/lease", {"max": 1})
    assert [one["execution"] for one in answer.body["items"]] == [str(first)]
    assert reasons(api, job) == {str(first): None, str(second): "job_concurrency"}
    assert api.post("queues/invoices/pause").status == 200
    assert api.get(f"executions/{second}").body["wait_reason"] == "queue_paused"
    assert api.post(f"jobs/{job}/pause").status == 200
    assert reasons(api, job)[str(second)] == "job_paused"


def reasons(api: Api, job: UUID) -> dict[str, Any]:
    return {one["id"]: one["wait_reason"] for one in api.get(f"jobs/{job}/executions").body["items"]}


def test_the_command_says_it_and_exits_so(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    from django.core.management import call_command

    run = stage.run()
    call_command("explain", "--tenant", "acme", "--execution", str(run))
    assert "OK: Nothing holds it back" in capsys.readouterr().out
    as_many_as_the_plan_allows_run(stage)
    with pytest.raises(SystemExit, match="1"):
        call_command("explain", "--tenant", "acme", "--execution", str(run), "--format", "json")
    assert '"code":"tenant_concurrency"' in capsys.readouterr().out
    for wrong in (["--execution", "x"], ["--execution", str(UUID(int=1))], ["--execution", str(run), "--at", "now"]):
        with pytest.raises(SystemExit, match="2"):
            call_command("explain", "--tenant", "acme", *wrong)


def test_the_operators_page(stage: Stage) -> None:
    from django.contrib.auth.models import User

    from tests.console.conftest import logged_in

    _, run = as_many_as_the_job_allows_run(stage)[:2]
    page = logged_in(User.objects.create_superuser("ada", password="not a word"))
    found = page.get(f"/t/acme/admin/executions/execution/{run}/explain/")
    assert found.status_code == 200 and "2 of 2 runs of the job" in found.content.decode()
    assert f"{run}/explain/" in page.get(f"/t/acme/admin/executions/execution/{run}/change/").content.decode()
    assert f"/t/acme/admin/executions/execution/{run}/explain/" in page.get("/admin/tickets/ticket/").content.decode()
    assert page.get(f"/t/globex/admin/executions/execution/{run}/explain/").status_code == 404
    asked = it_does_not_fall_on_that_time(stage)
    page_at = f"/t/acme/admin/schedules/schedule/{asked[1]}/explain/?at="
    for instant, told in {
        f"{asked[-1]:%Y-%m-%dT%H:%M:%SZ}": "Its trigger does not fall on", "<b>yesterday</b>": "The time &#x27;&lt;b",
        "2027-02-30T00:00:00Z": "The time", "9999-01-01T00:00:00Z": "The time must be between", "%00": "The next run",
    }.items():  # fmt: skip
        found = page.get(page_at + instant)
        assert found.status_code == 200 and told in found.content.decode(), instant


@pytest.mark.long
def test_it_stays_cheap_where_much_waits(stage: Stage, statements: list[str]) -> None:
    """A count of statements, each of which looks at few rows: the plan's own count of them is the proof."""
    job = stage.job(max_concurrency=1)
    stage.begin(stage.run(job))
    last = stage.run(job, priority=0)
    columns = (
        "tenant_id, job_id, job_version, run_key, trigger, actual_at, pool, queue, priority, timeout_s, flow,"
        " job_limit, payload_from, state, available_at, rank, attempt, failures, releases, cancel_requested, guarded,"
        " lane"
    )
    stage.conn.execute(
        f"INSERT INTO tickets_ticket (execution_id, {columns})"
        f" SELECT gen_random_uuid(), {columns} FROM tickets_ticket, generate_series(1, {MANY}) WHERE execution_id = %s",
        [stage.ticket(stage.run(job), actual_at=stage.at(-60), rank=stage.at(-600))],
    )
    stage.conn.execute("ANALYZE tickets_ticket")
    stage.conn.execute("SELECT pg_stat_force_next_flush()")
    read = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'tickets_ticket'"
    (before,) = stage.conn.execute(read).fetchone() or (0,)
    statements.clear()
    found = explained_of(stage, "execution", last)
    assert found.verdict.code == "job_concurrency" and found.position.ahead == 1_000 and not found.position.exact
    assert len(statements) <= STATEMENTS_MAX, statements
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
    (after,) = stage.conn.execute(read).fetchone() or (0,)
    assert after - before < 5_000, "rows of tickets that were read"
