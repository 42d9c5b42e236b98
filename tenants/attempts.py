"""Requests without a valid key are counted by the address that they come from, so that keys can't be guessed fast.

Once an address has had its share, what it sends is refused without a look at the key: a guess gets no further, right
or wrong. A key that has worked from that address within KNOWN_S still does, so that whoever shares an address with
somebody who guesses goes on working.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from kernel.clientaddress import counted_as
from kernel.clock import monotonic_s
from tenants.rates import RateLimited, Rates, Standing

T = TypeVar("T")
POLICY = "failed-authentication"
WHAT = "requests without a valid key from one address"
KNOWN_S = 3_600
TELL_AGAIN_S = 600.0  # a key in use is noted anew after so long
MOST = 10_000  # addresses and keys that one process remembers of its own


class Attempts:
    """The failed attempts of all addresses. `limit` is so many in rates.WINDOW_S."""

    def __init__(self, rates: Rates, *, clock: Callable[[], float] = monotonic_s) -> None:
        self._rates = rates
        self._clock = clock
        self._lock = threading.Lock()
        self._refused: OrderedDict[str, tuple[float, Standing]] = OrderedDict()
        self._told: OrderedDict[str, float] = OrderedDict()

    def check(self, *, address: str, key: str, limit: int) -> None:
        """Before a key is looked up. RateLimited when the address had its share and the key is not known from there."""
        network = counted_as(address)
        until, standing = self._refused.get(network, (0.0, None))
        left_s = until - self._clock()
        if standing is None or standing.limit != limit or left_s <= 0:
            return
        if key and self._rates.knows(_name(network, key)):
            return
        left = Standing(POLICY, limit, 0, int(left_s) + 1, allowed=False)
        raise RateLimited(left, WHAT)

    def failed(self, *, address: str, limit: int) -> Standing | None:
        """Counts a failed attempt and says where the address stands, None when nobody counts. RateLimited."""
        network = counted_as(address)
        standing = self._rates.take(POLICY, limit, network)
        if standing is None or standing.allowed:
            return standing
        self._keep(self._refused, network, (self._clock() + standing.reset_s, standing))
        raise RateLimited(standing, WHAT)

    def succeeded(self, *, address: str, key: str) -> None:
        """Notes that a key works from an address; rarely asks the server for it."""
        name, now = _name(counted_as(address), key), self._clock()
        if self._told.get(name, float("-inf")) + TELL_AGAIN_S <= now:
            self._keep(self._told, name, now)
            self._rates.remember(name, seconds=KNOWN_S)

    def _keep(self, place: OrderedDict[str, T], name: str, value: T) -> None:
        with self._lock:
            place[name] = value
            place.move_to_end(name)
            if len(place) > MOST:
                place.popitem(last=False)


def _name(network: str, key: str) -> str:
    """A key and where it comes from; the key itself is not in it."""
    return "known:" + hashlib.sha256(f"{network} {key}".encode("utf-8", "surrogatepass")).hexdigest()
