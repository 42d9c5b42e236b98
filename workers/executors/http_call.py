"""One HTTP attempt, from the checked target to its result. The caller sets the deadline and may cancel."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import aiohttp

from kernel.httprules import TargetRefused
from kernel.secretrules import SecretMissing
from workers.executors.address import AddressBlocked, calling_tenant
from workers.executors.base import Result, Work, ended
from workers.executors.bounds import bounded_error
from workers.executors.http_body import read_body, result_of
from workers.executors.http_request import Plan, PlanCache, request_body, request_headers

log = logging.getLogger(__name__)

RETRY_AFTER_MAX_S = 86_400.0
RETRY_AFTER_STATUS = frozenset({429, 503})
GONE = 410


@dataclass(frozen=True, slots=True)
class Caller:
    """Makes calls. `session_for` gives the session whose connections respect an allow-list."""

    session_for: Callable[[tuple[str, ...]], aiohttp.ClientSession]
    clock: Callable[[], datetime]
    plans: PlanCache

    async def call(self, work: Work, started_at: datetime) -> Result:
        """Send the request and read the answer. All failures of the target become results."""
        try:
            plan = self.plans.plan_for(work)
            body = request_body(plan, work)
            headers = request_headers(plan, work, body, started_at)
        except TargetRefused as refused:
            error = bounded_error("bad_target", refused.detail, code=refused.code)
            return ended("failed", self.clock(), started_at, error=error, retryable=False)
        except SecretMissing as missing:
            error = bounded_error("secret_missing", str(missing))
            return ended("failed", self.clock(), started_at, error=error, retryable=False)
        calling_tenant.set(work.tenant_id)
        session = self.session_for(work.network)
        try:
            response = await session.request(plan.method, plan.url, data=body, headers=headers, allow_redirects=False)
            answer = result_of(response, await read_body(response))
        except Exception as exception:
            return self._failure(exception, started_at)
        return self._judge(plan, response, answer, started_at)

    def _judge(self, plan: Plan, response: aiohttp.ClientResponse, answer: object, started_at: datetime) -> Result:
        now, status = self.clock(), response.status
        if plan.is_success(status):
            return Result("succeeded", answer, None, True, None, False, started_at, now)
        return Result(
            outcome="failed",
            result=answer,
            error=bounded_error("http_status", _sentence(status), status=status),
            retryable=status != GONE and response.headers.get("Shardbeat-No-Retry", "").strip().lower() != "true",
            retry_after_s=retry_after_s(response, now) if status in RETRY_AFTER_STATUS else None,
            pause_schedule=status == GONE,
            started_at=started_at,
            finished_at=now,
        )

    def _failure(self, exception: Exception, started_at: datetime) -> Result:
        class_, message, retryable = _describe(exception)
        error = bounded_error(class_, message)
        return ended("failed", self.clock(), started_at, error=error, retryable=retryable)


def retry_after_s(response: aiohttp.ClientResponse, now: datetime) -> float | None:
    """Seconds that the target asks for, from a number or an HTTP date; at most a day; None when it says nothing."""
    text = response.headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:10]), RETRY_AFTER_MAX_S)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError, IndexError):
        return None
    # An HTTP date is in GMT also where its zone is missing.
    wait_s = ((at if at.tzinfo else at.replace(tzinfo=UTC)) - now).total_seconds()
    return min(max(wait_s, 0.0), RETRY_AFTER_MAX_S)


def _sentence(status: int) -> str:
    if 300 <= status <= 399:
        return f"The target answered {status}; redirects are not followed."
    return f"The target answered {status}."


def _describe(exception: Exception) -> tuple[str, str, bool]:
    """Class, message and whether a retry makes sense. Messages are ours: a library's may hold the whole URL."""
    match exception:
        case aiohttp.ClientConnectorError(os_error=AddressBlocked()):
            return "address_blocked", "The target leads to an address that is not public.", False
        case aiohttp.ClientConnectorDNSError():
            return "dns_failed", "The target's name could not be resolved.", True
        case aiohttp.ClientConnectorCertificateError(certificate_error=cause):
            why = getattr(cause, "verify_message", "") or "it can't be verified"
            return "tls_failed", f"The target's certificate was refused: {why}.", True
        case aiohttp.ClientSSLError():
            return "tls_failed", "No encrypted connection to the target came about.", True
        case aiohttp.ClientConnectorError(os_error=cause):
            return "connect_failed", f"The target could not be reached: {cause.strerror or 'no connection'}.", True
        case aiohttp.ClientOSError() | aiohttp.ServerDisconnectedError() | ConnectionError():
            return "connection_lost", "The target closed the connection without an answer.", True
        case aiohttp.ClientResponseError() | aiohttp.ClientPayloadError():
            return "bad_response", "The target's answer is not valid HTTP.", True
        case aiohttp.InvalidURL() | ValueError():
            return "bad_target", "The request can't be sent as it is written.", False
    log.error("a call failed in a way that nobody foresaw", exc_info=exception)
    return "internal", f"The call failed: {type(exception).__name__}.", True
