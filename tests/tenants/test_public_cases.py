"""Public reports about tenants that saw each other, each as a test of its kind; others stand elsewhere."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any, cast
from uuid import UUID, uuid4

import psycopg
import pytest
from celery import chain, chord, group
from celery.canvas import Signature
from django.apps import apps
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.contrib.sessions.backends.db import SessionStore
from django.db.models import FileField
from django.http import HttpRequest
from django.test import Client, RequestFactory

from kernel.runtokens import RunToken, write_token
from tenants import door
from tenants.models import Member, Tenant
from tenants.permissions import may
from tenants.sessions import actor_of_member, member_of, session_begin
from tests.api.makers import Makers
from tests.conftest import wait_until
from tests.fixtures_api import Api
from tests.fixtures_flow import count, execution_of, make_job, make_ticket
from tests.fixtures_people import People
from tests.flow.hands import Hands
from tests.flow.running import release_now
from tests.schedules.cases import case
from workers import state
from workers.app import app
from workers.executors.base import Executor
from workers.runtime import Runtime
from workers.tasks import batch

Conn = psycopg.Connection[Any]


# --- D02: every way that Celery has to bring a message ---


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def worker(database: None, hands: Hands, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    """This process is a worker that runs Celery's messages as they are sent."""
    runtime = Runtime({"python": cast(Executor, hands)}, queues=lambda: ["python.own.acme", "python.own.globex"])
    runtime.start()
    monkeypatch.setattr(state, "runtime", lambda: runtime)
    app.conf.task_always_eager = True
    yield runtime
    app.conf.task_always_eager = False
    runtime.stop(0.1)
    runtime._line.close()


NOW = {"countdown": 0}  # Celery's own delay, which nothing here relies on


@app.task(name="tests.fails")
def fails() -> None:
    raise ValueError("so that an error callback is called")


@app.task(name="tests.nothing")
def nothing() -> None:
    return None


@app.task(name="tests.retries", bind=True, max_retries=1)
def retries(self: Any, arguments: list[Any]) -> None:
    if not self.request.retries:
        raise self.retry(**NOW)
    batch.apply(arguments)


def sent(path: str, arguments: list[Any]) -> None:
    """The batch task's message by one of Celery's ways."""
    quiet: Signature[Any] = nothing.si()
    the_batch = batch.si(*arguments)
    ways: dict[str, Callable[[], object]] = {
        "delay": lambda: batch.delay(*arguments),
        "apply_async(countdown)": lambda: batch.apply_async(arguments, **NOW),
        "retry": lambda: retries.delay(arguments),
        "chain": lambda: chain(quiet, the_batch).apply_async(),
        "group": lambda: group([quiet, the_batch]).apply_async(),
        "chord body": lambda: chord([quiet, nothing.si()])(the_batch),
        "error callback": lambda: fails.apply_async(link_error=the_batch),
        "redelivery after worker loss": lambda: [batch.delay(*arguments), batch.delay(*arguments)],
    }
    ways[path]()


@pytest.mark.parametrize("path", case("tenancy.jsonl", "D02")["input"]["paths"])
def test_whatever_brings_the_message_the_run_is_its_tenants_d02(
    path: str, worker: Runtime, hands: Hands, conn: Conn, acme: Tenant, globex: Tenant
) -> None:
    """The message holds ids only; whose run it is, is read where it is claimed. Nothing can be lost on the way."""
    mine, theirs = make_ticket(acme, make_job(acme)), make_ticket(globex, make_job(globex))
    number = release_now(conn, [mine, theirs])
    sent(path, ["python.own.acme", number, [mine.hex, theirs.hex]])
    wait_until(lambda: len(hands.held()) == 2)
    seen = {work.execution_id: (work.tenant_slug, work.tenant_schema) for work, _ in hands._held.values()}
    assert seen == {mine: ("acme", "t_acme"), theirs: ("globex", "t_globex")}


def test_a_message_of_nobodys_run_starts_nothing_d02(worker: Runtime, hands: Hands, conn: Conn, acme: Tenant) -> None:
    mine = make_ticket(acme, make_job(acme))
    number = release_now(conn, [mine])
    batch.delay("python.own.acme", number, [uuid4().hex])
    batch.delay("python.own.acme", number + 1, [mine.hex])
    assert hands.held() == set()
    assert execution_of(conn, acme, mine)["started_at"] is None


# --- D10: what somebody may do in one tenant says nothing about another ---


def test_one_person_has_a_role_of_its_own_in_each_tenant_d10(acme: Tenant, globex: Tenant) -> None:
    """The same user object, one after the other and back; being an operator of the platform opens nothing, too."""
    user = User.objects.create_user("ada", is_staff=True, is_superuser=True)
    roles = {acme: "admin", globex: "viewer"}
    for tenant, role in roles.items():
        Member.objects.create(tenant=tenant, user=user, role=role)
    requests = {tenant: asked_by(user, tenant) for tenant in roles}
    for tenant in (acme, globex, acme):
        member = member_of(requests[tenant], tenant)
        assert member is not None
        actor = actor_of_member(member, requests[tenant])
        assert (actor.role, actor.tenant_id) == (roles[tenant], tenant.pk)
        assert may(actor, "apikey.create") == (tenant == acme)
    assert member_of(asked_by(user, acme), globex) is None
    assert member_of(asked_by(user, acme), None) is None


