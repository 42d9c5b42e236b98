"""A job as its owner writes it, to what is stored: every fault at once, each with a pointer. Pure."""

import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from apps.schedules.input_fields import Fields, json_bytes
from apps.schedules.retry import DEFAULTS, retry_from_api
from kernel.containerrules import ContainerRules
from kernel.containerrules import target_faults as container_faults
from kernel.deliveryrules import validate_delivery
from kernel.errors import Faults
from kernel.httprules import validate_target
from kernel.jsonrules import pointer_to
from kernel.limitrules import KEY_MAX, concurrency_key, rate_limit

KINDS = ("http", "python", "container", "pull")
FIELDS = (
    "name", "kind", "target", "payload", "timeout_s", "max_queue_age_s", "total_timeout_s", "retry", "priority",
    "max_concurrency", "concurrency_key", "rate_limit", "queue", "labels", "external_id",
)  # fmt: skip
READ_ONLY = ("id", "version", "status", "paused_at", "paused_reason", "created_at", "updated_at")
MAX_CONCURRENCY = KEY_MAX
MAX_QUEUE_AGE_S = 366 * 86_400
MAX_TOTAL_TIMEOUT_S = 366 * 86_400
MAX_EXTERNAL_ID_CHARS = 200
REQUEST_MAX_S = 900  # of an attempt that holds a connection to its target
ATTEMPT_MAX_S = 28_800  # of any other: its worker, ours or the tenant's, keeps it alive with heartbeats
QUEUE_NAME = r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?"
RESERVED_QUEUES = ("leases",)
_QUEUE_NAME = re.compile(QUEUE_NAME)
_PYTHON_FIELDS = ("task", "soft_timeout_s")


@dataclass(frozen=True, slots=True)
class JobRules:
    """What the tenant and the operator allow."""

    network: tuple[str, ...]
    max_payload_bytes: int
    python_tasks: Collection[str]
    containers: ContainerRules = field(default_factory=ContainerRules)
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class Definition:
    """What makes a version of a job."""

    target: dict[str, Any]
    payload: Any
    timeout_s: int
    max_queue_age_s: int | None
    total_timeout_s: int | None
    retry: dict[str, Any]
    priority: int
    max_concurrency: int | None
    concurrency_key: dict[str, Any] | None
    rate_limit: dict[str, int] | None
    queue: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class JobForm:
    """A complete, valid job."""

    name: str
    kind: str
    labels: dict[str, str]
    external_id: str | None
    definition: Definition


def read_job(data: object, *, rules: JobRules) -> JobForm:
    """Reads a complete job; missing members take their defaults. Raises InvalidInput with all faults."""
    faults = Faults()
    fields = Fields(data, faults)
    fields.only(FIELDS, read_only=READ_ONLY)
    kind = _kind(fields, rules)
    waits = kind == "http" and not _ends_outside(fields, kind)
    timeout_s = fields.whole("timeout_s", 1, REQUEST_MAX_S if waits else ATTEMPT_MAX_S, 60)
    delivered = kind == "pull" and _is_delivered(fields)
    form = JobForm(
        name=fields.name(),
        kind=kind,
        labels=fields.labels(),
        external_id=fields.text("external_id", most=MAX_EXTERNAL_ID_CHARS),
        definition=Definition(
            target=_target(fields, kind, timeout_s, rules),
            payload=fields.json("payload", max_bytes=rules.max_payload_bytes),
            timeout_s=timeout_s,
            max_queue_age_s=fields.whole("max_queue_age_s", 1, MAX_QUEUE_AGE_S, None),
            total_timeout_s=_total_timeout_s(fields, timeout_s),
            retry=_retry(fields, kind),
            priority=fields.whole("priority", 0, 9, 5),
            max_concurrency=fields.whole("max_concurrency", 1, MAX_CONCURRENCY, None),
            concurrency_key=concurrency_key(fields.data.get("concurrency_key"), faults),
            rate_limit=rate_limit(fields.data.get("rate_limit"), faults),
            queue=_queue(fields, needed=kind == "pull" and not delivered),
        ),
    )
    faults.raise_if_any()
    return form


def _total_timeout_s(fields: Fields, timeout_s: int) -> int | None:
    total_s: int | None = fields.whole("total_timeout_s", 1, MAX_TOTAL_TIMEOUT_S, None)
    if total_s is not None and total_s < timeout_s:
        detail = f"covers all tries, so it must be at least timeout_s ({timeout_s}), which covers one."
        fields.faults.add("/total_timeout_s", "contradiction", detail)
    return total_s


