"""From a work to the container that runs it: the target by the operator's rules, its secrets, what it is told."""

from dataclasses import replace
from datetime import datetime, timedelta

from kernel.containerrules import ContainerRules, read_target
from kernel.errors import InvalidInput
from kernel.secretrules import SecretMissing, fill
from workers.executors.base import Work
from workers.executors.bounds import NotJson, to_json
from workers.executors.container_runtime import PAYLOAD_PATH, RESULT_PATH, Box

ENV_PAYLOAD_MAX_BYTES = 100_000  # Linux takes 131,072 in one variable
PREPARE_S = 300.0  # to clear away what was left, pull an image and make a container


class Refused(Exception):
    """The target can't run as it is."""

    def __init__(self, class_: str, message: str) -> None:
        super().__init__(message)
        self.class_, self.message = class_, message


def box_of(work: Work, rules: ContainerRules, *, installation: str, now: datetime) -> Box:
    """What is to run. Raises Refused."""
    try:
        filled = {**work.target, "environment": fill(work.target.get("environment"), work.secrets)}
        target = read_target(filled, rules, tenant=work.tenant_slug)
        payload = to_json(work.payload)
    except InvalidInput as invalid:
        first = invalid.errors[0]
        class_ = "image_refused" if first.code == "image_not_allowed" else "bad_target"
        raise Refused(class_, f"{first.pointer}: {first.detail}") from None
    except SecretMissing as missing:
        raise Refused("secret_missing", str(missing)) from None
    except NotJson as error:
        raise Refused("bad_payload", f"The payload is no JSON: {error}") from None
    environment = {**target.environment, **_variables(work)}
    if target.payload_as == "env":
        if len(payload) > ENV_PAYLOAD_MAX_BYTES:
            raise Refused("bad_payload", f"A payload in a variable may have {ENV_PAYLOAD_MAX_BYTES:,} bytes.")
        environment["SHARDBEAT_PAYLOAD"] = payload.decode()
    return Box(
        installation, work.execution_id, work.attempt, work.fence, work.tenant_slug, work.job_id,
        replace(target, environment=environment), payload, now + timedelta(seconds=work.timeout_s + PREPARE_S),
        work.timeout_s,
    )  # fmt: skip


def _variables(work: Work) -> dict[str, str]:
    found = {
        "SHARDBEAT_EXECUTION": str(work.execution_id),
        "SHARDBEAT_ATTEMPT": str(work.attempt),
        "SHARDBEAT_RUN_KEY": work.run_key,
        "SHARDBEAT_TENANT": work.tenant_slug,
        "SHARDBEAT_TRIGGER": work.execution_kind,
        "SHARDBEAT_TIMEOUT_S": f"{work.timeout_s:g}",
        "SHARDBEAT_PAYLOAD_FILE": PAYLOAD_PATH,
        "SHARDBEAT_RESULT_FILE": RESULT_PATH,
    }
    if work.nominal_at is not None:
        found["SHARDBEAT_NOMINAL_TIME"] = work.nominal_at.isoformat().replace("+00:00", "Z")
    if work.traceparent:
        found["TRACEPARENT"] = work.traceparent
    return found
