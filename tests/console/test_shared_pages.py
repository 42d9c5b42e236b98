"""The admin of the public host: lists over all tenants, and what operators may do to them.

It has 500 lines since it goes over one site's tables with one reading of the trail, which every test begins anew.
"""

from __future__ import annotations

import re
import uuid
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from kernel.clock import utc_now
from tests.console.conftest import HOSTILE, WHO, do_many, hidden_of, logged_in, save, tick
from tests.fixtures_flow import LEASES, SERVED_LEASES

Conn = psycopg.Connection[Any]
LISTS = (
    "tenants/tenant", "tenants/plan", "tenants/domain", "tenants/member", "tenants/apikey", "audit/auditevent",
    "due/dueentry", "due/shardlease", "due/dispatcher", "due/beatslot", "tickets/ticket", "tickets/worker",
    "tickets/breaker", "tickets/subscription", "django_celery_beat/periodictask",
    "django_celery_beat/crontabschedule",
    "django_celery_beat/intervalschedule", "django_celery_beat/clockedschedule", "auth/user", "auth/group",
)  # fmt: skip
READ_ONLY = (
    "audit/auditevent", "due/dueentry", "due/shardlease", "due/dispatcher", "due/beatslot", "tickets/ticket",
    "tickets/worker", "tickets/breaker",
)  # fmt: skip


@pytest.mark.parametrize("table", LISTS)
def test_each_table_is_listed(page: Any, acme: Any, conn: Conn, table: str) -> None:
    rows_of_everything(conn, acme)
    response = page.get(f"/admin/{table}/")
    assert response.status_code == 200
    assert b"<script>alert" not in response.content
    assert b"delete_selected" not in response.content


@pytest.mark.parametrize("table", READ_ONLY)
def test_live_tables_are_only_read(page: Any, acme: Any, conn: Conn, table: str) -> None:
    rows_of_everything(conn, acme)
    listed = page.get(f"/admin/{table}/").content.decode()
    path = next(iter(re.findall(rf'href="(/admin/{table}/[^"/]+/change/)[^"]*"', listed)))
    assert page.get(path).status_code == 200
    assert page.post(path, {"state": "x"}).status_code == 403
    assert page.post(path.replace("change", "delete"), {"post": "yes"}).status_code == 403
    assert page.get(f"/admin/{table}/add/").status_code == 403


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("due/dueentry/?due=now", 1), ("due/dueentry/?parked=yes", 1), ("due/dueentry/?q=acme", 2),
        ("due/dueentry/?q=globex", 0), ("due/shardlease/?held=no", LEASES), ("due/shardlease/?held=yes", 0),
        ("due/shardlease/?kind=reconcile", 1), ("due/dispatcher/?live=yes", 0), ("due/dispatcher/?live=no", 1),
        ("tickets/breaker/?state=open", 1), ("tickets/breaker/?q=globex", 0),
        ("tickets/worker/?live=yes", 1), ("tickets/ticket/?state=ready", 1), ("tickets/ticket/?state=running", 0),
        ("tickets/ticket/?q=acme", 1), ("tickets/ticket/?q=nobody", 0), ("due/beatslot/?state=given-up", 1),
        ("due/beatslot/?state=waiting", 1), ("due/beatslot/?q=a+name+with+blanks", 1), ("due/beatslot/?q=a+name", 0),
    ],
)  # fmt: skip
def test_filters_over_all_tenants(page: Any, acme: Any, globex: Any, conn: Conn, query: str, count: int) -> None:
    rows_of_everything(conn, acme)
    response = page.get(f"/admin/{query}")
    assert response.status_code == 200
    assert response.context["cl"].result_count == count


@pytest.mark.parametrize("query", ["q=acme", "q=acme+test.made", "q=test.made+admin", "allowed=True", "allowed=False"])
def test_the_trail_is_searched(page: Any, acme: Any, conn: Conn, query: str) -> None:
    rows_of_everything(conn, acme)
    found = page.get(f"/admin/audit/auditevent/?{query}").context["cl"].result_count
    assert (found > 0) == (query in ("q=acme", "q=acme+test.made", "allowed=True"))


