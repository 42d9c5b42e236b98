"""What a tenant's HTTP target may look like: URL, method, headers, body. Pure; asks no resolver and no network.

The API checks with `validate_target` on save, the HTTP executor parses with `parse_target` before each call, and both
read a URL with `parse_url`: the parts it returns are what is checked and what is used. A name is judged again, by its
addresses, when the connection is made.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Literal
from urllib.parse import quote, urlsplit

import idna

from kernel.addressrules import (
    MAX_PORT,
    Address,
    is_allowed,
    is_port_possible,
    is_public,
    is_usual_port,
    parse_host_address,
)
from kernel.errors import FieldError
from kernel.httpauthrules import auth_faults, auths_of
from kernel.httpsuccess import Fault, condition_faults, read_statuses
from kernel.httptemplates import fixed_url, template_faults
from kernel.secretrules import STAND_IN, is_reference, reference_faults, with_stand_ins
from kernel.templates import has_template

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
DEFAULT_METHOD = "POST"
TARGET_FIELDS = frozenset(
    {"url", "method", "headers", "body", "success_status", "success_if", "redirects", "connect_timeout_s", "auth"}
    | {"completion"}
)
COMPLETIONS = ("response", "callback")
MAX_URL_CHARS = 4_096
MAX_HEADERS = 50
MAX_HEADER_BYTES = 8_192  # one name with its value; all of them may have four times that
MAX_ALL_HEADERS_BYTES = 32_768
MAX_HOPS = 5
CONNECT_TIMEOUT_MIN_S, CONNECT_TIMEOUT_MAX_S = 0.1, 900

# Framing belongs to the client, and what tells a receiver about the run is ours (design section 8).
RESERVED_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "expect"}
    | {"http2-settings", "idempotency-key", "traceparent", "tracestate"}
)
RESERVED_HEADER_PREFIXES = ("proxy-", "shardbeat-", "webhook-")

LOOPBACK: tuple[Address, ...] = (ip_address("127.0.0.1"), ip_address("::1"))

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
    named += auth_faults(target.get("auth"), headers=target.get("headers"), url=target.get("url"))
    if named:
        return [FieldError(base + fault.pointer, fault.code, fault.detail) for fault in named]
    whole_url_is_secret = is_reference(target.get("url")) and not target["url"].get("prefix")
    target = with_stand_ins(target)
    faults: list[TargetRefused | None] = [TargetRefused(*fault) for fault in template_faults(target)]
    if not whole_url_is_secret and not any(fault and fault.part == "/url" for fault in faults):
        faults.append(_refusal_of(check_url, _fixed_url(target.get("url")), tuple(network)))
    faults += _token_url_faults(target.get("auth"), tuple(network))
    faults.append(_refusal_of(check_method, _method_of(target)))
    faults += header_faults(target.get("headers"))
    faults.append(_refusal_of(check_success_status, target.get("success_status")))
    faults.append(_refusal_of(check_completion, target.get("completion")))
    faults += condition_refusals(target.get("success_if"))
    faults.append(_refusal_of(check_redirects, target.get("redirects")))
    faults.append(_refusal_of(check_connect_timeout, target.get("connect_timeout_s")))
    for name in target.keys() - TARGET_FIELDS:
        known = ", ".join(sorted(TARGET_FIELDS))
        faults.append(TargetRefused(_pointer("", name), "unknown_field", f"There is no such field. Known: {known}."))
    return [FieldError(base + fault.part, fault.code, fault.detail) for fault in faults if fault]


def check_target(target: Mapping[str, Any], network: tuple[str, ...]) -> Url:
    """The URL to call, with everything else of the target checked too. Raises TargetRefused at the first fault.

    Templates are filled in already: what looks like one is text.
    """
    url = check_url(target.get("url"), network)
    check_method(_method_of(target))
    check_success_status(target.get("success_status"))
    check_completion(target.get("completion"))
    check_redirects(target.get("redirects"))
    check_connect_timeout(target.get("connect_timeout_s"))
    for fault in (*header_faults(target.get("headers")), *condition_refusals(target.get("success_if"))):
        raise fault
    return url


def check_url(text: Any, network: tuple[str, ...]) -> Url:
    """Parse a URL and judge what can be judged without a resolver. Raises TargetRefused."""
    url = parse_url(text)
    # RFC 6761 ties these names to loopback, whatever a resolver says.
    local = url.host == "localhost" or url.host.endswith(".localhost")
    addresses = LOOPBACK if local else () if url.address is None else (url.address,)
    if addresses and any(is_allowed(address, url.port, network) for address in addresses):
        return url
    if not addresses and is_port_possible(url.port, network):
        return url
    if addresses and not any(map(is_public, addresses)) and is_usual_port(url.port):
        raise TargetRefused("/url", "address_not_public", "The URL must lead to a public address.")
    raise TargetRefused("/url", "port_not_allowed", f"Port {url.port} may not be called.")


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
    if not 1 <= port <= MAX_PORT:
        raise TargetRefused("/url", "port_not_allowed", f"Port {port} may not be called.")
    path = quote(parts.path or "/", safe=_QUOTE_SAFE)
    if parts.query:
        path += "?" + quote(parts.query, safe=_QUOTE_SAFE)
    return Url("https" if parts.scheme == "https" else "http", host, port, path, address)


def check_method(method: Any) -> None:
    """Raises TargetRefused when the method is none of METHODS (upper case)."""
    if method not in METHODS:
        raise TargetRefused("/method", "invalid", f"The method is one of {', '.join(METHODS)}.")


def check_success_status(statuses: Any) -> None:
    """Raises TargetRefused when `statuses` is neither None nor a list as in `kernel.httpsuccess`."""
    if statuses is None:
        return
    found = read_statuses(statuses)
    if isinstance(found, Fault):
        raise TargetRefused("/success_status" + found.part, found.code, found.detail)


def condition_refusals(condition: Any) -> list[TargetRefused]:
    """What is wrong with a condition on the answer; None is fine."""
    faults = [] if condition is None else condition_faults(condition)
    return [TargetRefused("/success_if" + fault.part, fault.code, fault.detail) for fault in faults]


def check_redirects(redirects: Any) -> None:
    """Raises TargetRefused when `redirects` is neither None nor {"follow": true, "max_hops": 1 to 5}."""
    if redirects is None:
        return
    if not isinstance(redirects, Mapping) or not isinstance(redirects.get("follow"), bool):
        raise TargetRefused("/redirects", "invalid", 'Give an object such as {"follow": true, "max_hops": 3}.')
    hops = redirects.get("max_hops", MAX_HOPS)
    if isinstance(hops, bool) or not isinstance(hops, int) or not 1 <= hops <= MAX_HOPS:
        raise TargetRefused("/redirects/max_hops", "range", f"max_hops is a whole number from 1 to {MAX_HOPS}.")
    for name in redirects.keys() - {"follow", "max_hops"}:
        raise TargetRefused(_pointer("/redirects", name), "unknown_field", "Known: follow, max_hops.")


def check_connect_timeout(seconds: Any) -> None:
    """Raises TargetRefused when it is neither None nor a number of seconds."""
    if seconds is None:
        return
    fits = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not fits or not CONNECT_TIMEOUT_MIN_S <= seconds <= CONNECT_TIMEOUT_MAX_S:
        detail = f"connect_timeout_s is a number from {CONNECT_TIMEOUT_MIN_S} to {CONNECT_TIMEOUT_MAX_S}."
        raise TargetRefused("/connect_timeout_s", "range", detail)


def check_completion(completion: Any) -> None:
    """Raises TargetRefused when `completion` is neither None nor one of COMPLETIONS."""
    if completion is not None and completion not in COMPLETIONS:
        raise TargetRefused("/completion", "choice", f"must be one of {', '.join(COMPLETIONS)}.")


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


def _token_url_faults(auth: Any, network: tuple[str, ...]) -> Iterator[TargetRefused]:
    """Token endpoints are called like targets. Stand-ins for secrets are no URL, and judged before each call."""
    for at, one in enumerate(auths_of(auth)):
        url = one.get("token_url")
        if url is not None and url != STAND_IN:
            refused = _refusal_of(check_url, url, network)
            if refused:
                pointer = f"/auth/{at}/token_url" if isinstance(auth, list) else "/auth/token_url"
                yield TargetRefused(pointer, refused.code, refused.detail)


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


def _fixed_url(url: Any) -> Any:
    """The URL to check: templates stand for themselves only after the host."""
    return fixed_url(url) if isinstance(url, str) and has_template(url) else url


def _refusal_of(check: Any, *args: Any) -> TargetRefused | None:
    try:
        check(*args)
    except TargetRefused as refused:
        return refused
    return None


def _pointer(parent: str, name: Any) -> str:
    return f"{parent}/{str(name).replace('~', '~0').replace('/', '~1')}"
