"""What the target of a run that is put on a tenant's own broker may look like. Pure.

    {"delivery": "queue", "url": "amqps://user@mq.example.com/prod" or {"secret": "BROKER"},
     "exchange": "jobs", "routing_key": "invoices"}          amqp, amqps: an exchange, or a queue by its name
    {"delivery": "queue", "url": {"secret": "STREAMS"}, "stream": "jobs", "max_length": 100000}    redis, rediss

`finish_on` says when the run has succeeded: on the broker's word that it has the message ("confirm"), or when whoever
takes it says so over the API ("callback").
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from kernel.addressrules import Address, is_allowed, is_port_possible, parse_host_address
from kernel.errors import FieldError

AMQP_PORTS = {"amqp": 5672, "amqps": 5671}
REDIS_PORTS = {"redis": 6379, "rediss": 6379}
SCHEMES = {**AMQP_PORTS, **REDIS_PORTS}
BROKER_RULES = tuple(f"* {port}" for port in sorted(set(SCHEMES.values())))
FIELDS = {
    "amqp": ("exchange", "routing_key", "queue"),
    "redis": ("stream", "max_length"),
}
STREAM_FIELDS = ("id", "body")
COMMON = ("delivery", "url", "finish_on", "headers")
FINISH_ON = ("confirm", "callback")
MAX_URL_CHARS = 2_048
MAX_NAME_BYTES = 255
MAX_HEADERS = 20
MAX_HEADER_CHARS = 1_000
MAX_LENGTH = 100_000_000
_BLANK_OR_CONTROL = re.compile("[\x00-\x20\x7f\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
LOOPBACK = (parse_host_address("127.0.0.1"), parse_host_address("::1"))


class DeliveryRefused(ValueError):
    """The target breaks a rule; `part` is where."""

    def __init__(self, part: str, code: str, detail: str) -> None:
        super().__init__(detail)
        self.part, self.code, self.detail = part, code, detail


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker's address in its parts. `repr` must not be logged: it holds the password."""

    transport: Literal["amqp", "redis"]
    tls: bool
    host: str
    port: int
    address: Address | None
    user: str | None
    password: str | None
    path: str  # virtual host, or number of the database


def validate_delivery(target: Mapping[str, Any], network: Iterable[str], *, base: str = "") -> list[FieldError]:
    """All faults of a target as it is saved; a URL that is a secret is judged when it is used."""
    faults: list[FieldError] = []

    def add(part: str, code: str, detail: str) -> None:
        faults.append(FieldError(base + part, code, detail))

    url, transport = target.get("url"), None
    if isinstance(url, Mapping):
        if set(url) != {"secret"} or not isinstance(url["secret"], str) or not url["secret"]:
            add("/url", "invalid", 'A URL is a text or {"secret": "NAME"}.')
    else:
        try:
            transport = parse_broker(url, tuple(network)).transport
            if urlsplit(str(url)).password:
                add("/url", "password_in_url", 'Keep the password in a secret: "url": {"secret": "NAME"}.')
        except DeliveryRefused as refused:
            add(refused.part, refused.code, refused.detail)
    if transport is None:
        transport = "redis" if "stream" in target else "amqp"
    known = (*COMMON, *FIELDS[transport])
    for name in [name for name in target if name not in known][:20]:
        add(_pointer("", name), "unknown_field", f"There is no such field for {transport}. Known: {', '.join(known)}.")
    if target.get("finish_on", "confirm") not in FINISH_ON:
        add("/finish_on", "choice", f"must be one of {', '.join(FINISH_ON)}.")
    names = [name for name in ("exchange", "routing_key", "queue", "stream") if target.get(name) is not None]
    for name in names:
        if not _is_name(target[name]):
            add(f"/{name}", "invalid", f"must be one line of 1 to {MAX_NAME_BYTES} bytes.")
    if transport == "redis" and "stream" not in names:
        add("/stream", "required", "This field is required: the stream that gets the messages.")
    if transport == "amqp" and ("queue" in names) == ("exchange" in names):
        add("/queue", "required", "Name either a queue, or an exchange with a routing_key.")
    length = target.get("max_length")
    if length is not None and (
        isinstance(length, bool) or not isinstance(length, int) or not 1 <= length <= MAX_LENGTH
    ):
        add("/max_length", "range", f"must be a whole number from 1 to {MAX_LENGTH:,}.")
    headers = target.get("headers")
    if headers is not None and not _are_headers(headers):
        add(
            "/headers",
            "invalid",
            f"must be an object of at most {MAX_HEADERS} texts; names don't begin with shardbeat-.",
        )
    elif transport == "redis":
        for name in [name for name in STREAM_FIELDS if headers and name in headers]:
            detail = f"Entries of a stream have {name} from us."
            add(_pointer("/headers", name), "reserved", detail)
    return faults