def test_the_first_page_says_how_it_is(page: Any, acme: Any, conn: Conn) -> None:
    rows_of_everything(conn, acme)
    text = page.get("/admin/").content.decode()
    for name, value in (
        ("Dispatchers alive", "0"), ("Leases without live holder", str(SERVED_LEASES)), ("Due entries put aside", "1"),
        ("Tickets ready", "1"), ("Tickets queued", "0"), ("Periodic slots given up", "1"),
    ):  # fmt: skip
        row = re.search(rf'<th scope="row"><a href="([^"]+)">{name}</a></th><td class="num">(.*?)</td>', text)
        assert row is not None, name
        assert row[2] == value, name
        assert page.get(row[1]).status_code == 200
    assert "Nothing is dispatched: no dispatcher is alive." in text


def test_an_entry_that_was_put_aside_is_served_again(page: Any, acme: Any, conn: Conn) -> None:
    rows_of_everything(conn, acme)
    key = conn.execute("SELECT key FROM due_dueentry WHERE parked <> ''").fetchall()[0][0]
    other = conn.execute("SELECT key FROM due_dueentry WHERE parked = ''").fetchall()[0][0]
    table = "/admin/due/dueentry/"
    looked = page.post(table, {"action": "dueentry.unpark", "_selected_action": [str(key), str(other)]})
    text = looked.content.decode()
    assert "Serve again: 1 of 2" in text and "nothing: <bdi>It is served.</bdi>" in text and "<script>alert" not in text
    assert "required" in page.post(do_many(looked), {**hidden_of(looked), "reason": ""}).content.decode()
    receipt = page.post(do_many(looked), {**hidden_of(looked), "reason": "mended"}).content.decode()
    assert "Done to 1 of 1 rows" in receipt and "served again" in receipt
    again = page.post(do_many(looked), {**hidden_of(looked), "reason": "once more"})
    assert again.status_code == 409 and "Put aside because: <del>" in again.content.decode(), "it says what differs"
    assert "Look again at 1 row" in again.content.decode()
    assert page.get(do_many(looked)).status_code == 404, "no row is named"
    assert page.get(f"{do_many(looked)}?row={other}").status_code == 200, "such a page can be sent to somebody"
    assert conn.execute("SELECT count(*) FROM due_dueentry WHERE parked <> ''").fetchall() == [(0,)]
    event, refused = events(conn, "dueentry.unpark")
    assert event[:3] == ("admin:ada", str(key), acme.pk) and refused[1] == str(key)
    rows = conn.execute("SELECT reason, allowed FROM audit_auditevent WHERE object_id = %s ORDER BY id", [str(key)])
    assert rows.fetchall()[-2:] == [("mended", True), ("changed", False)]


def test_a_waiting_execution_is_cancelled_from_the_list_of_tickets(page: Any, acme: Any, conn: Conn) -> None:
    from tests.fixtures_flow import execution_of, make_ticket, ticket_of

    execution = make_ticket(acme, now=utc_now())
    gone = uuid.uuid4()
    looked = page.post("/admin/tickets/ticket/", {"action": "ticket.cancel", "_selected_action": [execution, gone]})
    assert "Cancel: 1 of 2" in looked.content.decode() and "tenant-band" in looked.content.decode()
    receipt = page.post(do_many(looked), {**hidden_of(looked), "reason": "it loops"}).content.decode()
    assert "It is cancelled." in receipt and "Run again: 1 row" in receipt
    assert ticket_of(conn, execution) is None
    assert execution_of(conn, acme, execution)["state"] == "cancelled"
    assert [event[0] for event in events(conn, "execution.cancel")] == ["admin:ada"]


