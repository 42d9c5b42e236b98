"""Queues and who listens to them: groups, words of operators, tenants that move, queues that everybody has left."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable
from typing import Any

import orjson
import psycopg
import pytest
import redis
from django.core.management import call_command

from apps.audit.services import Actor
from apps.dispatch.capacity import Message
from apps.dispatch.publish import KombuPublisher, RedisPublisher
from apps.dispatch.release import ReleaseService
from apps.tickets import served, subscriptions
from apps.tickets.models import Subscription
from apps.tickets.subscriptions import Scope, subscription_reset, subscription_tell
from kernel.errors import Conflict, InvalidInput, NotFound
from kernel.listening import Told, read_rules
from kernel.pools import SYSTEM_QUEUE
from tenants.models import Plan, Tenant
from tenants.provisioning import queue_for
from tenants.registry import Registry, tenancy_of
from tests.commands import run_command
from tests.fixtures_flow import (
    NOW,
    Noted,
    assert_exactly_one_outcome,
    live_worker,
    make_ticket,
    queue_of,
    release,
    settle_as,
    start,
    ticket_of,
)
from workers import subscription
from workers.subscription import wanted_queues

Conn = psycopg.Connection[Any]
Make = Callable[..., ReleaseService]
ACTOR = Actor(name="test", role="admin")
SHARED, VIP = Scope(), Scope("vip")


# --- what waits where nobody listens ---


@pytest.mark.parametrize("gone", ["ended", "draining", "left"])
def test_what_is_queued_where_nobody_listens_goes_back_at_once(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant, settings: Any, gone: str
) -> None:
    settings.QUEUED_BOUND_S = 3_600
    queue, service = queue_of(registry, acme), releaser()
    worker = live_worker(conn, queues=[queue])
    execution = make_ticket(acme)
    [old] = release(service)
    before = ticket_of(conn, execution)
    assert (before["state"], before["queue"]) == ("queued", queue)
    how: dict[str, dict[str, Any]] = {"ended": {"ttl_s": -1}, "draining": {"draining": True}, "left": {}}
    live_worker(conn, worker=worker, queues=["python.shared.0"] if gone == "left" else [queue], **how[gone])
    assert release(service) == []
    after = ticket_of(conn, execution)
    assert (after["state"], after["rank"], after["available_at"]) == ("ready", before["rank"], before["available_at"])
    assert after["releases"] == 0, "nobody's fault: no back-off"
    back = live_worker(conn, queues=[queue])
    [new] = release(service)
    assert start(conn, [old], back) == [], "the old message means nothing any more"
    started = start(conn, [new], back)
    settle_as(conn, registry, started)
    assert_exactly_one_outcome(conn, acme, started[0].run_key)


def test_what_a_live_worker_listens_to_stays_queued(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant, globex: Tenant
) -> None:
    service = releaser()
    live_worker(conn, queues=[queue_of(registry, acme)])
    other = live_worker(conn, queues=[queue_of(registry, globex)])
    mine, theirs = make_ticket(acme), make_ticket(globex)
    assert len(release(service)) == 2
    live_worker(conn, worker=other, queues=[])
    release(service)
    assert [ticket_of(conn, one)["state"] for one in (mine, theirs)] == ["queued", "ready"]


def test_a_queue_that_was_left_is_taken_from_the_broker_when_nothing_is_queued_on_it(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant
) -> None:
    queue, service = queue_of(registry, acme), releaser()
    assert isinstance(service._publisher, Noted)
    worker = live_worker(conn, queues=[queue, "python.shared.1", "http.own.acme", SYSTEM_QUEUE])
    release(service)
    known = [row[0] for row in conn.execute("SELECT name FROM tickets_brokerqueue ORDER BY name")]
    assert known == [queue, "python.shared.1"], "of its pool, and what is its own only"
    live_worker(conn, worker=worker, queues=[queue])
    clean(service)
    assert service._publisher.dropped == ["python.shared.1"]
    make_ticket(acme)
    release(service)
    live_worker(conn, worker=worker, ttl_s=-1, queues=[queue])
    conn.execute("UPDATE tickets_ticket SET pool = 'elsewhere'")  # not put back
    clean(service)
    assert service._publisher.dropped == ["python.shared.1"], "something is queued on the other"
    conn.execute("UPDATE tickets_ticket SET pool = 'python'")
    clean(service)
    assert service._publisher.dropped == ["python.shared.1", queue]
    assert conn.execute("SELECT count(*) FROM tickets_brokerqueue").fetchall() == [(0,)]


def test_a_broker_that_can_not_be_cleaned_stops_nothing(
    releaser: Make, conn: Conn, registry: Registry, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, service = queue_of(registry, acme), releaser()
    worker = live_worker(conn, queues=[queue, "python.shared.1"])
    release(service)
    live_worker(conn, worker=worker, queues=[queue])

    def fails(queues: Any) -> None:
        raise ConnectionError("the broker is away")

    monkeypatch.setattr(service._publisher, "drop", fails)
    with pytest.raises(ConnectionError):
        clean(service)
    make_ticket(acme)
    assert len(release(service)) == 1, "the next pass does not try it again"


def test_queues_are_dropped_with_what_is_in_them(settings: Any) -> None:
    name = f"python.test.{uuid.uuid4().hex}"
    sender = RedisPublisher(settings.BROKER_URL)
    sender.publish([Message(name, 1, [uuid.uuid4()])])
    with redis.Redis.from_url(settings.BROKER_URL) as client:
        assert client.exists(name)
        sender.drop([name, f"{name}.never"])
        assert not client.exists(name)
    sender.close()
    other = KombuPublisher(settings.BROKER_URL)
    other.drop([f"{name}.never"])
    other.close()


# --- a tenant that moves ---


def test_a_tenant_moves_between_queues_and_groups_and_each_run_runs_once(
    releaser: Make, conn: Conn, registry: Registry, new_tenant: Callable[..., Tenant]
) -> None:
    """Own queue, shared queue, a group's queue, an own queue in the group, and back: with work at each stage."""
    tenant, service = new_tenant(own_queue=True), releaser()
    shared = f"python.shared.{tenant.pk % 8}"
    homes: list[tuple[dict[str, Any], str]] = [
        ({}, f"python.own.{tenant.slug}"),
        ({"own_queue": False}, shared),
        ({"worker_group": "vip"}, "python.group.vip"),
        ({"own_queue": True}, f"python.own.{tenant.slug}@vip"),
        ({"worker_group": ""}, f"python.own.{tenant.slug}"),
    ]
    worker, keys, old = None, list[str](), list[Message]()
    for plan, queue in homes:
        if plan:
            Plan.objects.filter(pk=tenant.plan_id).update(**plan)
        registry.refresh(force=True)
        service._registry.refresh(force=True)
        assert queue_of(registry, tenant) == queue
        made = [make_ticket(tenant) for _ in range(2)]
        worker = live_worker(conn, worker=worker, slots=2, group=registry.by_id[tenant.pk].group, queues=[queue])
        messages = release(service)  # what was queued where it was before has gone back in the same pass
        assert {message.queue for message in messages} == {queue}
        assert {one for message in messages for one in message.ids} >= set(made)
        assert start(conn, old, worker) == []
        started = start(conn, messages, worker, limit=1)  # the others stay queued while the tenant moves on
        settle_as(conn, registry, started)
        keys += [one.run_key for one in started]
        old = messages
    for _ in range(20):
        if not (started := start(conn, release(service) or old, worker)):  # type: ignore[arg-type]  # it was made above
            break
        settle_as(conn, registry, started)
        keys += [one.run_key for one in started]
    assert len(keys) == len(set(keys)) == 2 * len(homes)
    for key in keys:
        assert_exactly_one_outcome(conn, tenant, key)