def parse_broker(url: Any, network: tuple[str, ...]) -> Broker:
    """The one reading of a broker's URL that is checked and used. Raises DeliveryRefused; says nothing of the URL."""
    if not isinstance(url, str) or not url:
        raise DeliveryRefused("/url", "required", "This field is required: the broker's URL.")
    if len(url) > MAX_URL_CHARS or _BLANK_OR_CONTROL.search(url) or "\\" in url:
        raise DeliveryRefused("/url", "invalid", "This is not a URL.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise DeliveryRefused("/url", "invalid", "This is not a URL.") from None
    if parts.scheme not in SCHEMES:
        detail = f"A broker's URL begins with one of {', '.join(f'{name}://' for name in SCHEMES)}."
        raise DeliveryRefused("/url", "scheme_not_allowed", detail)
    if parts.query or parts.fragment:
        raise DeliveryRefused("/url", "invalid", "A broker's URL has no query.")
    host = (parts.hostname or "").removesuffix(".")
    try:
        address = parse_host_address(host)
    except ValueError:
        raise DeliveryRefused("/url", "invalid_host", "The URL has no valid host.") from None
    if address is None and (len(host) > 253 or not all(map(_LABEL.fullmatch, host.split(".")))):
        raise DeliveryRefused("/url", "invalid_host", "The URL has no valid host.")
    if not _reachable(host, address, port or SCHEMES[parts.scheme], network):
        raise DeliveryRefused("/url", "address_not_public", "The URL must lead to a public address.")
    path = unquote(parts.path.removeprefix("/"))
    transport: Literal["amqp", "redis"] = "amqp" if parts.scheme in AMQP_PORTS else "redis"
    if transport == "redis" and path and not path.isdecimal():
        raise DeliveryRefused("/url", "invalid", "The path of a Redis URL is the number of a database.")
    return Broker(
        transport=transport,
        tls=parts.scheme in ("amqps", "rediss"),
        host=str(address) if address is not None else host,
        port=port or SCHEMES[parts.scheme],
        address=address,
        user=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        path=path or ("/" if transport == "amqp" else "0"),
    )


def may_reach(address: Address, port: int, network: tuple[str, ...]) -> bool:
    """Whether a broker may be at this address and port: the rules of HTTP calls, and the brokers' own ports."""
    return is_allowed(address, port, (*network, *BROKER_RULES))


def _reachable(host: str, address: Address | None, port: int, network: tuple[str, ...]) -> bool:
    """What can be said without a resolver."""
    if address is not None:
        return may_reach(address, port, network)
    if host == "localhost" or host.endswith(".localhost"):
        return any(one and may_reach(one, port, network) for one in LOOPBACK)
    return is_port_possible(port, (*network, *BROKER_RULES))


def _is_name(value: Any) -> bool:
    return (
        isinstance(value, str)
        and 0 < len(value.encode(errors="replace")) <= MAX_NAME_BYTES
        and not _CONTROL.search(value)
    )


def _are_headers(headers: Any) -> bool:
    return (
        isinstance(headers, Mapping)
        and len(headers) <= MAX_HEADERS
        and all(
            _is_name(name)
            and not name.lower().startswith("shardbeat-")
            and isinstance(value, str)
            and len(value) <= MAX_HEADER_CHARS
            and not _CONTROL.search(value)
            for name, value in headers.items()
        )
    )


def _pointer(parent: str, name: Any) -> str:
    return f"{parent}/{str(name)[:80].replace('~', '~0').replace('/', '~1')}"