def test_a_breaker_is_reset(page: Any, acme: Any, conn: Conn) -> None:
    rows_of_everything(conn, acme)
    ((breaker,),) = conn.execute("SELECT id FROM tickets_breaker").fetchall()
    assert "Done to 1 of 1" in tick(page, "/admin/tickets/breaker/", "breaker.reset", [breaker]).content.decode()
    assert conn.execute("SELECT state FROM tickets_breaker").fetchall() == [("closed",)]
    (event,) = events(conn, "breaker.reset")
    assert event[:3] == ("admin:ada", str(breaker), acme.pk)


def test_select_all_is_refused(page: Any, acme: Any, conn: Conn) -> None:
    rows_of_everything(conn, acme)
    ticket = conn.execute("SELECT execution_id FROM tickets_ticket").fetchall()[0][0]
    data = {"action": "ticket.cancel", "_selected_action": [str(ticket)], "select_across": "1"}
    assert "all pages at once" in page.post("/admin/tickets/ticket/", data, follow=True).content.decode()
    assert conn.execute("SELECT count(*) FROM tickets_ticket").fetchall() == [(1,)]


def test_who_may_only_look_has_no_verbs(acme: Any, conn: Conn) -> None:
    from django.contrib.auth.models import Permission, User

    rows_of_everything(conn, acme)
    bob = User.objects.create_user("bob", password="not a word", is_staff=True)
    for codename in ("view_dueentry", "view_ticket", "view_apikey"):
        bob.user_permissions.add(Permission.objects.get(codename=codename))
    client = logged_in(bob)
    assert "Changed last" not in client.get("/admin/").content.decode()
    for table, action in (
        ("due/dueentry", "dueentry.unpark"), ("tickets/ticket", "ticket.cancel"), ("tenants/apikey", "apikey.revoke")
    ):  # fmt: skip
        listed = client.get(f"/admin/{table}/")
        assert listed.status_code == 200
        assert f'value="{action}"'.encode() not in listed.content
        assert b"Your role may not do this" in listed.content, "it says why"
    key = conn.execute("SELECT key FROM due_dueentry WHERE parked <> ''").fetchall()[0][0]
    client.post("/admin/due/dueentry/", {"action": "dueentry.unpark", "_selected_action": [str(key)]})
    assert conn.execute("SELECT count(*) FROM due_dueentry WHERE parked <> ''").fetchall() == [(1,)]


def test_a_key_is_shown_once_and_works_until_it_is_revoked(page: Any, acme: Any, conn: Conn) -> None:
    from tenants.keys import apikey_find
    from tenants.models import ApiKey

    data = {"tenant": acme.pk, "name": HOSTILE[:90], "role": "viewer"}
    made = page.post("/admin/tenants/apikey/add/", data)
    assert made.status_code == 200
    assert "no-store" in made.headers["Cache-Control"]
    (text,) = re.findall(r"sb_[A-Za-z0-9]{8}_[A-Za-z0-9]{40}", made.content.decode())
    key = apikey_find(text, now=utc_now())
    assert key is not None and (key.tenant_id, key.role) == (acme.pk, "viewer")
    secret = text.rsplit("_", 1)[1]
    for path in (
        "/admin/tenants/apikey/",
        f"/admin/tenants/apikey/{key.pk}/change/",
        "/admin/",
        "/admin/audit/auditevent/",
    ):
        assert secret not in page.get(path).content.decode()
    assert secret not in str(page.cookies)
    (event,) = events(conn, "apikey.create")
    assert event[:3] == ("admin:ada", str(key.pk), acme.pk)
    tick(page, "/admin/tenants/apikey/", "apikey.revoke", [key.pk])
    assert apikey_find(text, now=utc_now()) is None
    assert [one[1] for one in events(conn, "apikey.revoke")] == [str(key.pk)]
    assert ApiKey.objects.count() == 1


