"""What a tenant's HTTP target may look like: URL, method, headers, body. Pure; asks no resolver and no network.

The API checks with `validate_target` on save, the HTTP executor parses with `parse_target` before each call, and both
read a URL with `parse_url`: the parts it returns are what is checked and what is used. A name is judged again, by its
addresses, when the connection is made.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, urlsplit

import idna

from kernel.addressrules import Address, is_allowed, parse_host_address
from kernel.errors import FieldError
from kernel.secretrules import is_reference, reference_faults, with_stand_ins

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
DEFAULT_METHOD = "POST"
TARGET_FIELDS = frozenset({"url", "method", "headers", "body", "success_status"})
MAX_URL_CHARS = 4_096
MAX_HEADERS = 50
MAX_HEADER_BYTES = 8_192  # one name with its value; all of them may have four times that
MAX_ALL_HEADERS_BYTES = 32_768

MIN_FREE_PORT = 1_024
LOW_PORTS = frozenset({80, 443})
# Ports above 1023 whose servers speak something else and act on what they are sent, or steer machines.
DENIED_PORTS = frozenset(
    {1433, 1521, 1719, 1720, 1723, 2049, 2375, 2376, 2379, 2380, 2525, 3306, 3389, 3659, 4045, 4190, 5060, 5061, 5432}
    | {5672, 5900, 6000, 6379, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 9042, 9092, 10080, 10250, 10255, 11211}
    | {27017}
)

# Framing belongs to the client, and what tells a receiver about the run is ours (design section 8).
RESERVED_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "expect"}
    | {"http2-settings", "idempotency-key", "traceparent", "tracestate"}
)
RESERVED_HEADER_PREFIXES = ("proxy-", "shardbeat-", "webhook-")

LOOPBACK = (parse_host_address("127.0.0.1"), parse_host_address("::1"))

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NETLOC = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:@]+)(?::(?P<port>[0-9]{0,5}))?")
_BLANK_OR_CONTROL = re.compile("[\x00-\x20\x7f\ud800-\udfff]")  # and halves of characters
# All that is printable ASCII stays as it was written, so that signed URLs keep their signature.
_QUOTE_SAFE = "".join(map(chr, range(0x21, 0x7F)))


class TargetRefused(ValueError):
    """The target breaks a rule. `code` is stable, `detail` is a sentence for its owner, `part` is where."""

    def __init__(self, part: str, code: str, detail: str) -> None:
        super().__init__(detail)
        self.part, self.code, self.detail = part, code, detail


@dataclass(frozen=True, slots=True)
class Url:
    """A checked URL. `host` is lower-case ASCII without a trailing dot; `address` is set when it is no name."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    path: str  # with the query, percent-encoded, as it goes on the wire
    address: Address | None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def validate_target(target: Any, network: Iterable[str] = (), *, base: str = "") -> list[FieldError]:
    """All faults of an HTTP job's target; none means that it may be saved.

    `network` is the tenant's allow-list of CIDRs. `base` is the JSON pointer of the target in the request body. Where
    secrets are named, what is known of the text around them is judged here, and the whole before each call.
    """
    if not isinstance(target, Mapping):
        return [FieldError(base, "invalid", "The target of an HTTP job is an object with at least a url.")]
    named = _reference_faults(target)
    if named:
        return [FieldError(base + fault.pointer, fault.code, fault.detail) for fault in named]
    whole_url_is_secret = is_reference(target.get("url")) and not target["url"].get("prefix")
    target = with_stand_ins(target)
    faults = [] if whole_url_is_secret else [_refusal_of(check_url, target.get("url"), tuple(network))]
    faults.append(_refusal_of(check_method, _method_of(target)))
    faults += header_faults(target.get("headers"))
    faults.append(_refusal_of(check_success_status, target.get("success_status")))
    for name in target.keys() - TARGET_FIELDS:
        known = ", ".join(sorted(TARGET_FIELDS))
        faults.append(TargetRefused(_pointer("", name), "unknown_field", f"There is no such field. Known: {known}."))
    return [FieldError(base + fault.part, fault.code, fault.detail) for fault in faults if fault]


def check_target(target: Mapping[str, Any], network: tuple[str, ...]) -> Url:
    """The URL to call, with everything else of the target checked too. Raises TargetRefused at the first fault."""
    url = check_url(target.get("url"), network)
    check_method(_method_of(target))
    check_success_status(target.get("success_status"))
    for fault in header_faults(target.get("headers")):
        raise fault
    return url


def check_url(text: Any, network: tuple[str, ...]) -> Url:
    """Parse a URL and judge what can be judged without a resolver. Raises TargetRefused."""
    url = parse_url(text)
    if url.address is not None:
        reachable = is_allowed(url.address, network)
    else:
        # RFC 6761 ties these names to loopback, whatever a resolver says.
        local = url.host == "localhost" or url.host.endswith(".localhost")
        reachable = not local or any(address and is_allowed(address, network) for address in LOOPBACK)
    if not reachable:
        raise TargetRefused("/url", "address_not_public", "The URL must lead to a public address.")
    return url


