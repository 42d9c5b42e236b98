"""The keeper, which renews, takes and gives up shard leases; and the process around it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from apps.audit.services import Actor
from apps.dispatch import keeper as keeper_module
from apps.dispatch.dispatcher import Dispatcher
from apps.dispatch.fire import FireService
from apps.dispatch.keeper import Keeper
from apps.dispatch.release import ReleaseService
from apps.due.leases import Slice, preferred
from kernel.clock import utc_now
from kernel.errors import Conflict
from kernel.pools import POOLS
from kernel.service import Loop
from tenants.models import Tenant
from tests.conftest import wait_until
from tests.fixtures_flow import MINUTE, NOW, SHARDS, Noted, count, entry_of, executions_of, fire_all, make_schedule
from tests.flow.leasing import FIRE_0, SOME, is_there, owners, run_out, take

Conn = psycopg.Connection[Any]


@pytest.fixture
def keepers(database: None) -> Iterator[Callable[..., Keeper]]:
    """Makes keepers that are driven by hand: `run_once` is one look."""
    made: list[Keeper] = []

    def make(progressed: Callable[[str], bool] = lambda _: True) -> Keeper:
        made.append(Keeper(wants=lambda slice_: slice_[0] != "beat", progressed=progressed, stats=dict))
        return made[-1]

    yield make
    for keeper in made:
        with suppress(psycopg.Error):  # the sessions of the dead were ended
            keeper.close()


def look(*all_keepers: Keeper, times: int = 1) -> list[dict[str, int]]:
    """Each keeper looks so often, as if it were time to renew; what the last looks did."""
    done: list[dict[str, int]] = []
    for _ in range(times):
        done = []
        for keeper in all_keepers:
            keeper._renewed_at = float("-inf")
            done.append(keeper.run_once().counts)
    return done


def test_one_keeper_takes_everything_at_once(keepers: Callable[..., Keeper], conn: Conn) -> None:
    keeper = keepers()
    look(keeper)
    assert set(keeper.held("fire")) == set(SHARDS)
    assert set(keeper.held("release")) == set(range(len(POOLS)))
    assert set(keeper.held("reconcile")) == {0}
    assert owners(conn) == {keeper.id: 64}


def test_two_then_three_keepers_share_all_shards(keepers: Callable[..., Keeper], conn: Conn) -> None:
    """Completely: each shard has one owner. Evenly: rendezvous hashing, so about as many for each."""
    all_keepers: list[Keeper] = []
    for number in (1, 2, 3):
        all_keepers.append(keepers())
        look(*all_keepers, times=4)
        held = [set(keeper.held("fire")) for keeper in all_keepers]
        assert set().union(*held) == set(SHARDS)
        assert sum(map(len, held)) == len(SHARDS), "no shard twice"
        assert min(map(len, held)) >= len(SHARDS) / number / 3
        assert owners(conn) == {keeper.id: len(mine) for keeper, mine in zip(all_keepers, held, strict=True)}
        assert all(done.get("taken", 0) == done.get("given_up", 0) == 0 for done in look(*all_keepers)), "and rests"


def test_a_change_moves_few_shards() -> None:
    two = [uuid.UUID(int=number) for number in (1, 2)]
    slices: list[Slice] = [("fire", shard) for shard in SHARDS]
    before = {slice_: preferred(slice_, two) for slice_ in slices}
    after = {slice_: preferred(slice_, [*two, uuid.UUID(int=3)]) for slice_ in slices}
    moved = [slice_ for slice_ in slices if before[slice_] != after[slice_]]
    assert all(after[slice_] == uuid.UUID(int=3) for slice_ in moved)
    assert 0 < len(moved) < len(slices) / 2
    assert preferred(FIRE_0, []) is None


def test_a_dead_keepers_shards_are_taken_and_its_sessions_ended(keepers: Callable[..., Keeper], conn: Conn) -> None:
    dead, alive = keepers(), keepers()
    look(dead)
    frozen = dead.line("fire").get()
    pid = frozen.info.backend_pid
    frozen.execute("BEGIN")
    frozen.execute("SELECT 1")
    look(dead)
    died(conn, dead)
    look(alive)
    assert set(alive.held("fire")) == set(SHARDS)
    wait_until(lambda: not is_there(conn, pid), "the frozen session to end")
    frozen.close()


def test_leases_of_before_the_clock_went_back_hold_nobody_up(keepers: Callable[..., Keeper], conn: Conn) -> None:
    """Whoever had them has the time of a lease to renew them; the dead do not, and are no peers to share with."""
    dead, renews, alive = keepers(), keepers(), keepers()
    look(dead, renews, times=4)
    ahead = "expires_at = expires_at + interval '2 hours'"
    conn.execute(f"UPDATE due_shardlease SET {ahead} WHERE owner IS NOT NULL")
    conn.execute(f"UPDATE due_dispatcher SET {ahead}")
    look(alive, renews)
    assert alive.held("fire") == {}, "nothing is taken by force, and what is given up comes at the next look"
    assert owners(conn)[dead.id] > 0 and owners(conn)[renews.id] == len(renews.held("fire"))
    for keeper in (alive, renews):  # as if the time of a lease had passed
        keeper._odd_since = dict.fromkeys(keeper._odd_since, float("-inf"))
    look(alive, renews, times=4)
    assert set(alive.held("fire")) | set(renews.held("fire")) == set(SHARDS)
    assert set(owners(conn)) == {alive.id, renews.id}


def test_a_session_that_was_opened_after_the_last_heartbeat_is_ended_too(
    keepers: Callable[..., Keeper], conn: Conn
) -> None:
    """A process that froze within two seconds of opening a connection told nobody of it."""
    dead, alive = keepers(), keepers()
    look(dead)
    frozen = dead.line("fire").get()
    died(conn, dead)
    look(alive)
    wait_until(lambda: not is_there(conn, frozen.info.backend_pid), "the frozen session to end")
    frozen.close()


def test_a_frozen_transactions_row_locks_do_not_outlive_the_takeover(
    keepers: Callable[..., Keeper], conn: Conn, registry: Any, acme: Tenant
) -> None:
    """A process that was stopped in the middle of a batch keeps its locks; its successor serves the entries anyway."""
    from apps.due import entries

    schedule = make_schedule(acme)
    dead, alive = keepers(), keepers()
    look(dead)
    frozen = dead.line("fire").get()
    frozen.execute("BEGIN")
    entries.lock(frozen, [schedule])
    assert fire_all(conn, registry, now=NOW + MINUTE) == 0, "its rows are passed over"
    died(conn, dead)
    look(alive)
    wait_until(lambda: fire_all(conn, registry, now=NOW + MINUTE) == 1, "the entry to be free")
    with pytest.raises(psycopg.OperationalError):
        frozen.execute("COMMIT")
    assert len(executions_of(conn, acme)) == 1
    frozen.close()


def test_a_lost_lease_is_not_held_any_more(keepers: Callable[..., Keeper], conn: Conn) -> None:
    keeper = keepers()
    look(keeper)
    run_out(conn)
    thief = uuid.uuid4()
    take(conn, thief, [("fire", 3), ("release", 0)])
    look(keeper)
    assert 3 not in keeper.held("fire")
    assert 0 not in keeper.held("release")
    assert len(keeper.held("fire")) == 63


def test_a_process_trusts_itself_for_less_than_its_lease(
    keepers: Callable[..., Keeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops serving before anybody else may begin: TTL less a margin after the renewal was sent."""
    clock = [1_000.0]
    monkeypatch.setattr(keeper_module, "monotonic_s", lambda: clock[0])
    keeper = keepers()
    look(keeper)
    clock[0] += 4.9
    assert keeper.held("fire")
    clock[0] += 0.2
    assert keeper.held("fire") == {}
    assert keeper.held("release") == {}
    look(keeper)
    assert len(keeper.held("fire")) == 64, "after a renewal it goes on"