def test_a_change_of_a_tenant_saves_what_was_changed_and_leaves_a_trail(page: Any, acme: Any, conn: Conn) -> None:
    path = f"/admin/tenants/tenant/{acme.pk}/change/"
    data = {"name": acme.name, "network": '["10.1.0.0/16"]'}
    verbs = {"plan": "", "status": "suspended", "dispatch_paused": "on"}  # what they do is no field of the form
    looked = page.get(path)
    for name in ("tenant.pause", "tenant.suspend", "tenant.plan"):
        assert f"/admin/do/{name}/acme/" in looked.content.decode()
    assert "tenant-band" in looked.content.decode()
    assert page.post(path, {**hidden_of(looked), **data, **verbs}).status_code == 302
    acme.refresh_from_db()
    assert acme.network == ["10.1.0.0/16"] and acme.status == "active" and not acme.dispatch_paused
    (event,) = events(conn, "tenant.update")
    assert event[:3] == ("admin:ada", str(acme.pk), acme.pk)
    save(page, path, {**data, "network": '["not a network"]'})
    overtaken = page.post(path, {**hidden_of(looked), **data, "network": "[]", "worker_group": "mine"})
    text = overtaken.content.decode()
    assert overtaken.status_code == 409 and "nothing was saved" in text and 'value="mine"' in text
    assert "<del><bdi>[&#x27;127.0.0.0/8&#x27;" in text and "<ins><bdi>[&#x27;10.1.0.0/16&#x27;]" in text
    assert page.post(path, data).status_code == 409, "without what was looked at"
    acme.refresh_from_db()
    assert acme.network == ["10.1.0.0/16"] and acme.worker_group == ""
    group = {**data, "worker_group": "mine"}
    assert page.post(path, {**hidden_of(overtaken), **group}).status_code == 302, "it was seen by now"
    assert save(page, path, {**data, "worker_group": ""}).status_code == 302
    acme.network = ["127.0.0.0/8", "::1/128"]
    acme.save(update_fields=["network"])


def test_workers_are_told_what_to_listen_to_and_what_nobody_listens_to_is_said(
    page: Any, acme: Any, conn: Conn, registry: Any
) -> None:
    from tests.fixtures_flow import make_ticket

    url = "/admin/tickets/subscription/"
    data = {"pattern": "python.own.*", "listens": "no", "worker_group": "", "host": "", "reason": HOSTILE[:100]}
    for _ in range(2):  # said again, it takes the place of the first
        assert page.post(f"{url}add/", data).status_code == 302
    assert page.post(f"{url}add/", {**data, "pattern": "NO SUCH"}).status_code == 200
    ((pk, listens, by),) = conn.execute("SELECT id, listens, created_by FROM tickets_subscription").fetchall()
    assert listens is False and by
    assert len(events(conn, "subscription.drop")) == 2
    make_ticket(acme)
    text = page.get(url).content.decode()
    assert "Nobody listens to python.own.acme, and acme wait" in text and "<script>alert" not in text
    assert page.post(f"{url}{pk}/change/", data).status_code == 403
    assert page.post(f"{url}{pk}/delete/", {"post": "yes"}).status_code == 302
    assert conn.execute("SELECT count(*) FROM tickets_subscription").fetchall() == [(0,)]
    assert len(events(conn, "subscription.reset")) == 1


def test_domains_are_kept_with_a_trail(page: Any, acme: Any, conn: Conn) -> None:
    assert page.post("/admin/tenants/domain/add/", {"domain": "acme.test", "tenant": acme.pk}).status_code == 302
    made = acme.domains.get(domain="acme.test")
    assert page.post(f"/admin/tenants/domain/{made.pk}/delete/", {"post": "yes"}).status_code == 302
    assert [len(events(conn, name)) for name in ("domain.create", "domain.delete")] == [1, 1]
    assert page.get(f"/admin/tenants/domain/{made.pk}/history/").status_code == 302