def parse_url(text: Any) -> Url:
    """The one reading of a URL that is checked and used. Raises TargetRefused."""
    if not isinstance(text, str) or not text:
        raise TargetRefused("/url", "required", "An HTTP job needs a URL.")
    if len(text) > MAX_URL_CHARS:
        raise TargetRefused("/url", "too_long", f"A URL may have {MAX_URL_CHARS:,} characters.")
    if _BLANK_OR_CONTROL.search(text) or "\\" in text:
        raise TargetRefused("/url", "invalid", "A URL has no blanks, control characters or backslashes.")
    try:
        parts = urlsplit(text)
    except ValueError:
        raise TargetRefused("/url", "invalid", "This is not a URL.") from None
    if parts.scheme not in ("http", "https"):
        raise TargetRefused("/url", "scheme_not_allowed", "A URL starts with http:// or https://.")
    if "@" in parts.netloc:
        raise TargetRefused("/url", "user_in_url", "A URL must hold no user name or password; use a header.")
    matched = _NETLOC.fullmatch(parts.netloc)
    if not matched:
        raise TargetRefused("/url", "invalid_host", "The URL has no valid host and port.")
    host, address = _read_host(matched["host"])
    port = int(matched["port"] or (443 if parts.scheme == "https" else 80))
    if not is_port_allowed(port):
        raise TargetRefused("/url", "port_not_allowed", f"Port {port} may not be called.")
    path = quote(parts.path or "/", safe=_QUOTE_SAFE)
    if parts.query:
        path += "?" + quote(parts.query, safe=_QUOTE_SAFE)
    return Url("https" if parts.scheme == "https" else "http", host, port, path, address)


def is_port_allowed(port: int) -> bool:
    """80, 443 and the ports from 1024 on, without those that do harm."""
    return port in LOW_PORTS or (MIN_FREE_PORT <= port <= 65_535 and port not in DENIED_PORTS)


def check_method(method: Any) -> None:
    """Raises TargetRefused when the method is none of METHODS (upper case)."""
    if method not in METHODS:
        raise TargetRefused("/method", "invalid", f"The method is one of {', '.join(METHODS)}.")


def check_success_status(statuses: Any) -> None:
    """Raises TargetRefused when `statuses` is neither None nor a list of HTTP status codes from 200 to 599."""
    if statuses is None:
        return
    if not isinstance(statuses, list | tuple) or not statuses or not all(map(_is_status, statuses)):
        raise TargetRefused("/success_status", "invalid", "Name a list of status codes from 200 to 599.")


def header_faults(headers: Any) -> list[TargetRefused]:
    """All faults of the headers that a tenant sets. Non-ASCII values are fine and sent as UTF-8."""
    if headers is None:
        return []
    if not isinstance(headers, Mapping):
        return [TargetRefused("/headers", "invalid", "Headers are an object of names and text values.")]
    if len(headers) > MAX_HEADERS:
        return [TargetRefused("/headers", "too_many", f"A target may have {MAX_HEADERS} headers.")]
    faults, seen, total_bytes = [], set(), 0
    for name, value in headers.items():
        fault = _header_fault(name, value)
        if not fault and name.lower() in seen:
            fault = ("duplicate", "Header names differ by more than their case.")
        seen.add(str(name).lower())
        total_bytes += len(str(name)) + len(str(value).encode(errors="replace"))
        if fault:
            faults.append(TargetRefused(_pointer("/headers", name), *fault))
    if total_bytes > MAX_ALL_HEADERS_BYTES:
        faults.append(TargetRefused("/headers", "too_long", f"All headers may have {MAX_ALL_HEADERS_BYTES:,} bytes."))
    return faults


def _reference_faults(target: Mapping[str, Any]) -> list[FieldError]:
    """What is wrong with how the target names secrets where it takes texts."""
    headers = target.get("headers")
    texts = {"/url": target.get("url")}
    if isinstance(headers, Mapping):
        texts |= {_pointer("/headers", name): value for name, value in headers.items()}
    named = [(pointer, value) for pointer, value in texts.items() if isinstance(value, Mapping)]
    return [fault for pointer, value in named for fault in reference_faults(value, pointer)]


def _header_fault(name: Any, value: Any) -> tuple[str, str] | None:
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        return "invalid_name", "A header name is made of letters, digits and !#$%&'*+-.^_`|~."
    if name.lower() in RESERVED_HEADERS or name.lower().startswith(RESERVED_HEADER_PREFIXES):
        return "reserved", f"The header {name} is set by the platform."
    if not isinstance(value, str):
        return "invalid_value", "A header value is text."
    if any((char < " " and char != "\t") or char == "\x7f" or "\ud800" <= char <= "\udfff" for char in value):
        return "invalid_value", "A header value has no line breaks or control characters."
    if len(name) + len(value.encode()) > MAX_HEADER_BYTES:
        return "too_long", f"A header may have {MAX_HEADER_BYTES:,} bytes."
    return None


def _read_host(host: str) -> tuple[str, Address | None]:
    """Host as it is resolved and sent, and its address when it is one. Raises TargetRefused."""
    bracketed = host.startswith("[")
    try:
        if not bracketed:
            if not host.isascii():
                # The mapping first, as resolvers and clients do it: circled digits are digits, full-width dots dots.
                host = idna.encode(host, uts46=True).decode()
            host = host.lower().removesuffix(".")
        address = parse_host_address(host.strip("[]"))
    except (ValueError, UnicodeError):
        raise TargetRefused("/url", "invalid_host", "The URL has no valid host.") from None
    if address is not None:
        return str(address), address
    if bracketed or len(host) > 253 or not all(map(_LABEL.fullmatch, host.split("."))):
        raise TargetRefused("/url", "invalid_host", "The URL has no valid host.")
    return host, None


def _method_of(target: Mapping[str, Any]) -> Any:
    method = target.get("method", DEFAULT_METHOD)
    return method.upper() if isinstance(method, str) else method


def _is_status(status: Any) -> bool:
    return isinstance(status, int) and not isinstance(status, bool) and 200 <= status <= 599


def _refusal_of(check: Any, *args: Any) -> TargetRefused | None:
    try:
        check(*args)
    except TargetRefused as refused:
        return refused
    return None


def _pointer(parent: str, name: Any) -> str:
    return f"{parent}/{str(name).replace('~', '~0').replace('/', '~1')}"
