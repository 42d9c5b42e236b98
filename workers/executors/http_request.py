"""From a work to the request that is sent: the target's fixed part is parsed once, the rest is added per attempt."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from multidict import CIMultiDict, istr
from standardwebhooks import Webhook
from yarl import URL

from kernel.httprules import DEFAULT_METHOD, TargetRefused, check_target
from kernel.secretrules import fill, secret_names
from workers.executors.base import Work
from workers.executors.bounds import NotJson, to_json

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
WEBHOOK_ID = istr("webhook-id")
WEBHOOK_TIMESTAMP = istr("webhook-timestamp")
WEBHOOK_SIGNATURE = istr("webhook-signature")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is the same for every attempt on a target."""

    url: URL
    method: str
    headers: CIMultiDict[str]
    body: bytes | None
    success_status: frozenset[int] | None
    payload_is_body: bool

    def is_success(self, status: int) -> bool:
        return status in self.success_status if self.success_status is not None else 200 <= status <= 299


class PlanCache:
    """Plans by the content of target and allow-list, so a changed target is never taken for the old one."""

    def __init__(self) -> None:
        self._plans: OrderedDict[tuple[bytes, tuple[str, ...]], Plan] = OrderedDict()

    def plan_for(self, work: Work) -> Plan:
        """The plan for a work's target with its secrets filled in. Raises TargetRefused, SecretMissing."""
        if not secret_names(work.target):
            return self.plan(work.target, work.network)
        return make_plan(fill(work.target, work.secrets), work.network)  # never kept: values live as long as their call

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
    statuses = target.get("success_status")
    return Plan(
        url=URL(str(url), encoded=True),
        method=method,
        headers=headers,
        body=None if body is None else _encode(body),
        success_status=None if statuses is None else frozenset(statuses),
        payload_is_body=payload_is_body,
    )


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
    if work.traceparent:
        headers[TRACEPARENT] = work.traceparent
    if work.signing_secrets:
        headers[WEBHOOK_ID] = work.run_key
        headers[WEBHOOK_TIMESTAMP] = str(int(now.timestamp()))
        signers = [_signer(secret) for secret in work.signing_secrets]
        at, text = now.astimezone(UTC), (body or b"").decode()
        headers[WEBHOOK_SIGNATURE] = " ".join(signer.sign(work.run_key, at, text) for signer in signers)
    return headers


@lru_cache(maxsize=512)
def _signer(secret: str) -> Webhook:
    try:
        return Webhook(secret)
    except Exception:
        raise TargetRefused("", "bad_secret", "The signing secret is not a Standard Webhooks secret.") from None


def _encode(body: Any, *, text_is_json: bool = False) -> bytes:
    try:
        return body.encode() if isinstance(body, str) and not text_is_json else to_json(body)
    except (UnicodeEncodeError, NotJson):
        raise TargetRefused("/body", "invalid", "The body can't be sent as UTF-8.") from None


def _rfc3339(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