def test_a_password_never_reaches_the_trail(page: Any, conn: Conn) -> None:
    data = {"username": "carol", "usable_password": "true", "password1": "an odd one 77", "password2": "an odd one 77"}
    assert page.post("/admin/auth/user/add/", data).status_code == 302
    assert "odd one" not in str(events(conn, "user.create"))


def test_an_operator_is_named_only_in_what_can_be_erased(page: Any, conn: Conn) -> None:
    from django.contrib.auth.models import User

    data = {"username": "carol", "usable_password": "true", "password1": "an odd one 77", "password2": "an odd one 77"}
    page.post("/admin/auth/user/add/", data)
    carol = User.objects.get(username="carol")
    given = {"username": "carol", "email": "carol@acme.test", "is_active": "on"}
    assert save(page, f"/admin/auth/user/{carol.pk}/change/", given | JOINED).status_code == 302
    rows = conn.execute("SELECT to_jsonb(e)::text FROM audit_auditevent e WHERE about = %s", [f"user:{carol.pk}"])
    told = [row[0] for row in rows]
    assert len(told) == 2 and "carol" not in "".join(told)
    shown = page.get(f"/admin/audit/auditevent/?q=user:{carol.pk}").content.decode()
    pk = re.findall(r"/admin/audit/auditevent/(\d+)/change/", shown)[0]
    assert "carol@acme.test" in page.get(f"/admin/audit/auditevent/{pk}/change/").content.decode()
    assert page.post(f"/admin/auth/user/{carol.pk}/delete/", {"post": "yes"}).status_code == 302
    assert "carol" not in str(events(conn, "user.delete"))


def test_the_trail_shows_its_chain_and_is_found_by_login(page: Any, acme: Any, conn: Conn) -> None:
    from tests.audit.hands import as_owner, seal_all

    page.post("/admin/tenants/domain/add/", {"domain": "acme.test", "tenant": acme.pk})
    listed = page.get("/admin/audit/auditevent/?q=ada").content.decode()
    (pk,) = set(re.findall(r"/admin/audit/auditevent/(\d+)/change/", listed))
    path = f"/admin/audit/auditevent/{pk}/change/"
    assert "admin:ada" in listed and "Not sealed yet." in page.get(path).content.decode()
    seal_all(conn)
    text = page.get(path).content.decode()
    assert "Link 1 of" in text and "fits the row" in text and "127.0.0.1" in text
    with as_owner() as owner:
        owner.execute("UPDATE audit_auditevent SET reason = 'x' WHERE id = %s", [pk])
    assert "DOES NOT FIT" in page.get(path).content.decode()
    conn.execute("DELETE FROM audit_subjectkey")
    assert "(erased)" in page.get(path).content.decode()


def test_alarms_and_rows_that_wait_are_on_the_first_page(page: Any, acme: Any, conn: Conn) -> None:
    from apps.console.snapshot import store
    from tests.audit.hands import seal_all, write

    write(conn, acme, 3)
    waiting = page.get("/admin/").content.decode()
    assert re.search(r"Audit rows not sealed yet</a></th><td class=\"num\">3<", waiting)
    store.kept.forget()
    conn.execute("DELETE FROM console_snapshot")
    seal_all(conn)
    conn.execute("UPDATE audit_sealstate SET total = 1")
    write(conn, acme)
    for _ in range(2):  # the alarm is a row itself
        seal_all(conn)
    text = page.get("/admin/").content.decode()
    assert re.search(r"Audit rows not sealed yet</a></th><td class=\"num\">0<", text)
    assert re.search(r"Alarms of the audit trail</a></th><td class=\"num\">1<", text)


