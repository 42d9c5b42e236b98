"""Guessing passwords is slowed: attempts are counted before a password is looked at, so that none slips past.

Three counters, over all web processes:

- of an address (an IPv6 one's network), over all accounts and tenants: against trying many accounts;
- of an account from networks where it was never signed in, over all of them: against many addresses that try one;
- of an account from one network where it has been signed in lately: so that somebody who fills the second counter
  does not lock its owner out.

An account is an e-mail as it was typed, whether or not it exists, so a refusal tells nothing. Where the broker does not
answer each process counts for itself: the guard is weaker then and never open.
"""

import hashlib
import threading

from django.conf import settings

from kernel.clientaddress import counted_as
from tenants.rates import RateLimited, Rates, Standing, rates

WINDOW_MIN = 15
DAY_MIN = 24 * 60
DAY_FACTOR = 5  # an account from unknown networks: so many times the short limit in a day
ADDRESS_FACTOR = 5  # an address: so many times the limit of one account
KNOWN_S = 30 * 86_400
HASHES_AT_ONCE = 2  # in one process: a flood of logins leaves time for everything else
HASH_WAIT_S = 5.0
WHAT = "attempts to sign in"

_own = Rates("memory://")
hashing = threading.BoundedSemaphore(HASHES_AT_ONCE)


def attempt(*, tenant_id: int, account: str, address: str) -> None:
    """Counts an attempt before its password is looked at. RateLimited: it must not be looked at."""
    limit = settings.FAILED_LOGINS
    if not limit:
        return
    network, who = counted_as(address), _account(tenant_id, account)
    _take("login-address", limit * ADDRESS_FACTOR, network)
    if rates().knows(_known(who, network)):
        _take("login", limit, who, network)
        return
    _take("login-unknown", limit, who)
    _take("login-day", limit * DAY_FACTOR, who, minutes=DAY_MIN)


def succeeded(*, tenant_id: int, account: str, address: str) -> None:
    """The attempt was the owner's: the network is known from now on, and begins anew."""
    limit = settings.FAILED_LOGINS
    if not limit:
        return
    network, who = counted_as(address), _account(tenant_id, account)
    rates().remember(_known(who, network), seconds=KNOWN_S)
    for counter in (rates(), _own):
        counter.forget("login", limit, who, network, minutes=WINDOW_MIN)


def token_tried(*, address: str) -> None:
    """Counts a look at an invitation. RateLimited: tokens can't be guessed, but looking is not free."""
    if settings.FAILED_LOGINS:
        _take("invitation-address", settings.FAILED_LOGINS * ADDRESS_FACTOR, counted_as(address))


def provider_asked(*, address: str) -> None:
    """Counts a step of a login with an identity provider, each of which asks that provider. RateLimited."""
    if settings.FAILED_LOGINS:
        _take("provider-address", settings.FAILED_LOGINS * ADDRESS_FACTOR, counted_as(address))


def forget_all() -> None:
    """Forgets what this process counted of its own; for tests."""
    _own.forget_all()


def _take(policy: str, limit: int, *who: str, minutes: int = WINDOW_MIN) -> Standing:
    standing = rates().take(policy, limit, *who, minutes=minutes) or _own.take(policy, limit, *who, minutes=minutes)
    assert standing is not None  # this process's own counters always answer
    if not standing.allowed:
        raise RateLimited(standing, WHAT)
    return standing


def _account(tenant_id: int, account: str) -> str:
    """Not the text itself: people type passwords into the wrong field."""
    return hashlib.sha256(f"{tenant_id} {account}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _known(who: str, network: str) -> str:
    return f"login-known:{hashlib.sha256(f'{who} {network}'.encode()).hexdigest()}"
