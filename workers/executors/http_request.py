"""From a work to the request that is sent: the target's fixed part is parsed once, the rest is added per attempt."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from multidict import CIMultiDict, istr

from kernel.httprules import DEFAULT_METHOD, MAX_HOPS, TargetRefused, Url, check_target, parse_url
from kernel.httpsuccess import read_statuses
from kernel.httptemplates import filled_target, fixed_url, is_fixed, told
from kernel.secretrules import secret_names
from kernel.templates import BadTemplate, has_template
from kernel.webhooksign import BadSigningSecret, signatures
from workers.executors.base import Work
from workers.executors.bounds import NotJson, to_json
from workers.executors.http_redirects import FOLLOWED, Request, origin
from workers.executors.http_values import values_of

PLAN_CACHE_SIZE = 2_048
PLAN_CACHE_MAX_TARGET_BYTES = 8_192  # a target with a large body is parsed each time instead of kept

# The payload goes along unless the method has no use for a body; a body of the target's own is always sent.
METHODS_WITHOUT_PAYLOAD = frozenset({"GET", "HEAD", "OPTIONS"})
DEFAULT_HEADERS = {
    istr("User-Agent"): "Shardbeat/1",
    istr("Accept"): "*/*",
    istr("Accept-Encoding"): "gzip, deflate",  # what http_body can bound
}
CONTENT_TYPE = istr("Content-Type")
IDEMPOTENCY_KEY = istr("Idempotency-Key")
EXECUTION = istr("Shardbeat-Execution")
ATTEMPT = istr("Shardbeat-Attempt")
NOMINAL_TIME = istr("Shardbeat-Nominal-Time")
DEADLINE = istr("Shardbeat-Deadline")
TRACEPARENT = istr("traceparent")
COMPLETION = istr("Shardbeat-Completion")
COMPLETION_URL = istr("Shardbeat-Completion-Url")
WEBHOOK_ID = istr("webhook-id")
WEBHOOK_TIMESTAMP = istr("webhook-timestamp")
WEBHOOK_SIGNATURE = istr("webhook-signature")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is the same for every attempt on a target."""

    url: Url
    method: str
    headers: CIMultiDict[str]
    body: bytes | None
    success_status: frozenset[int] | None
    success_if: Mapping[str, Any] | None
    payload_is_body: bool
    answers_later: bool  # 202 means that the result comes over the API
    max_hops: int  # 0: redirects are not followed
    connect_timeout_s: float | None
    secret_headers: frozenset[str] = frozenset()  # in lower case
    secret_body: bool = False
    auth: Any = field(default=None, repr=False)  # for http_auth.proof_of

    @property
    def destination(self) -> str:
        """Who is called, for the circuit breaker."""
        return f"{self.url.host}:{self.url.port}"

    def follows(self, status: int) -> bool:
        """Whether an answer with this status leads on. One that is named as a success is the end."""
        return self.max_hops > 0 and status in FOLLOWED and not self.is_success(status)

    def is_success(self, status: int) -> bool:
        return status in self.success_status if self.success_status is not None else 200 <= status <= 299


class PlanCache:
    """Plans by the content of target and allow-list, so a changed target is never taken for the old one."""

    def __init__(self) -> None:
        self._plans: OrderedDict[tuple[bytes, tuple[str, ...]], Plan] = OrderedDict()

    def plan_for(self, work: Work) -> Plan:
        """The plan for a work's target with values and secrets in it. Raises TargetRefused, SecretMissing."""
        target = work.target
        if is_fixed(target):
            return self.plan(target, work.network)
        try:
            plan = make_plan(filled_target(target, values_of(work), work.secrets), work.network)  # never kept
            url = target.get("url")
            if isinstance(url, str) and has_template(url) and origin(plan.url) != origin(parse_url(fixed_url(url))):
                raise BadTemplate("A template must not change who is called.")
        except BadTemplate as bad:
            raise TargetRefused("", "bad_template", told(bad)) from None
        headers = target.get("headers") or {}
        secret = frozenset(name.lower() for name, value in headers.items() if not isinstance(value, str))
        return replace(plan, secret_headers=secret, secret_body=bool(secret_names(target.get("body"))))

    def plan(self, target: Mapping[str, Any], network: tuple[str, ...]) -> Plan:
        """The plan for `target`. Raises TargetRefused."""
        try:
            content = to_json(target)
        except NotJson:
            raise TargetRefused("", "invalid", "The target is not valid JSON.") from None
        key = (content, network)
        plan = self._plans.get(key)
        if plan is None:
            plan = make_plan(target, network)
            if len(content) <= PLAN_CACHE_MAX_TARGET_BYTES:
                self._plans[key] = plan
                if len(self._plans) > PLAN_CACHE_SIZE:
                    self._plans.popitem(last=False)
        else:
            self._plans.move_to_end(key)
        return plan