def test_a_nul_in_an_address_is_left_out(page: Any, acme: Any) -> None:
    from django.test import Client

    from apps.presenting.plain_queries import without_nul

    for path in (
        "/admin/audit/auditevent/?action=%00", "/admin/audit/auditevent/?before=a%00", "/admin/operations/?tenant=%00",
        "/admin/workflow-runs/?tenant=a%00b", "/admin/find/?q=a&tenant=%00", "/t/acme/admin/executions/?trigger=%0%000",
    ):  # fmt: skip
        assert page.get(path).status_code == 200, path
    for path in ("/admin/auth/user/a%00/change/", "/admin/queues/%00/", "/t/acme/admin/dead-letters/causes/%00/"):
        assert page.get(path).status_code == 404, path
    assert Client().get("/console/login?next=%00", headers={"host": "acme.localhost"}).status_code == 200
    assert without_nul("a=%0%000&b=%2500") == "a=&b=%2500"


def test_what_is_ticked_and_is_no_id_is_left_out(page: Any, acme: Any) -> None:
    for path, action in (
        ("/admin/tickets/ticket/", "ticket.cancel"), ("/admin/tenants/tenant/", "tenant.suspend"),
        ("/admin/tenants/apikey/", "apikey.revoke"), ("/t/acme/admin/deadletters/deadletter/", "deadletter.replay"),
    ):  # fmt: skip
        for text in ("", "<script>", "9" * 5_000, "\0"):
            sent = page.post(path, {"action": action, "_selected_action": text}, follow=True)
            assert sent.status_code == 200, (path, text[:9])


def test_what_an_operator_may_not_do_is_noted(acme: Any, conn: Conn) -> None:
    from django.contrib.auth.models import User

    eve = User.objects.create_user("eve", password="not a word", is_staff=True)
    refused = logged_in(eve).post("/admin/tenants/domain/add/", {"domain": "x.test", "tenant": acme.pk})
    assert refused.status_code == 403
    rows = conn.execute("SELECT action, object_id, allowed, subject FROM audit_auditevent").fetchall()
    assert rows == [("admin.change", "/admin/tenants/domain/add/", False, f"user:{eve.pk}")]


def test_the_forms_of_periodic_tasks_offer_what_the_workers_know(page: Any, conn: Conn) -> None:
    text = page.get("/admin/django_celery_beat/periodictask/add/").content.decode()
    assert '<option value="shardbeat.retention">' in text and '<option value="shardbeat.batch">' in text


def test_an_edit_of_a_periodic_task_does_not_set_its_count_back(page: Any, conn: Conn) -> None:
    from django_celery_beat.models import PeriodicTask

    task = PeriodicTask.objects.get(name="shardbeat: prune")
    path = f"/admin/django_celery_beat/periodictask/{task.pk}/change/"
    form = page.get(path).context["adminform"].form
    data = {name: form[name].value() for name in form.fields if form[name].value() not in (None, False)}
    data |= {"description": "changed", "regtask": ""}
    conn.execute("UPDATE django_celery_beat_periodictask SET total_run_count = 7 WHERE id = %s", [task.pk])
    try:
        response = save(page, path, data)
        assert response.status_code == 302, response.context["adminform"].form.errors
        changed = PeriodicTask.objects.get(pk=task.pk)
        assert (changed.description, changed.total_run_count) == ("changed", 7)
        assert changed.date_changed > task.date_changed
        (event,) = events(conn, "periodictask.update")
        assert event[4] == {"description": "changed"}
    finally:
        PeriodicTask.objects.filter(pk=task.pk).update(total_run_count=0, description=task.description)


def test_periodic_tasks_are_switched_and_run_from_the_list(page: Any, conn: Conn) -> None:
    from django_celery_beat.models import PeriodicTask

    task = PeriodicTask.objects.get(name="shardbeat: prune")
    before = task.date_changed
    url, ticked = "/admin/django_celery_beat/periodictask/", {"_selected_action": [task.pk]}
    page.post(url, {"action": "disable_tasks", **ticked})
    task.refresh_from_db()
    assert not task.enabled
    page.post(url, {"action": "run_tasks", **ticked})
    assert conn.execute("SELECT task_id, sends FROM due_beatslot").fetchall() == [(task.pk, 0)]
    page.post(url, {"action": "enable_tasks", **ticked})
    task.refresh_from_db()
    assert task.enabled and task.date_changed > before
    names = [f"periodictask.{verb}" for verb in ("disable", "run", "enable")]
    assert [len(events(conn, name)) for name in names] == [1, 1, 1]


