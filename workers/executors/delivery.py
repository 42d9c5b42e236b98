"""The executor of pull jobs that are delivered: each run becomes a message on the tenant's own broker.

With `finish_on` "confirm" the run has succeeded when the broker has the message, with "callback" it is held by whoever
takes the message and ends over the API. At least once: a message whose confirmation got lost is sent again. Its id is
the run key, the same over all attempts.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from uuid import UUID

from kernel.clock import utc_now
from kernel.deliveryrules import DeliveryRefused, parse_broker
from kernel.secretrules import SecretMissing, fill
from workers.executors.base import Done, Held, Key, Ledger, Outcome, Result, Work, cancelled, ended, returned
from workers.executors.bounds import NotJson, bounded_error, to_json
from workers.executors.delivery_brokers import BrokerFailed, Lines, Message

STOP_S = 15.0  # for a message that is under way


class DeliveryExecutor:
    """Runs works of the pool `queue`. See `base.Executor` for the contract of its methods."""

    def __init__(self, *, slots: int, clock: Callable[[], datetime] = utc_now) -> None:
        self.slots = slots
        self._ledger = Ledger(slots)
        self._clock = clock
        self._lines = Lines()
        self._threads = ThreadPoolExecutor(slots, "delivery")
        self._lock = threading.Lock()

    def start(self) -> None:
        """Threads start with the first works."""

    def submit(self, works: Sequence[Work], done: Done) -> None:
        entries = self._ledger.take(works, done, self._clock)
        for entry in entries:
            try:
                self._threads.submit(self._deliver, entry)
            except RuntimeError:  # stopped in between
                self._ledger.end(entry, returned(self._clock()))

    def cancel(self, execution_id: UUID, fence: int) -> bool:
        """A message that is under way can't be called back: its run is cancelled all the same."""
        entry = self._ledger.find(execution_id, fence)
        if entry is None:
            return False
        self._ledger.end(entry, cancelled(self._clock(), entry.started_at))
        return True

    def held(self) -> set[Key]:
        return self._ledger.keys()

    def free(self) -> int:
        return self._ledger.free()

    def stop(self, grace_s: float) -> None:
        self._ledger.close()
        for entry in self._ledger.entries():
            with self._lock:
                waits = entry.started_at is None
                if waits:
                    entry.end_as = "returned"
            if waits:
                self._ledger.end(entry, returned(self._clock()))
        self._ledger.wait_empty(min(grace_s, STOP_S))
        for entry in self._ledger.entries():
            self._ledger.end(entry, returned(self._clock(), entry.started_at))
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._lines.close()

    def _deliver(self, entry: Held) -> None:
        with self._lock:
            if entry.ended or entry.end_as is not None:
                return
            entry.started_at = started_at = self._clock()
        alarm = threading.Timer(entry.work.timeout_s, self._time_out, (entry, started_at))
        alarm.daemon = True
        alarm.start()
        try:
            result = self._put(entry.work, started_at)
        except (SecretMissing, DeliveryRefused, NotJson) as error:
            class_ = "secret_missing" if isinstance(error, SecretMissing) else "bad_target"
            told = bounded_error(class_, str(error) if not isinstance(error, NotJson) else "The payload is not JSON.")
            result = ended("failed", self._clock(), started_at, error=told, retryable=False)
        except BrokerFailed as failed:
            told = bounded_error(failed.class_, failed.message)
            outcome: Outcome = "timed_out" if failed.class_ == "timeout" else "failed"
            result = ended(outcome, self._clock(), started_at, error=told, retryable=failed.retryable)
        except Exception as error:  # a client library's own; its words may hold the address
            told = bounded_error("internal", f"The delivery failed: {type(error).__name__}.")
            result = ended("failed", self._clock(), started_at, error=told)
        finally:
            alarm.cancel()
        self._ledger.end(entry, result)

    def _time_out(self, entry: Held, started_at: datetime) -> None:
        """The attempt's own time-out, however long the client library waits. The message may come all the same."""
        message = f"The broker did not answer within {entry.work.timeout_s:g} s."
        error = bounded_error("timeout", message)
        self._ledger.end(entry, ended("timed_out", self._clock(), started_at, error=error))

    def _put(self, work: Work, started_at: datetime) -> Result:
        target = fill(work.target, work.secrets)
        later = target.get("finish_on") == "callback"
        if later and not work.completion:
            raise DeliveryRefused("", "no_token", "This installation makes no tokens for results that come later.")
        broker = parse_broker(target.get("url"), work.network)
        message = Message(work.run_key, to_json(work.payload), _headers(work, target.get("headers") or {}, later=later))
        where = self._lines.get(broker, work.network).put(target, message)
        holder = str(where.get("stream") or where.get("routing_key") or where.get("exchange") or "")
        if later:
            return Result("accepted", None, None, True, None, False, started_at, self._clock(), holder=holder)
        return Result("succeeded", where, None, True, None, False, started_at, self._clock())


def _headers(work: Work, own: dict[str, str], *, later: bool) -> dict[str, str]:
    headers = {
        **own,
        "shardbeat-run-key": work.run_key,
        "shardbeat-execution": str(work.execution_id),
        "shardbeat-attempt": str(work.attempt),
    }
    if work.nominal_at is not None:
        headers["shardbeat-nominal-time"] = work.nominal_at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if work.traceparent:
        headers["traceparent"] = work.traceparent
    if later and work.completion:
        headers["shardbeat-completion"] = work.completion
        if work.completion_url:
            headers["shardbeat-completion-url"] = work.completion_url
    return headers