def make_plan(target: Mapping[str, Any], network: tuple[str, ...]) -> Plan:
    """Check a target and prepare what can be prepared. Raises TargetRefused."""
    url = check_target(target, network)
    method = str(target.get("method", DEFAULT_METHOD)).upper()
    headers: CIMultiDict[str] = CIMultiDict(DEFAULT_HEADERS)
    body = target.get("body")
    payload_is_body = body is None and method not in METHODS_WITHOUT_PAYLOAD
    if payload_is_body or (body is not None and not isinstance(body, str)):
        headers[CONTENT_TYPE] = "application/json"
    elif body is not None:
        headers[CONTENT_TYPE] = "text/plain; charset=utf-8"
    for name, value in (target.get("headers") or {}).items():
        headers[name] = value
    statuses = None if target.get("success_status") is None else read_statuses(target["success_status"])
    redirects = target.get("redirects") or {}
    return Plan(
        url=url,
        method=method,
        headers=headers,
        body=None if body is None else _encode(body),
        success_status=statuses if isinstance(statuses, frozenset) else None,
        success_if=target.get("success_if"),
        payload_is_body=payload_is_body,
        answers_later=target.get("completion") == "callback",
        max_hops=redirects.get("max_hops", MAX_HOPS) if redirects.get("follow") else 0,
        connect_timeout_s=target.get("connect_timeout_s"),
        auth=target.get("auth"),
    )


def make_request(plan: Plan, work: Work, now: datetime) -> Request:
    """What is sent first. Raises TargetRefused."""
    body = request_body(plan, work)
    headers = request_headers(plan, work, body, now)
    return Request(plan.method, plan.url, headers, body, plan.secret_headers, plan.secret_body)


def request_body(plan: Plan, work: Work) -> bytes | None:
    """The bytes to send. Raises TargetRefused when the payload can't be sent."""
    if not plan.payload_is_body:
        return plan.body
    return None if work.payload is None else _encode(work.payload, text_is_json=True)


def request_headers(plan: Plan, work: Work, body: bytes | None, now: datetime) -> CIMultiDict[str]:
    """The target's headers with those of the attempt (design section 8). Raises TargetRefused for a bad secret."""
    headers = plan.headers.copy()
    if body is None and plan.payload_is_body:
        headers.pop(CONTENT_TYPE, None)
    headers[IDEMPOTENCY_KEY] = work.run_key
    headers[EXECUTION] = str(work.execution_id)
    headers[ATTEMPT] = str(work.attempt)
    headers[DEADLINE] = _rfc3339(work.deadline)
    if work.nominal_at is not None:
        headers[NOMINAL_TIME] = _rfc3339(work.nominal_at)
    if work.completion:
        headers[COMPLETION] = work.completion
        if work.completion_url:
            headers[COMPLETION_URL] = work.completion_url
    if work.traceparent:
        headers[TRACEPARENT] = work.traceparent
    if work.signing_secrets:
        sign(headers, work.signing_secrets, work=work, body=body, now=now)
    return headers


def sign(
    headers: CIMultiDict[str], secrets: Iterable[str], *, work: Work, body: bytes | None, now: datetime
) -> None:  # fmt: skip
    """Adds the headers of Standard Webhooks, with a signature of each secret. Raises TargetRefused for a bad one."""
    at_s = int(now.timestamp())
    try:
        signed = signatures(secrets, message_id=work.run_key, timestamp_s=at_s, body=body or b"")
    except BadSigningSecret as error:
        raise TargetRefused("", "bad_secret", str(error)) from None
    headers[WEBHOOK_ID] = work.run_key
    headers[WEBHOOK_TIMESTAMP] = str(at_s)
    headers[WEBHOOK_SIGNATURE] = signed


def _encode(body: Any, *, text_is_json: bool = False) -> bytes:
    try:
        return body.encode() if isinstance(body, str) and not text_is_json else to_json(body)
    except (UnicodeEncodeError, NotJson):
        raise TargetRefused("/body", "invalid", "The body can't be sent as UTF-8.") from None


def _rfc3339(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