def events(conn: Conn, action: str) -> list[tuple[Any, ...]]:
    """(actor, object, tenant, before, after) of this test's rows in the trail."""
    return conn.execute(
        f"SELECT {WHO}, object_id, tenant_id, before, after FROM audit_auditevent"
        " WHERE action = %s AND at > clock_timestamp() - interval '20 seconds' AND id > %s ORDER BY id",
        [action, _seen.get("id", 0)],
    ).fetchall()


JOINED = {"date_joined_0": "2026-01-01", "date_joined_1": "00:00:00"}
_seen: dict[str, int] = {}


@pytest.fixture(autouse=True)
def only_this_tests_trail(conn: Conn) -> None:
    """Audit rows stay for ever, also in tests."""
    row = conn.execute("SELECT coalesce(max(id), 0) FROM audit_auditevent").fetchone()
    assert row is not None
    _seen["id"] = row[0]


def rows_of_everything(conn: Conn, tenant: Any) -> None:
    """One row at least in each shared table."""
    from django_celery_beat.models import ClockedSchedule, IntervalSchedule

    from apps.audit.services import Actor, record
    from apps.tickets import breakers
    from tests.fixtures_flow import live_worker, make_schedule, make_ticket

    now = utc_now()
    make_ticket(tenant, now=now)
    make_schedule(tenant, now=now - timedelta(hours=2))
    parked = make_schedule(tenant, now=now)
    conn.execute("UPDATE due_dueentry SET parked = %s WHERE key = %s", [HOSTILE, parked])
    live_worker(conn, queues=[HOSTILE[:70]])
    breakers.open_(
        conn, tenant_id=tenant.pk, destination=HOSTILE, failures=1, reason=HOSTILE, open_s=60, max_s=60
    )  # fmt: skip
    conn.execute(
        "INSERT INTO due_dispatcher"
        " (id, host, pid, version, started_at, expires_at, backends, draining, skew_ms, stats)"
        " VALUES (%s, %s, 1, '', clock_timestamp(), clock_timestamp() - interval '1 minute', '{}', false, 0, '{}')",
        [uuid.uuid4(), HOSTILE],
    )
    conn.execute(
        "INSERT INTO due_beatslot (task_id, slot_at, name, sends)"
        " VALUES (1, %s, %s, 0), (2, %s, 'a name with blanks', 11)",
        [now, HOSTILE, now],
    )
    IntervalSchedule.objects.get_or_create(every=7, period="days")
    ClockedSchedule.objects.get_or_create(clocked_time=now)
    record(
        actor=Actor(name=HOSTILE, role="admin"), action="test.made", object_type="test", object_id=HOSTILE[:60],
        now=now, tenant_id=tenant.pk, before={"a": HOSTILE}, after={"a": None}, reason=HOSTILE,
    )  # fmt: skip