def test_own_queues_are_for_so_many_tenants_of_a_group(
    registry: Registry, new_tenant: Callable[..., Tenant], settings: Any
) -> None:
    """All processes must find the same ones: those that were there first."""
    first, second = new_tenant(worker_group="vip"), new_tenant(worker_group="vip")
    settings.OWN_QUEUES_MAX = 1
    registry.refresh(force=True)
    assert queue_of(registry, first) == f"python.own.{first.slug}@vip"
    assert queue_of(registry, second) == "python.group.vip"
    for one in (first, second):
        read = Tenant.objects.select_related("plan").get(pk=one.pk)
        assert queue_for(read, "python") == tenancy_of(read).queue("python") == queue_of(registry, one)
    assert registry.beyond["vip"] == 1 and not registry.by_id[second.pk].own_queue
    Tenant.objects.filter(pk=first.pk).update(status="suspended")
    registry.refresh(force=True)
    assert queue_of(registry, second) == f"python.own.{second.slug}@vip"
    assert queue_for(Tenant.objects.select_related("plan").get(pk=second.pk), "python") == queue_of(registry, second)
    settings.OWN_QUEUES_MAX = 0
    registry.refresh(force=True)
    assert not registry.beyond


# --- what a worker listens to ---


def test_a_worker_of_a_group_listens_to_what_is_of_its_group(
    registry: Registry, acme: Tenant, new_tenant: Callable[..., Tenant], settings: Any
) -> None:
    settings.WORKER_POOLS, settings.SHARED_QUEUES, settings.WORKER_GROUP = ["python"], 1, "vip"
    settings.WORKER_TENANTS = settings.WORKER_QUEUES = read_rules([])
    tenant = new_tenant(worker_group="vip")
    registry.refresh(force=True)
    assert wanted_queues(registry) == [SYSTEM_QUEUE, "python.group.vip", f"python.own.{tenant.slug}@vip"]
    settings.WORKER_QUEUES = read_rules([f"!{SYSTEM_QUEUE}"])
    told = [Told("python.own.*", False)]
    assert wanted_queues(registry, told) == ["python.group.vip"]
    settings.WORKER_GROUP = ""
    settings.WORKER_TENANTS = read_rules(["acme"])
    assert wanted_queues(registry) == ["python.own.acme"]


