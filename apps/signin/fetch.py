"""Asking an identity provider: an address that tenants choose, so every connection is held against the address rules.

The name is resolved here and the connection made to the very address that was looked at. No redirects, no proxies, a
bound for the whole exchange and for the answer.
"""

import http.client
import socket
import ssl
import threading
from collections.abc import Iterable, Mapping
from functools import cache
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlencode, urlsplit

import orjson

from kernel.addressrules import is_allowed, parse_host_address
from kernel.errors import ShardbeatError

TIMEOUT_S = 5.0  # of one connect or read
WHOLE_S = 10.0
MAX_BYTES = 512 * 1024
MAX_URL_CHARS = 2_000


class ProviderUnusable(ShardbeatError):
    """The identity provider can't be reached, may not be, or answers what it should not. The detail is for admins."""

    code = "identity_provider_unusable"
    status = 502


def fetch_json(
    url: str,
    *,
    network: tuple[str, ...],
    form: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Any:
    """The JSON object at a URL (GET), or what it answers to a form (POST). ProviderUnusable."""
    check_url(url, network=network)
    parts = urlsplit(url)
    host, secure = str(parts.hostname), parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    connection = _Connection(host, port, secure=secure, network=network)
    watchdog = threading.Timer(WHOLE_S, connection.abort)
    watchdog.daemon = True
    watchdog.start()
    body = None if form is None else urlencode(form).encode()
    sent = {"Accept": "application/json", "User-Agent": "Shardbeat", "Connection": "close", **(headers or {})}
    if body is not None:
        sent["Content-Type"] = "application/x-www-form-urlencoded"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request("GET" if form is None else "POST", target, body=body, headers=sent)
        answer = connection.getresponse()
        raw = answer.read(MAX_BYTES + 1)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ProviderUnusable(f"{_shown(url)} can't be reached: {type(error).__name__}.") from error
    finally:
        watchdog.cancel()
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise ProviderUnusable(f"{_shown(url)} answers {answer.status}.", answered=answer.status)
    if len(raw) > MAX_BYTES:
        raise ProviderUnusable(f"{_shown(url)} answers more than {MAX_BYTES:,} bytes.")
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise ProviderUnusable(f"{_shown(url)} does not answer a JSON object.")
    return found


def check_url(url: Any, *, network: tuple[str, ...]) -> str:
    """The URL, when it may be one of a provider: https, or http to an address that the operator allows the tenant."""
    if not isinstance(url, str):
        raise ProviderUnusable("An address of the identity provider is missing.")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ProviderUnusable("An address of the identity provider is no URL.") from None
    plain = len(url) <= MAX_URL_CHARS and url.isascii() and url.isprintable() and " " not in url and "\\" not in url
    if not plain or not host or parts.username is not None or parts.password is not None or parts.fragment:
        raise ProviderUnusable("An address of the identity provider is no plain URL.")
    if parts.scheme == "https":
        return url
    if parts.scheme == "http" and _is_own_loopback(host, port or 80, network):
        return url
    raise ProviderUnusable("Addresses of the identity provider are https.")


def _is_own_loopback(host: str, port: int, network: tuple[str, ...]) -> bool:
    """Whether a host is a loopback address that the operator has opened to the tenant: a provider beside us."""
    try:
        address = parse_host_address(host)
    except ValueError:
        return False
    return address is not None and address.is_loopback and is_allowed(address, port, network)


class _Connection(http.client.HTTPConnection):
    """To an address that the rules allow, and no other."""

    def __init__(self, host: str, port: int, *, secure: bool, network: tuple[str, ...]) -> None:
        super().__init__(host, port, timeout=TIMEOUT_S)
        self._secure, self._network = secure, network

    def connect(self) -> None:
        self.sock = _dial(self.host, self.port, self._network)
        if self._secure:
            self.sock = _tls().wrap_socket(self.sock, server_hostname=self.host)

    def abort(self) -> None:
        """Ends whatever waits for this connection."""
        sock = self.sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return


def _dial(host: str, port: int, network: tuple[str, ...]) -> socket.socket:
    last: OSError = ConnectionRefusedError("no address is allowed")
    for family, address in _resolved(host, port):
        if not is_allowed(ip_address(address), port, network):
            continue
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.settimeout(TIMEOUT_S)
        try:
            sock.connect((address, port))
            return sock
        except OSError as error:
            sock.close()
            last = error
    raise last


def _resolved(host: str, port: int) -> Iterable[tuple[int, str]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return dict.fromkeys((family, str(place[0]).partition("%")[0]) for family, _, _, _, place in found)


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _shown(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"[:200]