def test_a_tenant_is_marked_for_deletion_and_kept(page: Any, acme: Any, conn: Conn) -> None:
    """Case D12: the admin deletes nothing itself."""
    path = f"/admin/tenants/tenant/{acme.pk}/delete/"
    assert b"t_acme" in page.get(path).content
    given = {"verb": "delete", "slug": "acme", "grace_days": "3", "reason": "contract ended"}
    for wrong in ({"slug": "globex"}, {"reason": ""}, {"grace_days": "0"}, {"verb": "undo"}):
        assert page.post(path, {**given, **wrong}).status_code == 200
    acme.refresh_from_db()
    assert acme.status == "active"
    assert page.post(path, given).status_code == 302
    acme.refresh_from_db()
    assert acme.status == "deleting" and acme.delete_after is not None
    assert b"can be kept" in " ".join(page.get(path).content.decode().split()).encode()
    change = f"/admin/tenants/tenant/{acme.pk}/change/"
    assert page.get(change).status_code == 200
    save(page, change, {"name": "x", "status": "active", "network": "[]"})
    acme.refresh_from_db()
    assert acme.status == "deleting", "the form can't take the mark away"
    assert page.post(path, given).status_code == 200, "the page is of before"
    assert page.post(path, {"verb": "undo", "reason": "a mistake"}).status_code == 302
    acme.refresh_from_db()
    assert acme.status == "suspended"
    assert [row[0] for row in events(conn, "tenant.delete")] == ["admin:ada"]
    assert len(events(conn, "tenant.undelete")) == 1
    acme.name, acme.network = "acme", ["127.0.0.0/8", "::1/128"]
    acme.save(update_fields=["name", "network"])


def test_a_tenant_is_suspended_and_let_go_on_as_by_the_commands(page: Any, acme: Any, globex: Any, conn: Conn) -> None:
    """The status has begin and end, and rows of the trail of its own. The receipt has the way back for all of them."""
    path, spans = f"/admin/tenants/tenant/{acme.pk}/change/", "SELECT ended_at IS NULL, reason FROM tenants_suspension"
    done = tick(page, "/admin/tenants/tenant/", "tenant.suspend", [acme.pk, globex.pk], reason=HOSTILE[:90])
    receipt = done.content.decode()
    assert "Done to 2 of 2" in receipt and "Let it go on: 2 rows" in receipt
    assert conn.execute(spans).fetchall() == [(True, HOSTILE[:90])] * 2
    assert len(events(conn, "tenant.suspend")) == 2 and not events(conn, "tenant.update")
    text = page.get(path).content.decode()
    assert "since " in text and "<script>alert" not in text and "/admin/do/tenant.unsuspend/acme/" in text
    looked = page.post("/admin/do-many/tenant.unsuspend/", {"row": re.findall(r'name="row" value="([^"]+)"', receipt)})
    done = page.post(do_many(looked), {**hidden_of(looked), "reason": "they paid"})
    assert "Done to 2 of 2" in done.content.decode() and done.status_code == 200
    assert [row[0] for row in conn.execute(spans)] == [False] * 2
    assert len(events(conn, "tenant.resume")) == 2


def test_a_tenant_is_renamed(page: Any, acme: Any, globex: Any, conn: Conn) -> None:
    path = f"/admin/tenants/tenant/{acme.pk}/rename/"
    assert f'href="{path}"' in page.get(f"/admin/tenants/tenant/{acme.pk}/change/").content.decode()
    given = {"slug": "acme-2", "name": HOSTILE[:80], "keep_hosts": "on"}
    for wrong, says in (
        ({"slug": "globex"}, "another tenant"), ({"slug": "No"}, "a-z"), ({"host": "a b"}, "host name"),
    ):  # fmt: skip
        assert says in page.post(path, {**given, **wrong}).content.decode()
    assert page.post(path, given).status_code == 302
    text = page.get(path).content.decode()
    assert "acme-2.localhost" in text and "acme.localhost" in text and "<script>alert" not in text
    assert events(conn, "tenant.rename")[0][0] == "admin:ada"
    assert page.post(path, {"slug": "acme", "name": "acme"}).status_code == 302
    assert [one.domain for one in acme.domains.all()] == ["acme.localhost"], "the others were given up"


def test_all_tenants_at_once_are_not_deleted(page: Any, acme: Any, globex: Any) -> None:
    """Case D12: there is no bulk deletion."""
    page.post(
        "/admin/tenants/tenant/", {"action": "delete_selected", "_selected_action": [acme.pk, globex.pk], "post": "yes"}
    )
    acme.refresh_from_db()
    globex.refresh_from_db()
    assert (acme.status, globex.status) == ("active", "active")