def test_a_loop_without_progress_loses_its_leases_and_the_others_keep_theirs(
    keepers: Callable[..., Keeper], conn: Conn
) -> None:
    stuck: set[str] = set()
    keeper = keepers(lambda kind: kind not in stuck)
    look(keeper)
    stuck.add("fire")
    look(keeper)
    assert keeper.held("fire") == {}
    assert len(keeper.held("release")) == len(POOLS)
    assert owners(conn) == {}, "given up, so that nobody has to wait"
    look(keeper, times=3)
    assert keeper.held("fire") == {}, "and not taken again while it is stuck"
    stuck.clear()
    look(keeper, times=2)
    assert len(keeper.held("fire")) == 64


@pytest.mark.parametrize("what", ["stuck", "clock"])
def test_who_can_not_serve_is_given_nothing_and_the_others_do_not_flap(
    keepers: Callable[..., Keeper], conn: Conn, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Shards that are given up for a dispatcher that does not take them would be served by nobody, again and again."""
    ill, well = keepers(lambda kind: what != "stuck" or kind != "fire"), keepers()
    for _ in range(4):
        with monkeypatch.context() as patch:
            if what == "clock":
                patch.setattr(keeper_module, "utc_now", lambda: utc_now() + timedelta(seconds=9))
            look(ill)
        look(well)
    free_for_a_while(conn)
    look(well)
    assert len(well.held("fire")) == 64
    for _ in range(6):
        with monkeypatch.context() as patch:
            if what == "clock":
                patch.setattr(keeper_module, "utc_now", lambda: utc_now() + timedelta(seconds=9))
            look(ill)
        [done] = look(well)
        assert done["given_up"] == 0
        assert len(well.held("fire")) == 64
    assert ill.held("fire") == {}


def test_a_wrong_clock_owns_nothing(
    keepers: Callable[..., Keeper], conn: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case B28: more than five seconds off, whichever way; it says so, and a correction heals it."""
    for off_s in (5.5, -5.5, 86_400):
        keeper = keepers()
        with monkeypatch.context() as patch:
            patch.setattr(keeper_module, "utc_now", lambda off_s=off_s: utc_now() + timedelta(seconds=off_s))
            look(keeper, times=2)
            assert keeper.held("fire") == keeper.held("release") == {}
            assert owners(conn) == {}
            skew = count(conn, "SELECT skew_ms FROM due_dispatcher WHERE id = %s", keeper.id)
            assert abs(skew - off_s * 1_000) < 400
        look(keeper, times=2)
        assert len(keeper.held("fire")) == 64
        keeper.close()


def test_a_small_skew_is_no_reason(keepers: Callable[..., Keeper], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper_module, "utc_now", lambda: utc_now() + timedelta(seconds=2))
    keeper = keepers()
    look(keeper, times=2)
    assert len(keeper.held("fire")) == 64


def test_a_draining_keeper_hands_over(keepers: Callable[..., Keeper]) -> None:
    leaving, staying = keepers(), keepers()
    look(leaving)
    leaving.draining = True
    look(leaving, staying, times=3)
    assert leaving.held("fire") == {}
    assert len(staying.held("fire")) == 64


def test_a_draining_keeper_alone_keeps_serving(keepers: Callable[..., Keeper]) -> None:
    keeper = keepers()
    look(keeper)
    keeper.draining = True
    look(keeper, times=3)
    assert len(keeper.held("fire")) == 64


def test_a_keeper_stands_back_when_operators_say_so(keepers: Callable[..., Keeper], conn: Conn) -> None:
    """Its leases go to the others; alone it goes on; it takes its share again when it is told."""
    from apps.due.commanding import dispatcher_drain

    told: dict[str, Any] = {"actor": Actor("ada", "admin"), "now": utc_now(), "reason": "a new kernel"}
    first, other = keepers(), keepers()
    look(first)
    dispatcher_drain(dispatcher_id=first.id, wanted=True, **told)
    with pytest.raises(Conflict):
        dispatcher_drain(dispatcher_id=first.id, wanted=True, **told)
    look(first, times=3)
    assert len(first.held("fire")) == 64, "nobody else would serve them"
    run_out(conn)
    look(first)
    assert len(first.held("fire")) == 64, "nor take them"
    look(first, other, times=3)
    assert (first.held("fire"), len(other.held("fire"))) == ({}, 64)
    dispatcher_drain(dispatcher_id=first.id, wanted=False, **told)
    look(first, other, times=4)
    assert first.held("fire") and other.held("fire")
    rows = conn.execute("SELECT action, reason FROM audit_auditevent WHERE object_id = %s", [str(first.id)]).fetchall()
    assert rows == [("dispatcher.drain", "a new kernel"), ("dispatcher.undrain", "a new kernel")]


def test_an_operator_takes_a_lease_from_its_holder(keepers: Callable[..., Keeper], conn: Conn) -> None:
    from apps.due.commanding import lease_release, leases_rebalance

    told: dict[str, Any] = {"actor": Actor("ada", "admin"), "now": utc_now()}
    first, other = keepers(), keepers()
    look(first)
    term = first.held("fire")[0]
    lease_release(kind="fire", shard=0, term=term, **told)
    with pytest.raises(Conflict):
        lease_release(kind="fire", shard=0, term=term, **told)
    first.run_once()  # no renewal is due
    assert first.held("fire")[0] == term + 1, "its own share comes back to it under a new term"
    assert leases_rebalance(**told) == 0, "everything is where it should be"
    other._renew(other._line.get())
    moved = leases_rebalance(**told)
    look(first, other)
    assert moved > 0 and len(other.held("fire")) >= 64 / 2 / 3


def test_closing_frees_everything_at_once(keepers: Callable[..., Keeper], conn: Conn) -> None:
    keeper = keepers()
    look(keeper)
    keeper.close()
    assert owners(conn) == {}
    assert count(conn, "SELECT count(*) FROM due_dispatcher") == 0
    other = keepers()
    look(other)
    assert len(other.held("fire")) == 64


def test_ids_are_unique_per_start(keepers: Callable[..., Keeper]) -> None:
    """Case B23: same host, same process number, another owner."""
    assert len({keepers().id for _ in range(3)}) == 3


def test_a_lease_shorter_than_three_renewals_is_refused(database: None, settings: Any) -> None:
    """Case B21."""
    settings.LEASE_TTL_S = 5.0
    with pytest.raises(ValueError, match="three times"):
        Keeper(wants=lambda _: True, progressed=lambda _: True, stats=dict)


class Broken:
    """A line whose database is away: after so many statements, each way of asking fails."""

    def __init__(self, line: Any, works: int) -> None:
        self.line, self.works = line, works

    def get(self) -> Any:
        self.works -= 1
        if self.works < 0:
            raise psycopg.OperationalError("the database is away")
        return self.line.get()

    def close(self) -> None:
        self.line.close()


def test_an_error_while_acquiring_serves_nothing(keepers: Callable[..., Keeper], conn: Conn, acme: Tenant) -> None:
    """Case B20: no path serves unless a valid lease was read after the error."""
    schedule = make_schedule(acme)
    keeper = keepers()
    whole = keeper._line
    keeper._line = Broken(whole, 0)  # type: ignore[assignment]  # it stands for a line
    with pytest.raises(psycopg.OperationalError):
        keeper.run_once()
    service = FireService(keeper.line("fire"), keeper)
    assert service.run_once().counts == {}
    assert entry_of(conn, schedule).due_at == NOW + MINUTE
    keeper._line = whole
    look(keeper)
    assert service.run_once().counts["entries"] == 1
    service.close()


@pytest.mark.parametrize("ends_at", range(1, 5))
def test_a_connection_that_ends_in_the_middle_of_a_look_leaves_no_false_trust(
    keepers: Callable[..., Keeper], conn: Conn, ends_at: int
) -> None:
    """What the keeper believes to hold is what the rows say, wherever its connection ended."""
    from tests.fixtures_flow import OneLine, fragile

    keeper = keepers()
    whole = keeper._line
    for after in (False, True):
        keeper._line = OneLine(fragile(ends_at, after=after))  # type: ignore[assignment]  # it stands for a line
        with pytest.raises(psycopg.OperationalError):
            look(keeper)
        believed = set(keeper.held("fire"))
        query = "SELECT shard FROM due_shardlease WHERE kind = 'fire' AND owner = %s AND expires_at > clock_timestamp()"
        assert believed <= {row[0] for row in conn.execute(query, [keeper.id])}
    keeper._line = whole
    run_out(conn)  # what was taken without an answer runs out
    look(keeper, times=2)
    assert len(keeper.held("fire")) == 64


def test_services_without_a_lease_do_nothing(keepers: Callable[..., Keeper], conn: Conn, acme: Tenant) -> None:
    make_schedule(acme)
    standby = keepers()
    for service in (
        FireService(standby.line("fire"), standby),
        ReleaseService("python", standby.line("release"), standby, Noted()),
    ):
        assert service.run_once().counts == {}
        service.close()
    assert executions_of(conn, acme) == []


def test_a_dispatcher_starts_fires_and_stops_without_a_trace(conn: Conn, acme: Tenant) -> None:
    """The whole process's loops in this one: started, seen to fire, stopped; nothing of it is left."""
    schedule = make_schedule(acme)
    dispatcher = Dispatcher()
    dispatcher.start()
    wait_until(lambda: executions_of(conn, acme, schedule), "the schedule to fire")
    wait_until(lambda: count(conn, "SELECT count(*) FROM due_dispatcher") == 1, "its heartbeat")
    dispatcher.close()
    assert owners(conn) == {}
    assert count(conn, "SELECT count(*) FROM due_dispatcher") == 0
    prefix = f"shardbeat {str(dispatcher.keeper.id)[:8]}%"
    gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name LIKE %s"
    wait_until(lambda: count(conn, gone, prefix), "its sessions to end")


def test_a_dispatcher_outlives_the_loss_of_its_connections(conn: Conn, acme: Tenant) -> None:
    dispatcher = Dispatcher()
    dispatcher.start()
    wait_until(lambda: len(dispatcher.keeper.held("fire")) == 64, "its leases")
    conn.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE %s",
        [f"shardbeat {str(dispatcher.keeper.id)[:8]}%"],
    )
    schedule = make_schedule(acme)
    wait_until(lambda: executions_of(conn, acme, schedule), "the schedule to fire")
    dispatcher.close()


def test_a_loop_runs_the_keeper(keepers: Callable[..., Keeper], conn: Conn) -> None:
    keeper = Keeper(wants=lambda slice_: slice_ in SOME, progressed=lambda _: True, stats=dict)
    loop = Loop(keeper)
    loop.start()
    wait_until(lambda: len(keeper.held("fire")) == len(SOME), "the wanted shards")
    loop.stop()
    assert loop.join(10)
    assert owners(conn) == {}


def died(conn: Conn, keeper: Keeper) -> None:
    """As if the process had ended without a word, long ago."""
    run_out(conn, keeper.id)
    conn.execute("UPDATE due_dispatcher SET expires_at = clock_timestamp() - interval '5 s' WHERE id = %s", [keeper.id])


def free_for_a_while(conn: Conn) -> None:
    """As if what is free had been free for longer than its preferred taker may take."""
    conn.execute("UPDATE due_shardlease SET expires_at = clock_timestamp() - interval '5 s' WHERE owner IS NULL")
