"""Commands: exit codes, text and JSON, and a sentence instead of a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command

from kernel.clock import utc_now
from tenants.keys import apikey_find
from tenants.models import ApiKey, Plan, Tenant
from tests.commands import run_command
from tests.fixtures_flow import make_schedule, make_ticket, owning, remove_tenant

Conn = psycopg.Connection[Any]
ROOT = Path(__file__).resolve().parents[2]


def run(*args: str) -> tuple[int, str, str]:
    """As `run_command`, with the role that may change schemas."""
    with owning():
        return run_command(*args)


@pytest.fixture
def made(database: None) -> Iterator[list[str]]:
    """Slugs of tenants to remove."""
    slugs: list[str] = []
    yield slugs
    with owning():
        for tenant in Tenant.objects.filter(slug__in=slugs):
            remove_tenant(tenant)


def test_a_tenant_is_made_and_its_key_works(made: list[str]) -> None:
    made.append("by-command")
    code, out, err = run("tenant_create", "by-command", "--name", "By Command", "--network", "10.0.0.0/8")
    assert (code, err) == (0, "")
    answer = dict(line.split(": ", 1) for line in out.strip().splitlines())
    assert (answer["slug"], answer["schema"], answer["host"]) == ("by-command", "t_by_command", "by-command.localhost")
    found = apikey_find(answer["api_key"], now=utc_now())
    assert found is not None and (found.tenant.slug, found.role) == ("by-command", "admin")
    assert (found.tenant.name, found.tenant.network) == ("By Command", ["10.0.0.0/8"])


def test_the_same_as_json(made: list[str]) -> None:
    made.append("by-json")
    code, out, _ = run("tenant_create", "by-json", "--host", "json.test", "--format", "json")
    answer = json.loads(out)
    assert code == 0 and answer["host"] == "json.test"
    assert apikey_find(answer["api_key"], now=utc_now()) is not None


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["Bad Slug"], "/slug"),
        (["public"], "/slug"),
        (["acme"], "already"),
        (["free-one", "--host", "acme.localhost"], "already"),
        (["free-one", "--plan", "golden"], "golden"),
        (["free-one", "--network", "not a network"], "network"),
    ],
)
def test_bad_input_is_exit_2_with_a_sentence(made: list[str], args: list[str], says: str) -> None:
    made.append("free-one")
    tenants = Tenant.objects.count()
    code, out, err = run("tenant_create", *args)
    assert code == 2 and says in err and "Traceback" not in err
    assert out == ""
    assert Tenant.objects.count() == tenants


def test_an_unknown_format_or_a_missing_argument_is_bad_usage(database: None) -> None:
    with pytest.raises(CommandError):
        call_command("tenant_create", "some-one", "--format", "xml")
    with pytest.raises(CommandError):
        call_command("apikey_create")


def test_a_key_is_made_with_role_and_expiry(acme: Tenant) -> None:
    code, out, _ = run(
        "apikey_create", "--tenant", "acme", "--role", "viewer", "--expires-in-days", "2", "--format", "json"
    )
    answer = json.loads(out)
    key = ApiKey.objects.get(pk=answer["id"])
    assert (code, key.role, answer["role"]) == (0, "viewer", "viewer")
    assert key.expires_at is not None
    assert timedelta(days=1, hours=23) < key.expires_at - utc_now() <= timedelta(days=2)
    code, out, _ = run("apikey_create", "--tenant", "acme", "--name", "plain")
    found = apikey_find(out.strip(), now=utc_now())
    assert code == 0 and found is not None and (found.name, found.role, found.expires_at) == ("plain", "admin", None)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--tenant", "nobody"], "nobody"),
        (["--tenant", "acme", "--expires-in-days", "0"], "expires-in-days"),
        (["--tenant", "acme", "--expires-in-days", "-3"], "expires-in-days"),
    ],
)
def test_a_key_that_can_not_be_made_is_exit_2(acme: Tenant, args: list[str], says: str) -> None:
    code, out, err = run("apikey_create", *args)
    assert (code, out) == (2, "") and says in err
    assert not ApiKey.objects.exists()


def everything(conn: Conn) -> dict[str, Any]:
    """All schemas, and what is in each table of the shared one and of acme's."""
    tables = conn.execute(
        "SELECT format('%I.%I', nspname, relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE relkind IN ('r', 'p') AND nspname IN ('public', 't_acme') ORDER BY 1"
    ).fetchall()
    sums = (f"SELECT '{name}', count(*), sum(hashtext(t::text)) FROM {name} t" for (name,) in tables)
    found = {name: what for name, *what in conn.execute(" UNION ALL ".join(sums))}
    return {**found, "schemas": conn.execute("SELECT nspname FROM pg_namespace ORDER BY 1").fetchall()}


