"""OAuth 2.0 client credentials (RFC 6749, 4.4): a token for calls, fetched, kept and renewed before it runs out.

The token endpoint is called like a target: over checked addresses, within the call's deadline, with a bounded answer.
Its answers are not shown, since they may repeat what was sent.
"""

import asyncio
import base64
import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus, urlencode

import aiohttp
import orjson
from yarl import URL

from kernel.clock import monotonic_s
from kernel.httprules import TargetRefused, check_url
from workers.executors.http_body import read_body

TOKENS_MOST = 1_024
LIFE_UNKNOWN_S = 300.0  # of a token whose answer does not say
LIFE_MAX_S = 86_400.0
EARLY_S = 30.0  # before its end a token is renewed, or after three quarters of a short life
RETRY_STATUS = frozenset({408, 425, 429})
# RFC 6749, 5.2. Anything else that an endpoint writes is not repeated.
ERRORS = frozenset(
    {"invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type"}
    | {"invalid_scope", "invalid_target", "temporarily_unavailable", "server_error"}
)
_TOKEN = re.compile(r"[\x21-\x7e]{1,16384}")


class TokenFailed(Exception):
    """No token came. `retryable` and `retry_after_s` as in Result."""

    def __init__(self, message: str, *, retryable: bool, response: aiohttp.ClientResponse | None = None) -> None:
        super().__init__(message)
        self.message, self.retryable, self.response = message, retryable, response


@dataclass(frozen=True, slots=True)
class Token:
    """An access token; times are monotonic seconds."""

    text: str
    renew_at: float
    ends_at: float

    def __repr__(self) -> str:
        return "Token(...)"


class Tokens:
    """Tokens by tenant and everything that was asked for; in the loop's thread only."""

    def __init__(self, clock: Callable[[], float] = monotonic_s) -> None:
        self._clock = clock
        self._tokens: OrderedDict[bytes, Token] = OrderedDict()
        self._fetching: dict[bytes, asyncio.Lock] = {}

    async def get(
        self, config: Mapping[str, Any], *, tenant_id: int, network: tuple[str, ...], session: aiohttp.ClientSession,
        instead_of: str = "",
    ) -> tuple[str, bool]:  # fmt: skip
        """A token, and whether it was fetched just now. `instead_of` is one that the target has refused.

        While one call fetches, the others of that configuration wait for it. TokenFailed, TargetRefused; what can
        happen to a connection.
        """
        key = _key(config, tenant_id, network)
        known = self._tokens.get(key)
        if known is not None and known.text != instead_of and self._clock() < known.renew_at:
            self._tokens.move_to_end(key)
            return known.text, False
        lock = self._fetching.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                known = self._tokens.get(key)
                if known is not None and known.text != instead_of and self._clock() < known.renew_at:
                    return known.text, False  # somebody else fetched it meanwhile
                return await self._renewed(key, config, network, session, known, instead_of), True
        finally:
            if not lock.locked():
                self._fetching.pop(key, None)

    def __len__(self) -> int:
        return len(self._tokens)

    async def _renewed(
        self, key: bytes, config: Mapping[str, Any], network: tuple[str, ...], session: aiohttp.ClientSession,
        known: Token | None, instead_of: str,
    ) -> str:  # fmt: skip
        try:
            token = await self._fetch(config, network, session)
        except (TokenFailed, aiohttp.ClientError, OSError):
            if known is not None and known.text != instead_of and self._clock() < known.ends_at:
                return known.text  # it is good for some seconds yet, and the next call tries again
            raise
        self._tokens.pop(key, None)
        self._tokens[key] = token
        while len(self._tokens) > TOKENS_MOST:
            self._tokens.popitem(last=False)
        return token.text

    async def _fetch(
        self, config: Mapping[str, Any], network: tuple[str, ...], session: aiohttp.ClientSession
    ) -> Token:  # fmt: skip
        try:
            url = check_url(config.get("token_url"), network)
        except TargetRefused as refused:
            raise TargetRefused("/auth/token_url", refused.code, refused.detail) from None
        form, headers = _request(config)
        asked_at = self._clock()
        response = await session.post(
            URL(str(url), encoded=True), data=urlencode(form).encode(), headers=headers, allow_redirects=False
        )
        body = await read_body(response)
        if response.status != 200:
            raise _refusal(response, body.data)
        try:
            return _read(orjson.loads(body.data), asked_at)
        except (ValueError, TypeError, LookupError, AttributeError):
            raise TokenFailed("The token endpoint's answer holds no usable token.", retryable=True) from None


def _key(config: Mapping[str, Any], tenant_id: int, network: tuple[str, ...]) -> bytes:
    """A digest, so that no secret is kept by being part of a name."""
    text = orjson.dumps([tenant_id, list(network), dict(config)], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(text).digest()


def _request(config: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Form and headers of a request for a token."""
    client_id, client_secret = str(config.get("client_id", "")), str(config.get("client_secret", ""))
    form = {"grant_type": "client_credentials"}
    form |= {name: str(config[name]) for name in ("scope", "audience") if config.get(name)}
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
        "Accept-Encoding": "gzip, deflate",
        "User-Agent": "Shardbeat/1",
    }
    if config.get("auth_style", "header") == "body":
        form |= {"client_id": client_id, "client_secret": client_secret}
    else:  # RFC 6749, 2.3.1: both are form-encoded before they are joined
        pair = f"{quote_plus(client_id)}:{quote_plus(client_secret)}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
    return form, headers


def _read(answer: Any, asked_at: float) -> Token:
    """The token of a good answer. ValueError and the like for any other."""
    text, kind = answer["access_token"], answer.get("token_type") or "bearer"
    if not isinstance(text, str) or not _TOKEN.fullmatch(text) or str(kind).lower() != "bearer":
        raise ValueError("no bearer token")
    given = answer.get("expires_in")
    life_s = min(max(float(given), 0.0), LIFE_MAX_S) if given is not None else LIFE_UNKNOWN_S
    early_s = min(EARLY_S, life_s / 4)
    return Token(text, renew_at=asked_at + life_s - early_s, ends_at=asked_at + life_s)


def _refusal(response: aiohttp.ClientResponse, data: bytes) -> TokenFailed:
    status = response.status
    try:
        error = str(orjson.loads(data).get("error", ""))
    except (ValueError, AttributeError):
        error = ""
    named = f" ({error})" if error in ERRORS else ""
    retryable = status >= 500 or status in RETRY_STATUS
    return TokenFailed(f"The token endpoint answered {status}{named}.", retryable=retryable, response=response)
