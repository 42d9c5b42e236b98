"""The worker hands a job the secrets that it names, and no job without one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast
from uuid import UUID

import psycopg
import pytest

from apps.secrets.signing import signing_rotate
from apps.tickets import releasing
from kernel.clock import utc_now
from tenants.models import Tenant
from tests.conftest import wait_until
from tests.fixtures_flow import NOW, actor, at_once, attempts_of, execution_of, make_job, make_ticket
from tests.flow.hands import Hands
from tests.secrets.hands import change, execute, kek, make_secret
from workers.executors.base import Executor
from workers.runtime import Runtime

Conn = psycopg.Connection[Any]
Take = Callable[..., UUID]
TARGET = {"url": "https://hooks.example.com/", "headers": {"X-Key": {"secret": "KEY"}}}


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def runtime(database: None, hands: Hands) -> Iterator[Runtime]:
    started = Runtime({"http": cast(Executor, hands)}, queues=lambda: ["http.own.acme"])
    started.start()
    yield started
    started.stop(0.1)
    started._line.close()


@pytest.fixture
def take(runtime: Runtime, conn: Conn, acme: Tenant) -> Take:
    """`take(job)` starts one run of a job of acme; its id."""

    def make(job: UUID) -> UUID:
        execution = make_ticket(acme, job)
        number = releasing.next_release(conn)
        releasing.release(conn, [execution], release=number, now=NOW)
        at_once(partial(_take, runtime, execution, number))
        return execution

    return make


def _take(runtime: Runtime, execution: UUID, number: int) -> None:
    try:
        runtime.take("http", [execution], number)
    finally:
        runtime._line.close()


def ended(conn: Conn, tenant: Tenant, execution: UUID) -> dict[str, Any]:
    wait_until(lambda: execution_of(conn, tenant, execution)["finished_at"], "the run to end")
    return execution_of(conn, tenant, execution)


def test_a_job_gets_the_secrets_that_it_names(hands: Hands, take: Take, acme: Tenant) -> None:
    secret = make_secret(acme, "KEY", "S3CR3T-7f1")
    make_secret(acme, "OTHER", "not yours")
    job = make_job(acme, kind="http", target=TARGET)
    take(job)
    (work,) = hands.works
    assert dict(work.secrets) == {"KEY": "S3CR3T-7f1"}
    assert work.target == TARGET, "the definition is shared and stays as it is"
    assert "S3CR3T" not in repr(work)
    change(acme, secret, "n3w")
    take(job)
    assert hands.works[-1].secrets == {"KEY": "n3w"}


def test_a_missing_secret_ends_the_run_by_name(hands: Hands, take: Take, acme: Tenant, conn: Conn) -> None:
    make_secret(acme, "KEY", "S3CR3T-7f1")
    job = make_job(acme, kind="http", target=TARGET, retry={"max_attempts": 5})
    execute(conn, acme, "DELETE FROM {}.secrets_secret")
    execution = ended(conn, acme, take(job))
    assert execution["state"] == "dead" and execution["attempt_count"] == 1
    assert execution["error"] == {"class": "secret_missing", "message": "The secret KEY does not exist."}
    assert not hands.works


def test_a_secret_that_was_tampered_with_is_not_used(hands: Hands, take: Take, acme: Tenant, conn: Conn) -> None:
    make_secret(acme, "KEY", "S3CR3T-7f1")
    job = make_job(acme, kind="http", target=TARGET)
    execute(
        conn, acme, "UPDATE {}.secrets_secret SET ciphertext = set_byte(ciphertext, 0, get_byte(ciphertext, 0) # 1)"
    )
    execution = ended(conn, acme, take(job))
    assert (execution["state"], execution["error"]["class"]) == ("dead", "secret_unreadable")
    assert not hands.works


def test_without_the_operators_key_runs_wait(
    hands: Hands, take: Take, acme: Tenant, conn: Conn, settings: Any
) -> None:  # fmt: skip
    """The tenant can't help it: no attempt of the job's policy is used up."""
    make_secret(acme, "KEY", "S3CR3T-7f1")
    job = make_job(acme, kind="http", target=TARGET)
    settings.SECRETS_KEYS = kek("another")
    execution = take(job)
    (attempt,) = wait_until(lambda: attempts_of(conn, acme, execution), "the attempt to come back")
    assert (attempt["state"], attempt["error"]["class"]) == ("returned", "secrets_key_unknown")
    assert not hands.works


def test_calls_are_signed_with_all_signing_secrets(hands: Hands, take: Take, acme: Tenant) -> None:
    job = make_job(acme, kind="http", target={"url": "https://hooks.example.com/"})
    take(job)
    assert not hands.works[-1].signing_secrets
    rotated = [signing_rotate(tenant=acme, actor=actor(acme), now=utc_now()).text for _ in range(2)]
    take(job)
    assert hands.works[-1].signing_secrets == (rotated[1], rotated[0])