def test_a_rehearsal_changes_nothing_and_refuses_what_would_be_refused(conn: Conn, acme: Tenant) -> None:
    before, tenant = everything(conn), ("--tenant", "acme")
    for command, says in (
        (("tenant_create", "--tenant", "not-yet"), "host: not-yet.localhost\nnote: It could be made."),
        (("apikey_create", *tenant), "It could be made."),
        (("signing_rotate", *tenant), "It could be done."),
        (("tenant_suspend", *tenant), "it would be suspended."),
        (("tenant_resume", *tenant), "it would be active."),
        (("tenant_change", *tenant, "--worker-group", "vip"), "worker_group: - -> vip"),
        (("tenant_rename", *tenant, "--slug", "renamed"), "slug: acme -> renamed"),
        (("tenant_delete", *tenant), "acme would stop now"),
        (("worker_queues", "drop", "*"), "would be told"),
    ):
        code, out, err = run(*command, "--dry-run")
        assert (code, err, says in out) == (0, "", True), (command, out, err)
    assert everything(conn) == before
    for wrong in (
        ("tenant_create", "acme"), ("tenant_create", "public"), ("apikey_create", *tenant, "--scope", "nothing"),
        ("tenant_rename", *tenant, "--slug", "Not A Slug"), ("tenant_delete", *tenant, "--undo"),
    ):  # fmt: skip
        assert run(*wrong, "--dry-run")[0] == 2, wrong
    for usage in (["tenant_suspend"], ["tenant_suspend", "acme", "--tenant", "acme"]):
        with pytest.raises(CommandError, match="--tenant"):
            call_command(*usage)


def test_reconcile_says_what_it_found(conn: Conn, acme: Tenant, globex: Tenant) -> None:
    assert run("reconcile") == (0, "Nothing had come apart.\n", "")
    schedule, run_of_globex = make_schedule(acme), make_ticket(globex)
    conn.execute("DELETE FROM due_dueentry WHERE key = %s", [schedule])
    conn.execute("DELETE FROM tickets_ticket WHERE execution_id = %s", [run_of_globex])
    code, out, _ = run("reconcile", "--dry-run", "--format", "json")
    answer = json.loads(out)
    assert (code, answer["dry_run"], answer["lost_attempts"]) == (1, True, 0)
    assert {(one["check"], one["tenant"], one["id"]) for one in answer["findings"]} == {
        ("schedule_without_due_entry", "acme", str(schedule)),
        ("execution_without_ticket", "globex", str(run_of_globex)),
    }
    code, out, _ = run("reconcile", "--tenant", "globex")
    assert code == 1 and str(run_of_globex) in out and str(schedule) not in out
    code, out, _ = run("reconcile")
    assert code == 1 and str(schedule) in out
    assert run("reconcile") == (0, "Nothing had come apart.\n", "")
    assert run("reconcile", "--tenant", "nobody")[0] == 2


def test_reconcile_ends_lost_attempts_and_comes_to_an_end(
    conn: Conn, acme: Tenant, globex: Tenant, new_tenant: Any, as_owner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when a tenant does not answer: its attempts stay for the next time. Of a chosen tenant only its own."""
    import uuid

    from apps.dispatch.management.commands import reconcile
    from tenants.provisioning import schema_drop
    from tests.fixtures_flow import started_now

    def lost(*args: str) -> tuple[int, int]:
        code, out, _ = run("reconcile", "--format", "json", *args)
        return code, json.loads(out)["lost_attempts"]

    broken = new_tenant()
    for tenant in (acme, globex, globex, broken):
        started_now(conn, [make_ticket(tenant)], uuid.uuid4())
    monkeypatch.setattr(reconcile, "LOOK_CHUNK", 2)
    assert [lost("--dry-run"), lost("--dry-run", "--tenant", "globex")] == [(1, 4), (1, 2)]
    assert [lost("--tenant", "globex"), lost("--tenant", "globex"), lost("--dry-run")] == [(1, 2), (0, 0), (1, 2)]
    with as_owner():
        schema_drop(broken.schema_name)
    assert [lost("--dry-run"), lost()] == [(1, 2), (1, 1)]
    assert lost()[1] == 0


def test_a_real_process_exits_so_too(process_env: dict[str, str]) -> None:
    command = [sys.executable, "manage.py", "tenant_create", "Bad Slug"]
    done = subprocess.run(command, cwd=ROOT, env=process_env, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "/slug" in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == ""


def test_the_standard_plan_is_made_when_it_is_missing(made: list[str]) -> None:
    made.append("first-of-all")
    Plan.objects.filter(name="standard").update(name="was standard")
    try:
        assert run("tenant_create", "first-of-all")[0] == 0
        assert Plan.objects.filter(name="standard").exists()
    finally:
        with owning():
            for tenant in Tenant.objects.filter(slug="first-of-all"):
                remove_tenant(tenant)
            Plan.objects.filter(name="standard").delete()
        Plan.objects.filter(name="was standard").update(name="standard")
