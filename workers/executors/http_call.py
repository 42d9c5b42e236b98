"""One HTTP attempt, from the checked target to its result. The caller sets the deadline and may cancel."""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp

from kernel.httprules import TargetRefused
from kernel.secretrules import SecretMissing
from workers.executors.address import NOBODY, AddressBlocked, Calling, calling
from workers.executors.base import Result, Work, ended
from workers.executors.bounds import bounded_error
from workers.executors.http_answer import Answer, excerpt_of, read_answer, unmet_condition
from workers.executors.http_auth import Proof, authorized, echoes_of, proof_of, signed
from workers.executors.http_breaker import Breakers, Deferred, deferred_result
from workers.executors.http_redirects import RedirectFailed, Request, next_request, origin
from workers.executors.http_request import Plan, PlanCache, make_request
from workers.executors.http_sessions import Sessions
from workers.executors.http_tokens import TokenFailed, Tokens

log = logging.getLogger(__name__)

RETRY_AFTER_MAX_S = 86_400.0
URL_SHOWN_CHARS = 500
RETRY_AFTER_STATUS = frozenset({429, 503})
UNAUTHORIZED = 401
GONE = 410
# Whether the target acted is not known when no answer came, and acting twice may do harm.
NOT_REPEATED = frozenset({"POST", "PATCH"})
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None)  # one deadline, around the whole call
_NEVER_CEIL_S = 1e9  # aiohttp rounds longer time-outs up to whole seconds
ACCEPTED = 202


@dataclass(frozen=True, slots=True)
class Caller:
    """Makes calls."""

    sessions: Sessions
    clock: Callable[[], datetime]
    plans: PlanCache = field(default_factory=PlanCache)
    tokens: Tokens = field(default_factory=Tokens)
    breakers: Breakers | None = None

    async def call(self, work: Work, started_at: datetime) -> Result:
        """Send the request and read the answer. All failures of the target become results."""
        try:
            plan = self.plans.plan_for(work)
            proof = proof_of(plan.auth)
            request = signed(make_request(plan, work, started_at), proof, work, started_at)
        except TargetRefused as refused:
            return self._refused(refused, started_at)
        except SecretMissing as missing:
            error = bounded_error("secret_missing", str(missing))
            return ended("failed", self.clock(), started_at, error=error, retryable=False)
        calling.set(current := Calling(work.tenant_id, may_repeat=plan.method not in NOT_REPEATED))
        if self.breakers is not None:
            try:
                key = (work.tenant_id, plan.destination)
                current.passage = await self.breakers.enter(key, timeout_s=work.timeout_s)
            except Deferred as deferred:
                return deferred_result(deferred, self.clock())
        try:
            async with self.sessions.lease(work.network, work.tenant_id, proof.certificate) as session:
                request, last, response, hops = await self._prove(plan, request, proof, work, session)
                echoes = echoes_of(request, work)
                answer = await read_answer(response, for_condition=plan.success_if is not None, echoes=echoes)
        except TargetRefused as refused:
            return self._refused(refused, started_at)
        except TokenFailed as failed:
            error = bounded_error("token_failed", failed.message)
            ending = ended("failed", self.clock(), started_at, error=error, retryable=failed.retryable)
            wait_s = retry_after_s(failed.response, self.clock()) if failed.response is not None else None
            return replace(ending, retry_after_s=wait_s)
        except RedirectFailed as failed:
            error = bounded_error(failed.class_, failed.message)
            return ended("failed", self.clock(), started_at, error=error, retryable=failed.retryable)
        except Exception as exception:
            return self._failure(exception, started_at)
        if hops:
            answer.result |= {"redirects": hops, "url": echoes.masked_text(bounded_url(str(last.url)))}
        return self._judge(plan, work, response, answer, started_at)

    async def _prove(
        self, plan: Plan, request: Request, proof: Proof, work: Work, session: aiohttp.ClientSession
    ) -> tuple[Request, Request, aiohttp.ClientResponse, int]:
        """Call as somebody; once more with a new token when the target refuses one that was kept.

        The first request, the last one, the answer to it, and how many redirects lie between.
        """
        request, renewable = await self._authorized(request, proof, work, session)
        response, hops, last = await self._send(plan, request, work.network, session)
        if renewable and response.status == UNAUTHORIZED and origin(last.url) == origin(request.url):
            response.release()
            request, _ = await self._authorized(request, proof, work, session, refused=True)
            response, hops, last = await self._send(plan, request, work.network, session)
        return request, last, response, hops

    async def _authorized(
        self, request: Request, proof: Proof, work: Work, session: aiohttp.ClientSession, *, refused: bool = False
    ) -> tuple[Request, bool]:
        try:
            return await authorized(request, proof, work, tokens=self.tokens, session=session, refused=refused)
        except (aiohttp.ClientError, OSError) as error:
            _, message, retryable = _describe(error)
            raise TokenFailed(message.replace("target", "token endpoint"), retryable=retryable) from error

    async def _send(
        self, plan: Plan, request: Request, network: tuple[str, ...], session: aiohttp.ClientSession
    ) -> tuple[aiohttp.ClientResponse, int, Request]:
        """The answer that counts, after how many redirects, to which request."""
        first, timeout = request, _NO_TIMEOUT
        if plan.connect_timeout_s is not None:
            timeout = aiohttp.ClientTimeout(connect=plan.connect_timeout_s, ceil_threshold=_NEVER_CEIL_S)
        seen: set[tuple[str, str]] = set()
        while True:
            response = await session.request(
                request.method, request.wire_url, data=request.body, headers=request.headers, allow_redirects=False,
                timeout=timeout,
            )  # fmt: skip
            location = response.headers.get("Location")
            if location is None or not plan.follows(response.status):
                return response, len(seen), request
            response.release()
            seen.add((request.method, str(request.url)))
            if len(seen) > plan.max_hops:
                message = f"The target redirects more than {plan.max_hops} times."
                raise RedirectFailed("too_many_redirects", message, retryable=True)
            request = next_request(request, response.status, location, network=network, seen=seen)
            if origin(request.url) != origin(first.url):  # a client certificate is for the one who was meant
                session = self.sessions.plain(network)

    def _judge(
        self, plan: Plan, work: Work, response: aiohttp.ClientResponse, answer: Answer, started_at: datetime
    ) -> Result:
        now, status = self.clock(), response.status
        if status == ACCEPTED and work.completion and _answers_later(plan, work.completion, response):
            return Result("accepted", None, None, True, None, False, started_at, now)
        class_, message = "", ""
        if not plan.is_success(status):
            class_, message = "http_status", _sentence(status)
        elif plan.success_if is not None:
            class_, message = unmet_condition(plan.success_if, answer) or ("", "")
        if not class_:
            return Result("succeeded", answer.result, None, True, None, False, started_at, now)
        is_gone = status == GONE and class_ == "http_status"
        return Result(
            outcome="failed",
            result=answer.result,
            error=bounded_error(class_, message, status=status, **excerpt_of(answer)),
            retryable=not is_gone and response.headers.get("Shardbeat-No-Retry", "").strip().lower() != "true",
            retry_after_s=retry_after_s(response, now) if status in RETRY_AFTER_STATUS else None,
            pause_schedule=is_gone,
            started_at=started_at,
            finished_at=now,
        )

    def _refused(self, refused: TargetRefused, started_at: datetime) -> Result:
        class_ = "bad_template" if refused.code == "bad_template" else "bad_target"
        error = bounded_error(class_, refused.detail, code=refused.code)
        return ended("failed", self.clock(), started_at, error=error, retryable=False)

    def _failure(self, exception: Exception, started_at: datetime) -> Result:
        class_, message, retryable = _describe(exception)
        error = bounded_error(class_, message)
        return ended("failed", self.clock(), started_at, error=error, retryable=retryable)


