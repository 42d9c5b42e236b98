"""What one worker process is: its lease, its executors, its settle buffer. Made by the bootstep in `workers.app`."""

import logging
import os
import socket
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import UUID, uuid4

import orjson
import psycopg
from django.conf import settings

from apps.executions import store as executions
from apps.outcomes.settle import Pair, Settlement
from apps.outcomes.storable import UNSTORABLE_RESULT
from apps.outcomes.verdict import Report
from apps.schedules.definitions import Definition, Definitions, RunNames, run_names
from apps.secrets.keyring import KeyUnknown
from apps.secrets.vault import Found, Vault
from apps.tickets import holding
from apps.tickets.values import Started
from apps.webhooks.handing import Receiver, receivers
from kernel.clock import monotonic_s, utc_now
from kernel.eventtypes import DELIVERY
from kernel.pools import pool_of_queue, reserve_of
from kernel.secretrules import shown_name
from tenants.door import Line
from tenants.registry import Registry, Tenancy
from tenants.runtokens import runtoken_make
from workers.batching import Usual
from workers.executors.base import Executor, Result, Work
from workers.heartbeat import Heartbeat
from workers.progress import ProgressBoard
from workers.queue_pace import QueuePace
from workers.settling import SettleBuffer

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
T = TypeVar("T")
WAIT_FOR_SLOT_S = 2.0
WAIT_FOR_SHARE_S = 0.2  # while there are slots, but for others
NOT_PREPARED_WAIT_S = 5.0
ENDS_OUTSIDE = frozenset({"http", "pull"})  # kinds whose other side may report the end later, with a token
NAMED = frozenset({"job", "schedule", "labels"})  # what templates may ask for and tickets do not hold
NO_NAMES = RunNames("", "", {})
TIMEOUT_LEAST_S = 0.01
LOCK_TIMEOUT_MS = 500  # the other tenants' messages wait for this thread meanwhile