def asked_by(user: User, tenant: Tenant) -> HttpRequest:
    """A request in a session that the user began on this tenant's host."""
    request = RequestFactory().get("/")
    request.session = SessionStore()
    session_begin(request, Member.objects.get(tenant=tenant, user=user))
    request.user = user
    return request


# --- D11: nothing names a thing by a number that differs between schemas ---


def test_ids_of_content_types_are_the_same_everywhere_d11(conn: Conn, acme: Tenant, globex: Tenant) -> None:
    """There is one table of content types, and the trail names types by words and objects by ids of their own."""
    ids = []
    for tenant in (acme, globex, acme):
        with door.inside(tenant):
            ids.append(ContentType.objects.get(app_label="schedules", model="job").pk)
    assert len(set(ids)) == 1
    tables = "SELECT count(*) FROM pg_tables WHERE tablename = 'django_content_type'"
    assert count(conn, tables) == 1
    jobs = {tenant.pk: make_job(tenant) for tenant in (acme, globex)}
    rows = conn.execute("SELECT tenant_id, object_type, object_id FROM audit_auditevent WHERE action = 'job.create'")
    assert {(row[0], row[1], UUID(row[2])) for row in rows} == {(pk, "job", job) for pk, job in jobs.items()}


# --- D18: nothing is kept in files that a first tenant could choose the place of ---


def test_no_model_keeps_files_d18(database: None) -> None:
    """What tenants bring is in their schemas. A field of files needs a place a tenant, and this test to say so."""
    fields = [field for model in apps.get_models() for field in model._meta.get_fields()]
    assert not [field for field in fields if isinstance(field, FileField)]


# --- D21: whoever names no tenant is nobody ---


@pytest.fixture
def secrets_of_both(acme_people: People, globex_people: People) -> None:
    for people in (acme_people, globex_people):
        Makers(Api(people.admin)).job(name=f"only {people.tenant.slug}")


@pytest.mark.parametrize("tenant_id", [0, 2**32 - 1])
@pytest.mark.parametrize("host", ["testserver", "acme.localhost"])
def test_a_valid_signature_without_a_tenant_is_nobodys_d21(
    secrets_of_both: None, settings: Any, tenant_id: int, host: str
) -> None:
    token = write_token("completion", RunToken(tenant_id, uuid4(), 1, 1), key=settings.SECRET_KEY)
    for path in ("jobs", "executions", "schedules", "api-keys"):
        refused = Api(token, host=host).get(path)
        assert refused.status in (401, 403) and "only" not in json.dumps(refused.body)


@pytest.mark.parametrize(
    "key", [None, "", "sb_", base64.b64encode(b'{"alg":"none"}').decode() + ".e30.", "sbc_", "sbl_"]
)
def test_no_tenant_is_not_every_tenant_d21(secrets_of_both: None, key: str | None) -> None:
    for host in ("testserver", "acme.localhost"):
        refused = Api(key, host=host).get("jobs")
        assert refused.status == 401 and "items" not in refused.body


# --- D24: the host that one is on decides ---


def test_what_is_made_on_a_tenants_host_is_that_tenants_d24(
    acme_people: People, globex_people: People, conn: Conn
) -> None:
    acme, globex = Api(acme_people.editor, host="acme.localhost"), Api(globex_people.editor, host="globex.localhost")
    made = Makers(acme).schedule(name="new here")
    assert [row["name"] for row in acme.get("schedules").body["items"]] == ["new here"]
    assert globex.get("schedules").body["items"] == []
    assert conn.execute("SELECT tenant_id FROM due_dueentry WHERE key = %s", [made["id"]]).fetchall() == [
        (acme_people.tenant.pk,)
    ]
    assert Api(acme_people.editor, host="globex.localhost").post("schedules", {"name": "there"}).status == 403


def test_the_operators_pages_of_a_schedule_are_for_staff_d24(acme_people: People) -> None:
    made = Makers(Api(acme_people.editor)).schedule(name="not for everybody")
    path = f"/t/acme/admin/schedules/schedule/{made['id']}/change/"
    plain, staff = User.objects.create_user("plain"), User.objects.create_superuser("staff")
    for user, shown in ((None, False), (plain, False), (staff, True)):
        browser = Client(HTTP_HOST="localhost")
        if user is not None:
            browser.force_login(user)
        answer = browser.get(path)
        assert (answer.status_code == 200 and b"not for everybody" in answer.content) == shown
    assert Client(HTTP_HOST="acme.localhost").get(path).status_code == 404