def test_too_many_queues_are_said_once(
    database: None, acme: Tenant, globex: Tenant, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(subscription.log, "warning", lambda text, *values: said.append(text % values))
    settings.WORKER_POOLS, settings.OWN_QUEUES_MAX = ["python"], 1
    monkeypatch.setattr(subscription, "MANY_QUEUES", 5)
    following = subscription.Subscription(None)
    following._registry.refresh(force=True)
    for queues in (6, 6, 5, 0):
        following._warn(queues)
    assert len(said) == 3
    assert "listens to 6 queues and is slow with more than 5" in said[0] and "1 tenants share queues" in said[0]
    assert "is slow" not in said[1] and "no queue" in said[2]
    settings.OWN_QUEUES_MAX = 0
    following._registry.refresh(force=True)
    following._warn(5)
    assert said[3:] == ["the queues of this worker are as they should be again"]
    following.close()


def test_what_was_told_is_kept_in_order_with_a_trail(conn: Conn) -> None:
    def tell(pattern: str, listens: bool, scope: Scope = SHARED) -> None:
        subscription_tell(scope=scope, pattern=pattern, listens=listens, actor=ACTOR, now=NOW, reason="quiet hours")

    def told(group: str = "", host: str = "box") -> list[tuple[str, bool]]:
        return [tuple(one) for one in subscriptions.told(conn, group=group, host=host)]  # type: ignore[misc]  # pairs

    tell("http.*", False)
    tell("http.own.acme", True)
    tell("http.shared.0", True, Scope("", "box"))
    tell("python.*", False, VIP)
    assert told() == [("http.*", False), ("http.own.acme", True), ("http.shared.0", True)]
    assert told(host="other") == [("http.*", False), ("http.own.acme", True)]
    assert told("vip") == [("python.*", False)]
    tell("http.*", False)
    assert told(host="other") == [("http.own.acme", True), ("http.*", False)], "said again, it is the last word"
    assert subscription_reset(scope=SHARED, actor=ACTOR, now=NOW, pattern="http.*") == 1
    assert subscription_reset(scope=SHARED, actor=ACTOR, now=NOW) == 1
    assert told() == [("http.shared.0", True)], "said to one host, it is taken back there"
    with pytest.raises(NotFound):
        subscription_reset(scope=SHARED, actor=ACTOR, now=NOW, pattern="http.*")
    rows = conn.execute(
        "SELECT action, object_id, before->>'listens', after->>'listens', reason FROM audit_auditevent"
        " WHERE object_type = 'subscription' ORDER BY id"
    ).fetchall()
    assert rows[0] == ("subscription.drop", "http.*", None, "false", "quiet hours")
    assert rows[4][:4] == ("subscription.drop", "http.*", "false", "false")
    assert [row[0] for row in rows[5:]] == ["subscription.reset"] * 2


def test_what_can_not_be_told_is_refused(database: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput):
        subscription_tell(scope=SHARED, pattern="HTTP", listens=True, actor=ACTOR, now=NOW)
    with pytest.raises(InvalidInput):
        subscription_tell(scope=SHARED, pattern="http.*", listens=True, actor=ACTOR, now=NOW, reason="x" * 301)
    monkeypatch.setattr(subscriptions, "WORDS_MAX", 1)
    subscription_tell(scope=SHARED, pattern="http.*", listens=True, actor=ACTOR, now=NOW)
    subscription_tell(scope=SHARED, pattern="http.*", listens=False, actor=ACTOR, now=NOW)
    with pytest.raises(Conflict):
        subscription_tell(scope=SHARED, pattern="python.*", listens=True, actor=ACTOR, now=NOW)


# --- the command ---


def run(*arguments: str) -> tuple[int, Any]:
    """Exit code and answer of `worker_queues`."""
    code, out, _ = run_command("worker_queues", *arguments, "--format", "json")
    return code, orjson.loads(out) if out else None


def test_the_command_shows_who_listens_to_what(conn: Conn, registry: Registry, acme: Tenant, globex: Tenant) -> None:
    queue = queue_of(registry, acme)
    worker = live_worker(conn, queues=[queue], slots=3)
    code, answer = run("list")
    assert code == 0 and answer["unserved"] == []
    [shown] = answer["workers"]
    assert (shown["id"], shown["group"], shown["slots"], shown["queues"]) == (str(worker), "", {"python": 3}, [queue])
    make_ticket(acme)
    make_ticket(globex)
    code, answer = run("list")
    assert code == 1
    assert answer["unserved"] == [{"queue": queue_of(registry, globex), "tenants": ["globex"]}]
    code, answer = run("list", "--group", "vip")
    assert (code, answer["workers"], answer["unserved"]) == (0, [], []), "of that group nothing waits"


def test_the_command_tells_workers_and_says_what_it_changes(
    conn: Conn, registry: Registry, acme: Tenant, globex: Tenant
) -> None:
    mine, theirs = queue_of(registry, acme), queue_of(registry, globex)
    live_worker(conn, queues=[mine])
    code, would = run("add", theirs, "--dry-run")
    assert (code, would["gained"], would["dry_run"]) == (0, [theirs], True)
    assert not Subscription.objects.exists()
    assert run("add", theirs)[1] == {**would, "dry_run": False}
    assert Subscription.objects.get().pattern == theirs
    _, answer = run("drop", "python.own.*", "--reason", "maintenance")
    assert answer["left"] == [mine] and set(answer["fits"]) >= {mine, theirs}
    told = run("list")[1]["told"]
    assert [(one["verb"], one["queue"], one["by"]) for one in told] == [
        ("add", theirs, "command:worker_queues"), ("drop", "python.own.*", "command:worker_queues"),
    ]  # fmt: skip
    assert run("reset", "--dry-run")[1]["words"] == 2
    assert run("reset", mine, "--dry-run")[0] == 2, "nothing was said of exactly that"
    assert run("reset")[1]["words"] == 2
    assert not Subscription.objects.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("add",), ("add", "HTTP"), ("add", "python.own.nobody"), ("add", "python.group.vip"),
        ("drop", "python.own.acme", "--group", "vip"), ("reset", "python.own.acme"),
    ],
)  # fmt: skip
def test_the_command_refuses_what_fits_nothing(conn: Conn, acme: Tenant, arguments: tuple[str, ...]) -> None:
    assert run(*arguments) == (2, None)
    assert not Subscription.objects.exists()


def test_the_command_writes_sentences(conn: Conn, registry: Registry, acme: Tenant, globex: Tenant) -> None:
    out = io.StringIO()
    live_worker(conn, queues=[queue_of(registry, acme)])
    make_ticket(globex)
    call_command("worker_queues", "drop", "python.own.acme", "--host", "test", stdout=out)
    with pytest.raises(SystemExit):
        call_command("worker_queues", "list", stdout=out)
    text = out.getvalue()
    assert "WARNING: nobody listens to these then" in text and "python.own.acme" in text
    assert "NOBODY LISTENS to python.own.globex" in text and "on test: drop python.own.acme" in text


def clean(service: ReleaseService) -> None:
    """One pass in which the broker is cleaned."""
    service._leaving._clean_at = float("-inf")
    release(service)


def test_what_is_held_is_counted_by_queue(releaser: Make, conn: Conn, registry: Registry, acme: Tenant) -> None:
    queue = queue_of(registry, acme)
    worker = live_worker(conn, queues=[queue])
    make_ticket(acme)
    make_ticket(acme)
    start(conn, release(releaser()), worker, limit=1)
    assert served.held(conn) == {queue: (1, 1)}