class Runtime:
    """One per process. `take` is called by the batch task from Celery's pool threads."""

    def __init__(
        self, executors: dict[str, Executor], *, queues: Callable[[], list[str]], progress: ProgressBoard | None = None
    ) -> None:
        self.progress = progress or ProgressBoard()
        self.id: UUID = uuid4()
        self.host = socket.gethostname()
        self.pid = os.getpid()
        self.executors = executors
        self.draining = False
        self.drain_wanted = False  # operators told it to stand back; the heartbeat hears of it
        self.settling = SettleBuffer()
        self.vault = Vault()
        self.heartbeat = Heartbeat(self, queues=queues)
        self._started: dict[Pair, tuple[Started, Definition | None]] = {}
        self._preparing: set[Pair] = set()  # claimed, and not yet in an executor's hands
        self._lock = threading.Lock()
        self._slot_free = threading.Condition(self._lock)
        self._reserved: dict[str, int] = dict.fromkeys(executors, 0)
        self._queue_of: dict[Pair, str] = {}
        self._since: dict[Pair, float] = {}  # when it took its slot
        self._held_of: Counter[str] = Counter()  # by queue: reserved for it, or started and not ended
        self.ended: Counter[str] = Counter()  # by pool: attempts that gave their slot back, since the start
        self.slot_s: dict[str, float] = defaultdict(float)  # by pool: for how many seconds these held one, in all
        self._pace = QueuePace()  # with the lock
        self._usual: dict[str, Usual] = defaultdict(Usual)  # by pool; with the lock
        self._gathers: dict[str, int] = {}  # by pool: for how many free slots one message waits, with the lock
        self._gathered = threading.Condition(self._lock)
        self._local = threading.local()

    def start(self) -> None:
        """Starts executors and loops; the first lease is written before any work may come."""
        for executor in self.executors.values():
            executor.start()
        self.heartbeat.run_once()
        self.settling.loop.start()
        self.heartbeat.loop.start()

    def stop(self, grace_s: float) -> None:
        """Drains: takes nothing more, lets work end for `grace_s`, hands back the rest; the lease ends last."""
        self.draining = True
        self.heartbeat.loop.wake()
        threads = [
            threading.Thread(target=executor.stop, args=(grace_s,), daemon=True) for executor in self.executors.values()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(grace_s + 10)
        if not self.settling.drain(30.0):
            log.error("%d attempts could not be settled before the end", len(self.settling.pending()))
        self.settling.loop.stop()
        self.settling.loop.join(10)
        self.heartbeat.loop.stop()
        self.heartbeat.loop.join(10)

    @property
    def stands_back(self) -> bool:
        """Whether it takes nothing more: it stops, or operators told it so."""
        return self.draining or self.drain_wanted

    def holds(self) -> set[Pair]:
        """Everything that this process answers for: taken, in an executor's hands, ended but not settled.

        In the order in which work moves on, so that nothing is missed on its way.
        """
        with self._lock:
            held = set(self._preparing)
        for executor in self.executors.values():
            held |= executor.held()
        return held | self.settling.pending()

    def queue_rates(self) -> dict[str, float]:
        """How many attempts of each queue end in a second."""
        with self._lock:
            return self._pace.told(monotonic_s())

    def forget(self, pairs: Iterable[Pair]) -> None:
        """These were lost here: should their results turn up after all, they are dropped."""
        with self._lock:
            for pair in pairs:
                self._drop(pair)

    def take(self, pool: str, ids: Sequence[UUID], release: int, *, queue: str = "") -> dict[str, int]:
        """Starts what still waits under this release number, as slots become free; the rest goes back to ready.

        What comes through one queue leaves some slots to the others (`kernel.pools.reserve_of`).
        """
        executor = self.executors.get(pool)
        left = list(ids)
        counts = {"started": 0, "put_back": 0}
        give_up_at = monotonic_s() + WAIT_FOR_SLOT_S
        while left and executor is not None and not self.stands_back and not self.settling.full:
            room = self._reserve(pool, len(left), until=give_up_at, queue=queue)
            if room == 0:
                break
            part, left = left[:room], left[room:]
            try:
                counts["started"] += self._start(pool, part, release, queue)
            finally:
                with self._lock:
                    self._reserved[pool] -= room
                    self._held_of[queue] -= room
        if left:
            counts["put_back"] = self._again_when_lost(
                lambda conn: holding.put_back(conn, left, release=release, now=utc_now())
            )
        return counts

    def _again_when_lost(self, statement: Callable[[Conn], T]) -> T:
        """Runs a conditional statement, once more on a new connection when the old one was lost (a restarted database).

        Should the first have been committed all the same, the second finds nothing to do; what was started then is
        held by nobody and comes back as lost.
        """
        conn = self._line.fresh()
        try:
            self._local.registry.refresh()
            return statement(conn)
        except psycopg.OperationalError:
            if not conn.closed:
                raise
        return statement(self._line.get())

    @property
    def _line(self) -> Line:
        """A connection per Celery thread."""
        if not hasattr(self._local, "line"):
            self._local.line = Line("worker start", opened=_set_lock_timeout)
            self._local.registry = Registry(self._local.line)
            self._local.definitions = Definitions()
        line: Line = self._local.line
        return line

    def _reserve(self, pool: str, wanted: int, *, until: float, queue: str) -> int:
        """Waits for free slots and reserves at most `wanted` of them; 0 when none came in time.

        What had to wait takes no single slot: soon others become free, and a start of many costs little more than one.
        """
        executor = self.executors[pool]
        soon = monotonic_s() + WAIT_FOR_SHARE_S
        waited = False
        with self._slot_free:
            while True:
                room = self._room(pool, wanted, queue)
                others_first = pool in self._gathers
                if 0 < room < wanted and waited and not others_first:
                    room = self._gather(pool, wanted, queue)
                if room > 0 and not others_first:
                    self._reserved[pool] += room
                    self._held_of[queue] += room
                    if executor.free() > self._reserved[pool]:
                        self._slot_free.notify()
                    return room
                if room <= 0 < executor.free() - self._reserved[pool]:
                    until = min(until, soon)  # what is free is for others, whose messages wait behind this one
                left = until - monotonic_s()
                if left <= 0 or self.stands_back:
                    return 0
                self._slot_free.wait(min(left, 0.1))
                waited = True

    def _room(self, pool: str, wanted: int, queue: str) -> int:
        executor = self.executors[pool]
        free = executor.free() - self._reserved[pool]
        reserve = reserve_of(pool, executor.slots)
        return min(wanted, free, executor.slots - reserve - self._held_of[queue] if reserve else free)

    def _gather(self, pool: str, wanted: int, queue: str) -> int:
        """Some slots are free: waits a moment for as many as are wanted. The room that there is then."""
        until = monotonic_s() + self._usual[pool].wait_s
        self._gathers[pool] = wanted
        try:
            while (room := self._room(pool, wanted, queue)) < wanted and not self.stands_back:
                left = until - monotonic_s()
                if left <= 0:
                    break
                self._gathered.wait(left)
            return room
        finally:
            del self._gathers[pool]

    def _start(self, pool: str, ids: Sequence[UUID], release: int, queue: str) -> int:
        # From here until they are settled the tickets are ours: whatever fails below must end as an attempt.
        # What is not started of a clogged tenant is released again, later each time.
        clogged = self.settling.clogged()
        started = self._again_when_lost(
            lambda conn: holding.start(conn, ids, release=release, worker=self.id, limit=len(ids), not_tenants=clogged)
        )
        conn, registry = self._line.get(), self._local.registry
        pairs = {(one.execution_id, one.fence) for one in started}
        with self._lock:
            self._started.update({(one.execution_id, one.fence): (one, None) for one in started})
            self._queue_of.update(dict.fromkeys(pairs, queue))
            self._since.update(dict.fromkeys(pairs, monotonic_s()))
            self._held_of[queue] += len(pairs)
            self._preparing |= pairs
        try:
            self._hand_over(conn, pool, registry, started)
        finally:
            with self._lock:
                self._preparing -= pairs
        return len(started)

    def _hand_over(self, conn: Conn, pool: str, registry: Registry, started: list[Started]) -> None:
        works: list[Work] = []
        by_tenant: dict[int, list[Started]] = defaultdict(list)
        for one in started:
            by_tenant[one.tenant_id].append(one)
        for tenant_id, of_tenant in by_tenant.items():
            try:
                works += self._works(conn, registry.get(tenant_id), of_tenant)
            except Exception as error:
                log.exception("tenant %d: %d attempts could not be prepared", tenant_id, len(of_tenant))
                # A schema that does not answer is the platform's fault: that uses up no attempt of the job's policy.
                outcome = "returned" if isinstance(error, psycopg.Error) else "failed"
                for one in of_tenant:
                    self._refuse(one, "not_prepared", f"{type(error).__name__}: {error}", outcome=outcome)
        if works:
            self.executors[pool].submit(works, partial(self._done, pool))

    def _works(self, conn: Conn, tenancy: Tenancy | None, started: list[Started]) -> list[Work]:
        if tenancy is None:
            for one in started:
                self._refuse(one, "tenant_gone", "The tenant does not exist any more.")
            return []
        definitions: Definitions = self._local.definitions
        known = definitions.of_runs(conn, tenancy.schema, started)
        own = [one.execution_id for one in started if one.payload_from == "execution"]
        payloads = executions.payloads(conn, tenancy.schema, own) if own else {}
        named = [one.execution_id for one in started if _needs_names(known.get(one.execution_id))]
        names = run_names(conn, tenancy.schema, named) if named else {}
        found = self.vault.values(
            conn, tenancy, {name for definition in known.values() for name in definition.secrets}, now=utc_now()
        )
        calls = any(definition.kind == "http" for definition in known.values())
        signing = self.vault.signing(conn, tenancy, now=utc_now()) if calls else ()
        told = {one.job_id for one in started if one.trigger == DELIVERY}
        receiving = receivers(conn, tenancy, self.vault, told, now=utc_now()) if told else {}
        works = []
        for one in started:
            definition = known.get(one.execution_id)
            if definition is None:
                self._refuse(one, "undecodable", "The job's definition is missing or unreadable.")
                continue
            if not definition.secrets <= found.values.keys():
                self._refuse_for_secret(one, definition, found)
                continue
            with self._lock:
                self._started[(one.execution_id, one.fence)] = (one, definition)
            payload = definition.payload
            if one.payload_from == "execution":
                payload = orjson.loads(payloads[one.execution_id])
            elif one.payload_from == "schedule" and one.schedule_id is not None:
                payload = definitions.schedule_payload(conn, tenancy.schema, one.schedule_id, one.schedule_version or 0)
            work = _work(one, definition, payload, tenancy, names.get(one.execution_id, NO_NAMES))
            if one.trigger == DELIVERY:
                delivery = self._delivery(work, one, receiving.get(one.job_id))
                works += [delivery] if delivery is not None else []
                continue
            secrets = {name: found.values[name] for name in definition.secrets}
            works.append(replace(work, secrets=secrets, signing_secrets=signing) if secrets or signing else work)
        return works

    def _delivery(self, work: Work, one: Started, receiver: Receiver | None) -> Work | None:
        """The delivery of an event as its webhook is now; one that nobody wants any more ends as cancelled."""
        if receiver is None or not receiver.takes(one.job_version):
            gone = "does not exist any more" if receiver is None else "is disabled"
            self._refuse(one, "webhook_gone", f"The webhook {gone}.", outcome="cancelled")
            return None
        if receiver.unreadable is not None:
            log.error("tenant %d: secret of webhook %s: %s", one.tenant_id, one.job_id, receiver.unreadable)
            outcome = "returned" if isinstance(receiver.unreadable, KeyUnknown) else ""
            message = "The webhook's secret can't be decrypted."
            self._refuse(one, getattr(receiver.unreadable, "code", "secret_unreadable"), message, outcome=outcome)
            return None
        return replace(work, target=receiver.target, signing_secrets=receiver.signing_secrets)

    def _done(self, pool: str, work: Work, result: Result) -> None:
        """An executor's answer, from its thread."""
        text = _json(result.result)
        self._end(
            (work.execution_id, work.fence),
            Report(
                result.outcome, result.started_at, result.finished_at, text, result.error, result.retryable,
                result.retry_after_s, result.pause_schedule, result.holder,
            ),
        )  # fmt: skip
        with self._lock:
            self._tell_of_slot(pool)

    def _tell_of_slot(self, pool: str) -> None:
        """A slot is free: wakes whoever can do something with it now. With the lock."""
        wanted = self._gathers.get(pool)
        if wanted is None:
            self._slot_free.notify()
        elif self.executors[pool].free() - self._reserved[pool] >= wanted:
            self._gathered.notify_all()

    def _refuse(self, one: Started, name: str, message: str, *, outcome: str = "") -> None:
        """Ends an attempt that was never in an executor's hands; without an `outcome` for good."""
        report = Report(
            outcome or "failed", one.started_at, _later(one.started_at), error={"class": name, "message": message},
            retryable=bool(outcome), retry_after_s=NOT_PREPARED_WAIT_S if outcome else None,
        )  # fmt: skip
        self._end((one.execution_id, one.fence), report)

    def _refuse_for_secret(self, one: Started, definition: Definition, found: Found) -> None:
        """Nothing is called without one of its secrets. Which one is said; values never are."""
        name = min(definition.secrets - found.values.keys())
        error = found.unreadable.get(name)
        if error is None:
            self._refuse(one, "secret_missing", f"The secret {shown_name(name)} does not exist.")
        else:  # a key that this worker was not given is the platform's fault, and another worker may have it
            outcome = "returned" if isinstance(error, KeyUnknown) else ""
            log.error("tenant %d: secret %s: %s", one.tenant_id, shown_name(name), error)
            self._refuse(one, error.code, f"The secret {shown_name(name)} can't be decrypted.", outcome=outcome)

    def _end(self, pair: Pair, report: Report) -> None:
        with self._lock:
            known = self._started.get(pair)
        if known is None:
            log.warning("the result of attempt %s/%d came after it was given up", *pair)
            return
        self.settling.add(Settlement(known[0], self.id, report, known[1]))
        with self._lock:
            if report.outcome != "returned":
                queue = self._queue_of.get(pair, "")
                pool = pool_of_queue(queue)
                self.ended[pool] += 1
                self._pace.ended(queue)
                took_s = monotonic_s() - self._since.get(pair, monotonic_s())
                self.slot_s[pool] += took_s
                self._usual[pool].saw(took_s)
            self._drop(pair)

    def _drop(self, pair: Pair) -> None:
        """Forgets an attempt. With the lock."""
        self._started.pop(pair, None)
        self._since.pop(pair, None)
        if (queue := self._queue_of.pop(pair, None)) is not None:
            self._held_of[queue] -= 1
            if not self._held_of[queue]:
                del self._held_of[queue]


def _needs_names(definition: Definition | None) -> bool:
    return definition is not None and not definition.uses.isdisjoint(NAMED)


def _work(one: Started, definition: Definition, payload: Any, tenancy: Tenancy, names: RunNames) -> Work:
    timeout_s = _timeout_s(one, definition)
    over_at = one.started_at + timedelta(seconds=timeout_s + holding.DEADLINE_GRACE_S)
    leaves = definition.kind in ENDS_OUTSIDE and one.trigger != DELIVERY
    return Work(
        execution_id=one.execution_id, fence=one.fence, attempt=one.attempt, tenant_id=one.tenant_id,
        tenant_slug=tenancy.slug, job_id=one.job_id, kind=definition.kind, run_key=one.run_key,
        target=definition.target, payload=payload, timeout_s=timeout_s, nominal_at=one.nominal_at,
        deadline=max(one.deadline, over_at),  # the ticket's is its lease, which heartbeats extend
        network=tenancy.network, signing_secrets=(),
        traceparent=f"00-{one.execution_id.hex}-{one.fence:016x}-01", execution_kind=one.trigger,
        schedule_id=one.schedule_id, job_name=names.job_name, schedule_name=names.schedule_name, labels=names.labels,
        tenant_schema=tenancy.schema,
        completion=_completion(one) if leaves else None,
        completion_url=_completion_url(one.execution_id) if leaves else None,
    )  # fmt: skip


def _completion(one: Started) -> str | None:
    return runtoken_make(
        "completion", tenant_id=one.tenant_id, execution_id=one.execution_id, attempt=one.attempt, fence=one.fence
    )


def _completion_url(execution_id: UUID) -> str | None:
    base = settings.PUBLIC_URL
    return f"{base}/api/v1/executions/{execution_id}/complete" if base else None


def _timeout_s(one: Started, definition: Definition) -> float:
    """The attempt's own, or what is left of the run's total time-out."""
    most = float(definition.timeout_s)
    if definition.kind == "http":
        most = min(most, holding.HELD_MAX_S)  # a result that takes longer comes over the API
    if one.give_up_at is None:
        return most
    return max(TIMEOUT_LEAST_S, min(most, (one.give_up_at - one.started_at).total_seconds()))


def _set_lock_timeout(conn: Conn) -> None:
    conn.execute(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")


def _json(result: Any) -> str | None:
    """A result's JSON text; whatever an executor gave, the attempt must end."""
    if result is None:
        return None
    try:
        return orjson.dumps(result, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError, RecursionError):
        log.warning("a result can't be written as JSON", exc_info=True)
        return UNSTORABLE_RESULT


def _later(started_at: datetime) -> datetime:
    return max(started_at, utc_now())


def grace_s() -> float:
    """How long a stopping worker lets its work end, in seconds."""
    return float(settings.WORKER_GRACE_S)