def timed_out_error(work: Work) -> Mapping[str, Any]:
    """The error of a call that its deadline has ended; for the task that made the call."""
    current = calling.get(NOBODY)
    more = {"outcome_unknown": True} if current.sent and not current.may_repeat else {}
    return bounded_error("timeout", f"The target did not answer within {work.timeout_s:g} s.", **more)


def bounded_url(url: str) -> str:
    """Where a call ended, without its query."""
    return url.partition("?")[0][:URL_SHOWN_CHARS]


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


def _answers_later(plan: Plan, token: str, response: aiohttp.ClientResponse) -> bool:
    """Whether 202 means that the result comes later: the job says so, or the receiver by sending the token back."""
    return plan.answers_later or response.headers.get("Shardbeat-Completion", "").strip() == token


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
        case aiohttp.ConnectionTimeoutError():
            return "connect_timeout", "No connection to the target came about in time.", True
        case aiohttp.ClientConnectorError(os_error=cause):
            why = os.strerror(cause.errno) if cause.errno else "no connection"  # its own text names the address
            return "connect_failed", f"The target could not be reached: {why}.", True
        case aiohttp.ClientOSError() | aiohttp.ServerDisconnectedError() | ConnectionError():
            return "connection_lost", "The target closed the connection without an answer.", True
        case aiohttp.ClientResponseError() | aiohttp.ClientPayloadError():
            return "bad_response", "The target's answer is not valid HTTP.", True
        case aiohttp.InvalidURL() | ValueError():
            return "bad_target", "The request can't be sent as it is written.", False
    log.error("a call failed in a way that nobody foresaw", exc_info=exception)
    return "internal", f"The call failed: {type(exception).__name__}.", True