def _kind(fields: Fields, rules: JobRules) -> str:
    kind = fields.choice("kind", KINDS)
    if kind == "container" and not rules.containers.runtime:
        fields.faults.add("/kind", "kind_not_offered", "The operator of this installation offers no containers.")
        return ""
    return kind


def _target(fields: Fields, kind: str, timeout_s: int, rules: JobRules) -> dict[str, Any]:
    target, faults = fields.data.get("target"), fields.faults
    if target is None and kind == "pull":
        return {}
    if target is None:
        faults.add("/target", "required", "This field is required: what to call.")
        return {}
    size = json_bytes(target)
    if size > rules.max_payload_bytes:
        faults.add("/target", "too_large", f"has {size:,} bytes; the plan allows {rules.max_payload_bytes:,}.")
    elif kind == "http":
        faults.errors += validate_target(target, rules.network, base="/target")
    elif kind == "python":
        _check_python(target, timeout_s, rules.python_tasks, faults)
    elif kind == "container":
        faults.errors += container_faults(target, rules.containers, tenant=rules.tenant, base="/target")
    elif kind == "pull":
        _check_pull(target, rules, faults)
    return dict(target) if isinstance(target, Mapping) else {}


def _check_python(target: Any, timeout_s: int, tasks: Collection[str], faults: Faults) -> None:
    if not isinstance(target, Mapping):
        faults.add("/target", "type", 'must be an object such as {"task": "shardbeat.noop"}.')
        return
    task = target.get("task")
    if not isinstance(task, str) or task not in tasks:
        faults.add("/target/task", "unknown_task", f"The operator offers these tasks: {', '.join(sorted(tasks))}.")
    soft_s = target.get("soft_timeout_s")
    if soft_s is not None and (
        isinstance(soft_s, bool) or not isinstance(soft_s, int | float) or not 0 < soft_s <= timeout_s
    ):
        faults.add("/target/soft_timeout_s", "range", f"must be above 0 and at most timeout_s ({timeout_s}).")
    for name in [name for name in target if name not in _PYTHON_FIELDS][:20]:
        detail = f"There is no such field. Known: {', '.join(_PYTHON_FIELDS)}."
        faults.add(pointer_to("/target", name), "unknown_field", detail)


def _check_pull(target: Any, rules: JobRules, faults: Faults) -> None:
    """What a pull job's workers are given is theirs to read; a delivery is ours to make."""
    if not isinstance(target, Mapping):
        faults.add("/target", "type", "must be an object; its members are handed to your workers as they are.")
    elif target.get("delivery", "pull") == "queue":
        faults.errors += validate_delivery(target, rules.network, base="/target")
    elif target.get("delivery", "pull") != "pull":
        faults.add("/target/delivery", "choice", "must be one of pull, queue.")


def _is_delivered(fields: Fields) -> bool:
    target = fields.data.get("target")
    return isinstance(target, Mapping) and target.get("delivery") == "queue"


def _ends_outside(fields: Fields, kind: str) -> bool:
    """Whether the result may come over the API, later than any worker of ours would wait."""
    target = fields.data.get("target")
    return kind == "pull" or (kind == "http" and isinstance(target, Mapping) and target.get("completion") == "callback")


def _queue(fields: Fields, *, needed: bool) -> str:
    name, faults = fields.data.get("queue"), fields.faults
    if not needed:
        if name is not None:
            faults.add("/queue", "not_for_kind", "Only jobs of kind pull that are not delivered have a queue.")
        return ""
    if name is None:
        faults.add("/queue", "required", "This field is required: the queue that your workers lease from.")
    elif not isinstance(name, str) or not _QUEUE_NAME.fullmatch(name) or name in RESERVED_QUEUES:
        detail = "A queue's name has 1 to 63 of a-z 0-9 . _ - and begins and ends with a letter or a digit."
        faults.add("/queue", "invalid_name", detail)
    return name if isinstance(name, str) else ""


def _retry(fields: Fields, kind: str) -> dict[str, Any]:
    given = fields.data.get("retry")
    return dict(DEFAULTS) if given is None else retry_from_api(given, fields.faults, kind=kind)
