"""The sentence on every page: each rule alone, their order, and what all of them say of any facts."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime(2027, 3, 1, 8, tzinfo=UTC)


def process(name: str = "box:1", silent_s: float = -4.0, **more: Any) -> Any:
    from apps.console.verdict.values import Process

    return Process(f"id of {name}", name, silent_s, **more)


def slice_of(shard: int, unheld_s: float = -4.0, **more: Any) -> Any:
    from apps.console.verdict.values import Slice

    return Slice("fire", shard, more.pop("holder", "box:1"), 3, unheld_s, **more)


def pool(**more: Any) -> Any:
    from apps.console.verdict.values import Pool

    usual: dict[str, Any] = {
        "pool": "http", "group": "", "slots": 100, "running": 0, "queued": 0, "ready": 0, "held": 0, "later": 0,
        "oldest_wait_s": 0.0, "in_per_s": 0.0, "out_per_s": 0.0,
    }  # fmt: skip
    return Pool(**usual | more)


def facts(**more: Any) -> Any:
    """All is well, but for what is given."""
    from apps.console.verdict.values import Facts, Late, Spell

    if "late" in more:
        more["late"] = Late(*more["late"])

    usual: dict[str, Any] = {
        "now": NOW, "dispatchers": (process(),), "workers": (process("box:2"),), "workers_live": 1,
        "slices": (slice_of(0), slice_of(1)), "measured_s": 1.0, "minute": Spell(60.0, 1204, times=1204, p99_s=0.8),
        "lately": Spell(300.0, 6000, 3, 6000, 10, 6000, 0.1, 0.8),
    }  # fmt: skip
    return Facts(**usual | more)


def said(**more: Any) -> Any:
    from apps.console.verdict.rules import verdicts

    return verdicts(facts(**more))


def failing(**more: Any) -> Any:
    from apps.console.verdict.values import Failing

    usual: dict[str, Any] = {"host": "pay.example", "failures": 214, "tenants": 3, "sample": "503"}
    return Failing(**usual | more)


def shut() -> Any:
    from apps.console.verdict.values import Shut

    return Shut("pay.example:443", 2, NOW, "503", "b1")


def held(pool: str) -> Any:
    from apps.console.verdict.values import Pause

    return Pause(pool, "ada", NOW - timedelta(hours=1), "storm")


def held_of(*named: tuple[str, str]) -> Any:
    from apps.console.verdict.values import TenantPause

    return tuple(TenantPause(*one) for one in named)


def spell(**more: Any) -> Any:
    from apps.console.verdict.values import Spell

    return Spell(**more)


def share(slug: str, due: int) -> Any:
    from apps.console.verdict.values import Share

    return Share(slug, due, 0)


def test_all_is_well_is_said_with_what_ran() -> None:
    [only] = said()
    assert (only.code, only.tone) == ("on_time", "ok")
    assert only.sentence == "On time. 1,204 runs in the last minute, p99 800 ms."
    assert {one.what for one in only.evidence} == {"Dispatchers alive", "Workers alive", "Runs that ended", "Due now"}
    quiet = said(minute=spell(seconds=60.0), lately=spell(), next_due_at=NOW + timedelta(seconds=90))[0]
    assert quiet.sentence.endswith("nothing ran in the last 5 min. The next is due in 1 min 30 s.")


@pytest.mark.parametrize(
    ("code", "words", "given"),
    [
        ("no_dispatcher", "no dispatcher is alive. The last one, box:1, is gone for 2 min.",
         {"dispatchers": (process(silent_s=120.0),), "due": 340, "oldest_due_s": 119.0}),
        ("no_dispatcher", "There never was one lately.", {"dispatchers": ()}),
        ("paused", "paused for 1 h", {"pauses": (held("http"), held(""))}),
        ("unread", "The state of the platform can't be read", {"fault": 'column "skew" does not exist'}),
        ("pool_paused", "Pool http of all tenants is paused for 1 h", {"pauses": (held("http"),)}),
        ("pool_paused", "Pool http and 1 more of all tenants are paused", {"pauses": (held("http"), held("python"))}),
        ("unheld", "Nobody serves 1 slice: fire 1, for 8.0 s.", {"slices": (slice_of(0), slice_of(1, 8.0))}),
        ("dispatcher_lost", "A dispatcher died 40 s ago: box:9. box:1 took over its 1 slice.",
         {"dispatchers": (process(), process("box:9", 40.0)),
          "slices": (slice_of(0), slice_of(1, taken_s=39.0, taken_from="id of box:9", ran_out=True))}),
        ("no_worker", "no worker is alive, and 12 runs wait", {"workers_live": 0, "counts": {"ready": 12}}),
        ("no_worker", "and 2,500+ runs wait", {"workers_live": 0, "counts": {"ready": 2_501}, "counts_most": 2_500}),
        ("stale_writes", "3 late writes refused in the last 5 min. This is safe", {"stale_writes": 3}),
        ("backlog_idle", "500 runs wait in pool http while 96 slots are idle.",
         {"pools": (pool(ready=500, running=4, oldest_wait_s=30.0),)}),
        ("unserved", "Nothing consumes queue http.own.acme: 7 runs wait there.", {"unserved": (("http.own.acme", 7),)}),
        ("one_tenant", "Tenant acme has 90 % of what is due: 900 of 1,000 runs.",
         {"shares": (share("acme", 900), share("globex", 100))}),
        ("retry_storm", "75 % of 400 attempts failed in the last 5 min.",
         {"lately": spell(ended=100, attempts=400, attempts_failed=300)}),
        ("host_failing", "Destination pay.example:443 fails: 214 failures in 5 min, and calls are held back.",
         {"failing": (failing(),), "shut": (shut(),), "lately": spell(attempts=900)}),
        ("host_failing", "Destination pay.example fails: 214 failures in 5 min.",
         {"failing": (failing(),), "lately": spell(attempts=900)}),
        ("host_failing", "443 fails: 3 failures in 5 min, and calls are held back.",
         {"failing": (failing(failures=3),), "shut": (shut(),)}),
        ("host_failing", "fails: too many calls failed, and calls are held back.", {"shut": (shut(),)}),
        ("database_slow", "its figures took 1.2 s to read", {"took_ms": 1_200.0}),
        ("database_slow", "a replica is 1 min behind", {"replica_lag_s": 60.0}),
        ("clock_skew", "1 clock is wrong: box:2 by -900 ms.", {"workers": (process("box:2", skew_ms=-900),)}),
        ("late", "Late: 340 entries due, the oldest for 34 s.", {"due": 340, "oldest_due_s": 34.0}),
        ("at_capacity", "All slots of pool http are taken: 500 runs wait, the oldest for 30 s, gone in 1 min 40 s.",
         {"pools": (pool(ready=500, running=100, oldest_wait_s=30.0, out_per_s=5.0),)}),
        ("was_late", "Late in the last 5 min: p99 33 s of 600 runs.", {"lately": spell(times=600, p99_s=33.0)}),
        ("was_late", "of 600 runs. Tenants at limits of their own: 58 of 60 late ones.",
         {"lately": spell(times=600, p99_s=33.0), "late": (60, 58)}),
        ("audit_alarm", "may have been changed", {"alarms": 1}),
        ("unsealed", "6,000 rows", {"unsealed": 6_000}),
        ("parked", "1 due entry can't be served and is put aside.", {"parked": 1, "parked_one": "k1"}),
        ("slots_given_up", "2 periodic slots", {"slots_given_up": 2}),
        ("other_schemas", "3 tenant schemas of another version.", {"other_schemas": 3}),
        ("unmeasured", "measured never", {"measured_s": None}),
        ("tenant_paused", "Dispatch of 2 tenants is paused: acme, globex.",
         {"tenant_pauses": 2, "tenants_paused": held_of(("acme", ""), ("globex", ""))}),
        ("tenant_paused", "9 pauses of single tenants: a, b, c and 6 more.",
         {"tenant_pauses": 9, "tenants_paused": held_of(*((one, "") for one in "abcdefgh"))}),
        ("tenant_paused", "5 pauses of single tenants: acme, pool http of b, pool http of c and 2 more.",
         {"tenant_pauses": 5, "tenants_paused": held_of(("acme", ""), *((one, "http") for one in "bcde"))}),
    ],
)  # fmt: skip
def test_a_rule_says_it(code: str, words: str, given: dict[str, Any]) -> None:
    from apps.console.verdict.runbooks import RUNBOOKS

    found = said(**given)
    assert found[0].code == code, found
    assert words in found[0].sentence
    assert found[0].evidence
    assert RUNBOOKS[code].steps, "somebody has to know what to do"


def test_every_rule_has_its_case_and_its_runbook() -> None:
    from apps.console.verdict.rules import RULES
    from apps.console.verdict.runbooks import RUNBOOKS

    codes = [rule.__name__ for rule in RULES]
    tried = {mark.args[1][n][0] for mark in test_a_rule_says_it.pytestmark for n in range(len(mark.args[1]))}
    assert set(codes) == tried
    assert {*codes, "on_time"} == set(RUNBOOKS)


def test_commands_of_runbooks_are_there() -> None:
    from django.core.management import get_commands

    from apps.console.verdict.runbooks import RUNBOOKS

    told = {word for one in RUNBOOKS.values() for word in re.findall(r"manage\.py (\w+)", " ".join(one.steps))}
    assert {"dispatcher", "doctor", "pool_wanted"} <= told <= set(get_commands())


def test_remedies_are_verbs_that_there_are() -> None:
    from apps.console.verbs.registry import all_verbs

    cases = next(mark.args[1] for mark in test_a_rule_says_it.pytestmark)
    found = {(one.code, *remedy[:2]) for _, _, given in cases for one in said(**given) for remedy in one.remedies}
    told = {verb for _, verb, _ in found}
    assert {"lease.rebalance", "breaker.reset", "tenant.pause", "dispatch.resume", "queue.resume"} <= told
    assert told <= set(all_verbs())
    assert {
        ("audit_alarm", "audit.verify", "operators"), ("parked", "dueentry.unpark", "k1"),
        ("backlog_idle", "lease.release", "release/0"), ("unserved", "tenant.plan", "acme"),
        ("tenant_paused", "tenant.resume", "acme"), ("tenant_paused", "queue.resume", "http@b"),
    } <= found  # fmt: skip


def test_what_explains_the_others_comes_first() -> None:
    """Dead dispatchers make all else: late, unheld, unmeasured. The others are told beside it."""
    found = said(
        dispatchers=(process(silent_s=60.0),), slices=(slice_of(0, 60.0),), due=500, oldest_due_s=61.0, measured_s=60.0,
        shares=(share("acme", 900), share("globex", 1)), shut=(shut(),),
    )  # fmt: skip
    assert [one.code for one in found] == ["no_dispatcher", "one_tenant", "host_failing"]


def test_what_is_meant_or_safe_hides_nothing_that_is_bad() -> None:
    """A pool that is paused, a dead dispatcher's slices that others serve, refused writes: beside each bad thing. A
    pause of all is told above what it makes look bad."""
    cases = next(mark.args[1] for mark in test_a_rule_says_it.pytestmark)
    bad = {code: known for code, _, known in cases if said(**known)[0].tone == "bad"}
    assert {"unheld", "no_worker", "backlog_idle", "unserved", "late", "audit_alarm"} < set(bad)
    for code, known in bad.items():
        beside = {
            "dispatchers": (*known.get("dispatchers", (process(),)), process("box:9", 40.0)), "stale_writes": 3,
        }  # fmt: skip
        meant = {"pauses": (held("http"),), "tenant_pauses": 1, "tenants_paused": held_of(("acme", ""))}
        found = [one.code for one in said(**known | beside | meant)]
        assert (found[0], found[-1]) == (code, "tenant_paused") and {"pool_paused", "stale_writes"} < set(found)
        assert ("dispatcher_lost" in found) == (code != "no_dispatcher")
        whole = [one.code for one in said(**known | beside, pauses=(held("http"), held("")))]
        assert whole[0] == (code if code in ("unread", "no_dispatcher") else "paused")
        assert "pool_paused" not in whole


@pytest.mark.parametrize(
    "given",
    [
        {"slices": (slice_of(0, 1.0),)},  # a takeover at work
        {"dispatchers": (process(), process("box:9", 5_000.0))},  # long gone
        {"pools": (pool(ready=500, held=500, oldest_wait_s=60.0),)},  # its own limit holds it
        {"pools": (pool(ready=500, running=4, oldest_wait_s=30.0),), "measured_s": 600.0, "dispatchers": (process(),)},
        {"shares": (share("acme", 60), share("globex", 1))},  # few
        {"shares": (share("acme", 500), share("globex", 500))},  # half is not more than half
        {"shares": (share("acme", 100), share("", 900))},  # many small ones, together
        {"failing": (failing(failures=3),)},
        {"failing": (failing(),), "lately": spell(ended=9_000, attempts=9_000)},  # 2 % of all
        {"workers": (process("box:2", 60.0, skew_ms=9_000),)},  # a dead worker's clock
        {"oldest_due_s": 9.0, "due": 10},
        {"workers_live": 0},  # and nothing waits
    ],
)
def test_what_is_no_news_is_not_said(given: dict[str, Any]) -> None:
    assert [one.code for one in said(**given) if one.code != "unmeasured"] in (["on_time"], [])


numbers = st.integers(0, 20_000)
skews = st.integers(-9_000, 9_000)
seconds = st.floats(-10, 10_000)


@given(
    due=numbers, oldest_due_s=st.floats(0, 1e6), took_ms=st.floats(0, 5_000), workers_live=numbers, parked=numbers,
    dispatchers=st.lists(st.builds(process, st.text(max_size=5), seconds, skew_ms=skews), max_size=3).map(tuple),
    slices=st.lists(st.builds(slice_of, st.integers(0, 63), seconds), max_size=4).map(tuple),
    pools=st.lists(st.builds(pool, slots=numbers, running=numbers, ready=numbers, held=numbers, oldest_wait_s=seconds),
                   max_size=3).map(tuple),
    shares=st.lists(st.builds(share, st.text(max_size=5), numbers), max_size=4).map(tuple),
    measured_s=st.none() | st.floats(0, 1e5),
)  # fmt: skip
def test_any_facts_have_a_sentence(**given: Any) -> None:
    """Whatever is known: there is a sentence, its evidence, and all-is-well is alone."""
    found = said(**given)
    assert found and all(one.sentence and one.evidence for one in found)
    assert len({one.code for one in found}) == len(found)
    if found[0].code == "on_time":
        assert len(found) == 1 and any(one.silent_s < 0 for one in given["dispatchers"])
