"""Where a redirect leads, and what of the request goes along. Every hop is checked like a target of its own."""

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from urllib.parse import urljoin

from multidict import CIMultiDict
from yarl import URL

from kernel.httprules import TargetRefused, Url, check_url

FOLLOWED = frozenset({301, 302, 303, 307, 308})
KEEP_METHOD = frozenset({307, 308})
# Who is named or proven by these is for the origin that they were meant for.
CREDENTIALS = re.compile(
    r"authori[sz]ation|cookie|token|secret|passw|api-?key|access-?key|credential|signature|session|csrf|xsrf|^auth|-auth"
    r"|^webhook-|^shardbeat-completion",
    re.IGNORECASE,
)
OF_BODY = ("Content-Type", "Content-Encoding", "Content-Language", "Content-Location")
_HALF = re.compile(r"https?:(?!//[^/?#])", re.IGNORECASE)  # some read http:x or http:///x as relative, some do not
_BREAKS = re.compile(r"[\x00-\x1f\x7f]|%(?:0[0-9a-f]|1[0-9a-f]|7f)", re.IGNORECASE)


class RedirectFailed(Exception):
    """`class_` names the failure; `retryable` as in Result."""

    def __init__(self, class_: str, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.class_, self.message, self.retryable = class_, message, retryable


@dataclass(frozen=True, slots=True)
class Request:
    """One request on the wire."""

    method: str
    url: Url
    headers: CIMultiDict[str]
    body: bytes | None = None
    secret_headers: frozenset[str] = frozenset()  # names in lower case
    secret_body: bool = False

    @property
    def wire_url(self) -> URL:
        return URL(str(self.url), encoded=True)


def next_request(
    request: Request, status: int, location: str, *, network: tuple[str, ...], seen: Collection[tuple[str, str]]
) -> Request:
    """The request of the next hop. Raises RedirectFailed. `seen` holds (method, URL) of the hops so far."""
    url = _target(request.url, location, network)
    method, body, headers = request.method, request.body, request.headers.copy()
    if status not in KEEP_METHOD and (status == 303 or method == "POST") and method != "HEAD":
        method, body = "GET", None
        for name in OF_BODY:
            headers.popall(name, None)
    if (method, str(url)) in seen:
        raise RedirectFailed("too_many_redirects", "The target redirects in a circle.", retryable=True)
    if origin(url) != origin(request.url):
        if body is not None and request.secret_body:
            message = "The target redirects a body with a secret in it to somebody else."
            raise RedirectFailed("redirect_refused", message, retryable=False)
        for name in list(headers):
            if CREDENTIALS.search(name) or name.lower() in request.secret_headers:
                headers.popall(name, None)
    return replace(request, method=method, url=url, headers=headers, body=body)


def origin(url: Url) -> tuple[str, str, int]:
    return url.scheme, url.host, url.port


def _target(current: Url, location: str, network: tuple[str, ...]) -> Url:
    if not location or _BREAKS.search(location) or _HALF.match(location):
        raise RedirectFailed("bad_location", "The target's Location can't be a URL.", retryable=True)
    try:
        url = check_url(urljoin(str(current), location), network)
    except TargetRefused as refused:
        if refused.code == "address_not_public":
            message = "The target redirects to an address that is not public."
            raise RedirectFailed("address_blocked", message, retryable=False) from None
        if refused.code in ("scheme_not_allowed", "user_in_url", "port_not_allowed"):
            message = f"The target redirects to where no call may go ({refused.code})."
            raise RedirectFailed("redirect_refused", message, retryable=False) from None
        raise RedirectFailed("bad_location", "The target's Location can't be a URL.", retryable=True) from None
    except ValueError:
        raise RedirectFailed("bad_location", "The target's Location can't be a URL.", retryable=True) from None
    if current.scheme == "https" and url.scheme == "http":
        message = "The target redirects from https to http."
        raise RedirectFailed("redirect_refused", message, retryable=False)
    return url
