"""Limits of requests: of one key by its plan, of one address without a key. Time moves by the counters' own expiry."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tests.api.makers import Makers
from tests.fixtures_api import Answer, Api, in_parallel
from tests.fixtures_people import People

Plan = Callable[..., None]
WRONG = "sb_Aa345678_" + "x" * 40


@pytest.fixture(autouse=True)
def counted() -> Iterator[Any]:
    """The counters, empty before and after each test."""
    from apps.api.throttle import attempts_of
    from tenants.rates import rates

    def forget() -> None:
        rates().forget_all()
        attempts_of.cache_clear()

    forget()
    yield rates()
    forget()


@pytest.fixture
def server(settings: Any) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(settings.BROKER_URL) as client:
        yield client


def let_pass(server: redis.Redis, seconds: float) -> None:
    """Ages all counters: their windows are kept as times to live, nothing else knows the time."""
    for name in server.scan_iter("shardbeat-rate:*"):
        left_ms = server.pttl(name) - int(seconds * 1_000)
        if left_ms > 0:
            server.pexpire(name, left_ms)
        else:
            server.delete(name)


def limited(answer: Answer, *, policy: str, limit: int) -> None:
    """A whole 429 of this kind."""
    assert (answer.status, answer.code) == (429, "rate_limited")
    assert answer.headers["Content-Type"] == "application/problem+json"
    members = ("policy", "limit", "use", "window_s")
    assert [answer.body[name] for name in members] == [policy, limit, limit, 60]
    wait_s = int(answer.headers["Retry-After"])
    assert 1 <= wait_s <= 61
    assert answer.headers["RateLimit-Policy"] == f'"{policy}";q={limit};w=60'
    assert answer.headers["RateLimit"] == f'"{policy}";r=0;t={wait_s}'
    assert answer.headers["X-Request-Id"] == answer.body["request_id"]


def test_no_limit_no_header(api: Api, server: redis.Redis) -> None:
    answer = api.get("jobs")
    assert answer.status == 200 and "RateLimit" not in answer.headers
    assert list(server.scan_iter("shardbeat-rate:*")) == [], "and nobody is asked"


def test_the_limit_of_a_key_is_told_and_held(api: Api, make: Makers, plan: Plan) -> None:
    job = make.job()
    plan(max_api_requests_per_min=4)
    answers = [
        api.get("jobs"), api.get(f"jobs/{job['id']}"), api.get("nothing"), api.post("jobs", {}),
        api.get("jobs"), api.get("nothing"),
    ]  # fmt: skip
    assert [one.status for one in answers] == [200, 200, 404, 400, 429, 429]
    left = [one.headers["RateLimit"].partition(";t=")[0] for one in answers[:4]]
    assert left == [f'"api-key";r={number}' for number in (3, 2, 1, 0)]
    for one in answers[4:]:
        limited(one, policy="api-key", limit=4)


def test_keys_and_tenants_do_not_share(acme_people: People, globex_people: People, plan: Plan) -> None:
    plan(max_api_requests_per_min=2)
    first, second, other = Api(acme_people.admin), Api(acme_people.viewer), Api(globex_people.admin)
    assert [first.get("jobs").status for _ in range(3)] == [200, 200, 429]
    for each in (second, other):
        assert [each.get("jobs").status for _ in range(3)] == [200, 200, 429]


def test_one_key_on_two_hosts_is_one(acme_people: People, plan: Plan) -> None:
    plan(max_api_requests_per_min=2)
    here, there = Api(acme_people.admin), Api(acme_people.admin, host=acme_people.host)
    assert [each.get("jobs").status for each in (here, there, here, there)] == [200, 200, 429, 429]


def test_a_role_that_may_not_is_counted_and_leaves_no_endless_trail(
    acme_people: People, globex_people: People, plan: Plan, conn: Any
) -> None:
    """Refusals of keys that are valid write rows of the audit trail: no more than the limit lets through."""
    plan(max_api_requests_per_min=3)
    stranger = Api(acme_people.viewer, host=globex_people.host)
    assert [stranger.get("jobs").status for _ in range(5)] == [403, 403, 403, 429, 429]
    query = "SELECT count(*) FROM audit_auditevent WHERE reason = 'key_of_another_tenant'"
    assert conn.execute(query).fetchone()[0] == 3


def test_exactly_so_many_of_many_at_once(acme_people: People, plan: Plan) -> None:
    plan(max_api_requests_per_min=25)
    clients = [Api(acme_people.admin) for _ in range(8)]
    found = in_parallel(8, lambda number: [clients[number].get("jobs").status for _ in range(10)])
    assert Counter(status for each in found for status in each) == {200: 25, 429: 55}


@pytest.mark.parametrize("broker", ["the server", "amqp://nobody"])
def test_exactly_so_many_hits_of_many_threads(broker: str, settings: Any) -> None:
    from tenants.rates import Rates

    counter = Rates(settings.BROKER_URL if broker == "the server" else broker)
    found = in_parallel(16, lambda _: [counter.take("many", 100, "who") for _ in range(40)])
    standings = [one for each in found for one in each]
    assert sum(one.allowed for one in standings) == 100


def test_the_window_slides(api: Api, plan: Plan, server: redis.Redis) -> None:
    """A minute after the first request the whole former window counts; then less of it with each second."""
    plan(max_api_requests_per_min=6)
    assert [api.get("jobs").status for _ in range(7)] == [200] * 6 + [429]
    let_pass(server, 30)
    limited(api.get("jobs"), policy="api-key", limit=6)
    let_pass(server, 31)  # one second into the next window: five sixths are left of the former one, and a bit
    assert [api.get("jobs").status for _ in range(2)] == [200, 429]
    let_pass(server, 30)
    assert [api.get("jobs").status for _ in range(4)] == [200, 200, 200, 429]
    let_pass(server, 120)
    assert [api.get("jobs").status for _ in range(7)] == [200] * 6 + [429]


def test_who_waits_as_told_gets_through(api: Api, plan: Plan, server: redis.Redis) -> None:
    plan(max_api_requests_per_min=3)
    for _ in range(12):
        answer = api.get("jobs")
        if answer.status == 429:
            let_pass(server, int(answer.headers["Retry-After"]))
            assert api.get("jobs").status == 200


def test_every_counter_expires(api: Api, plan: Plan, server: redis.Redis, settings: Any) -> None:
    settings.FAILED_AUTH_PER_MIN = 2
    plan(max_api_requests_per_min=2)
    for one in (api, Api(WRONG)):
        for _ in range(4):
            one.get("jobs")
    let_pass(server, 61)
    api.get("jobs")
    names = list(server.scan_iter("shardbeat-rate:*"))
    assert len(names) >= 3 and all(0 < server.ttl(name) <= 3_600 for name in names)


# --- without a valid key ---


def ask(key: str | None, *, remote: str = "192.0.2.9", forwarded: str | None = None) -> Answer:
    client = Api(key)
    client._client.defaults["REMOTE_ADDR"] = remote
    return client.call("GET", "jobs", headers={} if forwarded is None else {"X-Forwarded-For": forwarded})


@pytest.mark.parametrize("key", [None, "sb_wrong", WRONG, "sbc_x.y", "\u00e9"])
def test_an_address_fails_so_often(settings: Any, key: str | None) -> None:
    settings.FAILED_AUTH_PER_MIN = 3
    answers = [ask(key) for _ in range(5)]
    assert [one.status for one in answers] == [401, 401, 401, 429, 429]
    left = [one.headers["RateLimit"].partition(";t=")[0] for one in answers[:3]]
    assert left == [f'"failed-authentication";r={number}' for number in (2, 1, 0)]
    for one in answers[3:]:
        limited(one, policy="failed-authentication", limit=3)
    assert ask(key, remote="192.0.2.10").status == 401, "others go on"


def test_a_revoked_key_is_a_failed_attempt(api: Api, settings: Any, plan: Plan) -> None:
    settings.FAILED_AUTH_PER_MIN = 2
    plan(max_api_requests_per_min=100)
    made = api.post("api-keys", {"name": "short", "role": "viewer"}).body
    assert ask(made["key"]).status == 200
    api.delete(f"api-keys/{made['id']}")
    assert [ask(made["key"]).status for _ in range(4)] == [401, 401, 429, 429]


def test_a_guess_that_is_right_gets_no_further(
    acme_people: People, settings: Any, statements: list[str], server: redis.Redis
) -> None:
    settings.FAILED_AUTH_PER_MIN = 2
    assert [ask(WRONG).status for _ in range(3)] == [401, 401, 429]
    statements.clear()
    limited(ask(acme_people.admin), policy="failed-authentication", limit=2)
    assert not [one for one in statements if "tenants_apikey" in one], "it is not even looked up"
    assert ask(acme_people.admin, remote="192.0.2.10").status == 200


def test_who_shares_an_address_with_somebody_who_guesses_goes_on(acme_people: People, settings: Any) -> None:
    from apps.api.throttle import attempts_of

    settings.FAILED_AUTH_PER_MIN = 2
    assert ask(acme_people.admin).status == 200
    assert [ask(WRONG).status for _ in range(4)] == [401, 401, 429, 429]
    assert ask(acme_people.admin).status == 200
    assert ask(acme_people.viewer).status == 429, "another key was never used from there"
    attempts_of.cache_clear()  # another process, which did not see it
    assert [ask(WRONG).status, ask(acme_people.admin).status] == [429, 200]


def test_an_address_is_heard_again_after_its_time(settings: Any, counted: Any, server: redis.Redis) -> None:
    from tenants.attempts import Attempts
    from tenants.rates import RateLimited

    now = [1_000.0]
    attempts = Attempts(counted, clock=lambda: now[0])
    for _ in range(2):
        attempts.failed(address="192.0.2.9", limit=2)
    with pytest.raises(RateLimited) as refused:
        attempts.failed(address="192.0.2.9", limit=2)
    wait_s = refused.value.standing.reset_s
    now[0] += wait_s - 0.5
    with pytest.raises(RateLimited) as still:
        attempts.check(address="192.0.2.9", key=WRONG, limit=2)
    assert still.value.standing.reset_s == 1
    now[0] += 0.5
    let_pass(server, wait_s)
    attempts.check(address="192.0.2.9", key=WRONG, limit=2)
    assert attempts.failed(address="192.0.2.9", limit=2) is not None


@pytest.mark.parametrize("proxies", [0, 1, 2])
def test_what_the_caller_writes_opens_nothing_and_blames_nobody(settings: Any, proxies: int) -> None:
    settings.FAILED_AUTH_PER_MIN, settings.TRUSTED_PROXIES = 5, proxies
    added = ["203.0.113.7", "198.51.100.1"][:proxies]  # by our proxies: the caller's address, the outer one's
    found = []
    for number in range(20):
        forged = [f"10.9.8.{number}", f"2001:db8::{number}", "'; DROP", "", "\x00", "x" * 4_000][number % 6]
        found.append(ask(WRONG, forwarded=", ".join([forged, "10.9.8.7", *added])).status)
    assert Counter(found) == {401: 5, 429: 15}
    victim = ask(WRONG, remote="192.0.2.55", forwarded=", ".join(["10.9.8.7", *added][-proxies:] if proxies else []))
    assert victim.status == (429 if proxies else 401), "with proxies it is the same caller, whoever connects"
    other = ["203.0.113.8", *added[1:]]
    assert ask(WRONG, remote="192.0.2.56", forwarded=", ".join(other)).status == 401


def test_an_ipv6_caller_is_its_network(settings: Any) -> None:
    settings.FAILED_AUTH_PER_MIN = 3
    assert [ask(WRONG, remote=f"2001:db8::{n:x}").status for n in range(1, 6)] == [401, 401, 401, 429, 429]
    assert ask(WRONG, remote="2001:db8:0:1::1").status == 401


def test_exactly_so_many_guesses_of_many_at_once(settings: Any) -> None:
    settings.FAILED_AUTH_PER_MIN = 20
    found = in_parallel(8, lambda number: [ask(WRONG, forwarded=f"10.0.{number}.1").status for _ in range(10)])
    assert Counter(status for each in found for status in each) == {401: 20, 429: 60}


# --- the broker is gone ---


def test_a_dead_broker_lets_pass_and_says_so_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    from tenants.rates import PAUSE_S, Rates

    now = [1_000.0]
    counter = Rates("redis://127.0.0.1:1/0", clock=lambda: now[0])
    with caplog.at_level(logging.WARNING, logger="tenants.rates"):
        for _ in range(50):
            assert counter.take("gone", 1, "who") is None
            now[0] += PAUSE_S
    assert len([one for one in caplog.records if "not counted" in one.message]) == 2


def test_a_silent_broker_holds_up_one_request(api: Api, plan: Plan, settings: Any) -> None:
    from tenants.rates import PAUSE_S, TIMEOUT_S

    plan(max_api_requests_per_min=1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings.BROKER_URL = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        began = time.monotonic()
        answers = [api.get("jobs") for _ in range(10)]
        took_s = time.monotonic() - began
    assert [one.status for one in answers] == [200] * 10
    assert "RateLimit" not in answers[0].headers
    assert took_s < 10 * TIMEOUT_S and TIMEOUT_S < PAUSE_S


def test_a_broker_that_comes_back_counts_again(broker: Any) -> None:
    from tenants.rates import PAUSE_S, Rates

    now = [1_000.0]
    counter = Rates(broker.url, clock=lambda: now[0])
    assert [counter.take("back", 1, "who").allowed for _ in range(2)] == [True, False]  # type: ignore[union-attr]  # it is there
    broker.stop()
    assert counter.take("back", 1, "who") is None
    broker.start()
    assert counter.take("back", 1, "who") is None, "nobody asks it yet"
    now[0] += PAUSE_S
    assert [counter.take("back", 1, "who").allowed for _ in range(2)] == [True, False]  # type: ignore[union-attr]  # again


def test_counting_costs_less_than_a_millisecond(counted: Any) -> None:
    """Of this thread's own work, and the middle of many: a busy machine says nothing."""
    took: list[float] = []
    for _ in range(300):
        began = time.thread_time()
        counted.take("cost", 1_000_000, "tenant", "key")
        took.append(time.thread_time() - began)
    assert sorted(took)[len(took) // 2] < 0.001
    assert threading.active_count() < 50


def test_a_plan_allows_one_request_or_more(plan: Plan) -> None:
    from django.core.exceptions import ValidationError
    from django.db import IntegrityError

    from tenants.models import Plan as Model

    with pytest.raises(ValidationError):
        Model(name="none", max_api_requests_per_min=0).full_clean()
    with pytest.raises(IntegrityError, match="plan_api_limit_is_positive"):
        plan(max_api_requests_per_min=0)
