"""How many requests a minute, over all web processes: counted by the `limits` library on the broker's server.

A sliding window counter: the former minute counts for the share of it that is not over yet. Where the broker is neither
Redis nor Valkey, each process counts for itself. A broker that does not answer lets requests pass: it may hold up one
of them for TIMEOUT_S, then nobody asks it for PAUSE_S.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from math import floor
from typing import Any

import redis
from django.conf import settings
from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage, RedisStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from redis.backoff import NoBackoff
from redis.retry import Retry

from kernel.clock import monotonic_s
from kernel.errors import ShardbeatError

log = logging.getLogger(__name__)
WINDOW_S = 60
TIMEOUT_S = 0.25
PAUSE_S = 2.0
LOG_EVERY_S = 60.0
PREFIX = "shardbeat-rate"
SCHEMES = ("redis://", "rediss://", "unix://")


@dataclass(frozen=True, slots=True)
class Standing:
    """Where somebody stands after a request was counted, or was not because the limit is reached."""

    policy: str
    limit: int  # requests in window_s
    remaining: int
    reset_s: int  # until there is more room
    allowed: bool = True
    window_s: int = WINDOW_S

    def headers(self) -> dict[str, str]:
        """As draft-ietf-httpapi-ratelimit-headers-10 writes them."""
        return {
            "RateLimit-Policy": f'"{self.policy}";q={self.limit};w={self.window_s}',
            "RateLimit": f'"{self.policy}";r={self.remaining};t={self.reset_s}',
        }


class RateLimited(ShardbeatError):
    """Too many requests a minute. `extra` holds policy, limit, use, window_s and retry_after_s."""

    code = "rate_limited"
    status = 429

    def __init__(self, standing: Standing, what: str) -> None:
        super().__init__(
            f"At most {standing.limit} {what} in {standing.window_s} s; come again in {standing.reset_s} s.",
            policy=standing.policy, limit=standing.limit, use=standing.limit - standing.remaining,
            window_s=standing.window_s, retry_after_s=standing.reset_s,
        )  # fmt: skip
        self.standing = standing


class Rates:
    """Counters on one broker's server, or of this process."""

    def __init__(self, broker_url: str, *, clock: Callable[[], float] = monotonic_s) -> None:
        self._clock = clock
        self._shared = broker_url.startswith(SCHEMES)
        self._storage: Any = _on_server(broker_url) if self._shared else MemoryStorage()
        self._window = SlidingWindowCounterRateLimiter(self._storage)
        self._lock = threading.Lock()  # the library's own counters in memory let a race refuse too many
        self._asleep_until = self._quiet_until = float("-inf")

    def take(self, policy: str, limit: int, *who: str | int, minutes: int = 1) -> Standing | None:
        """Counts one request of `who`, if there is room. None when nobody counts."""
        item = RateLimitItemPerMinute(limit, minutes, namespace=policy)
        names = [str(one) for one in who]
        standing: Standing | None = self._ask(lambda: self._take(item, policy, names))
        return standing

    def forget(self, policy: str, limit: int, *who: str | int, minutes: int = 1) -> None:
        """Forgets what was counted of `who` with the same limit."""
        item = RateLimitItemPerMinute(limit, minutes, namespace=policy)
        self._ask(lambda: self._window.clear(item, *[str(one) for one in who]))

    def remember(self, name: str, *, seconds: int) -> None:
        """Keeps a name for so long."""

        def renew() -> None:
            self._storage.clear(name)
            self._storage.incr(name, seconds)

        self._ask(renew)

    def knows(self, name: str) -> bool:
        """Whether a name is kept. True when nobody can say: nobody is refused for that."""
        found = self._ask(lambda: self._storage.get(name) > 0)
        return True if found is None else bool(found)

    def forget_all(self) -> None:
        """Forgets everything that was counted on this server."""
        self._storage.reset()

    def _take(self, item: RateLimitItemPerMinute, policy: str, names: list[str]) -> Standing:
        allowed = self._window.hit(item, *names)
        window_s = item.get_expiry()
        # Not the library's own figures: they say "now" in the first moment of a window.
        former, former_s, current, current_s = self._storage.get_sliding_window(item.key_for(*names), window_s)
        room = max(0, item.amount - floor(former * former_s / window_s) - current)
        until_next_s = current_s - window_s  # a window is kept for one more, in which it is the former one
        if former:
            step_s = window_s / former  # so often one of the former window's stops counting
            until_next_s = min(until_next_s, former_s % step_s or step_s)
        left = room if allowed else 0
        return Standing(policy, item.amount, left, max(1, floor(until_next_s) + 1), allowed, window_s)

    def _ask(self, question: Callable[[], Any]) -> Any:
        if not self._shared:
            with self._lock:
                return question()
        if self._clock() < self._asleep_until:
            return None
        try:
            return question()
        except (redis.RedisError, OSError) as error:
            self._rest(error)
            return None

    def _rest(self, error: Exception) -> None:
        now = self._clock()
        self._asleep_until = now + PAUSE_S
        self._storage.storage.connection_pool.disconnect(inuse_connections=False)  # they lead to a server that is gone
        with self._lock:
            tell = now >= self._quiet_until
            if tell:
                self._quiet_until = now + LOG_EVERY_S
        if tell:
            log.warning("requests are not counted, all pass: the broker does not answer: %s", error)


_made: dict[str, Rates] = {}
_making = threading.Lock()


def rates() -> Rates:
    """This process's counters on the broker of the settings."""
    url = settings.BROKER_URL
    found = _made.get(url)
    if found is None:
        with _making:
            found = _made.setdefault(url, Rates(url))
    return found


def _on_server(url: str) -> RedisStorage:
    options: dict[str, Any] = {
        "socket_timeout": TIMEOUT_S,
        "socket_connect_timeout": TIMEOUT_S,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),
    }
    return RedisStorage(url.replace("unix://", "redis+unix://", 1), key_prefix=PREFIX, **options)
