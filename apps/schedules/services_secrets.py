"""Where jobs and secrets meet: what a job's target may name, and what a secret's end would break."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.audit.services import Actor
from apps.schedules.models import Job
from apps.secrets import literals, services
from kernel.errors import Conflict, FieldError, InvalidInput
from kernel.masking import restored_target
from kernel.pools import WORKFLOW
from kernel.secretrules import is_internal, reference_pointers, secret_names
from tenants import door
from tenants.models import Tenant
from tenants.work import in_tenant

SHOWN_JOBS = 20  # in the answer that refuses to delete a secret
# Targets in which nothing is ours: those of pull jobs go to the tenant's own workers as they are, workflows have steps.
PLAIN_KINDS = frozenset({"pull", WORKFLOW})

_USING = """
SELECT j.id FROM schedules_job j JOIN schedules_jobversion v ON v.job_id = j.id AND v.version = j.version
WHERE j.kind <> ALL(%s) AND v.target @? %s::jsonpath AND (j.deleted_at IS NULL OR EXISTS (
    SELECT 1 FROM schedules_job w JOIN schedules_jobversion wv ON wv.job_id = w.id AND wv.version = w.version
    WHERE w.id = j.workflow_id AND w.deleted_at IS NULL AND wv.target -> 'uses' ? j.id::text)) ORDER BY j.id
"""


def secret_delete(
    *, tenant: Tenant, actor: Actor, secret_id: UUID, now: datetime, expect: Collection[int] | None = None
) -> None:
    """Deletes a secret that no job names now. Conflict with the jobs that do; Stale, NotFound.

    Runs of older versions of jobs that still name it end as `secret_missing`.
    """

    def work() -> None:
        secret = services.lock(secret_id, expect)  # from here on no job can begin to name it
        using = jobs_using(secret.name)
        if using:
            shown = [{"id": str(job.pk), "name": job.name} for job in using[:SHOWN_JOBS]]
            detail = "Jobs name this secret; change or delete them first."
            raise Conflict(detail, code="secret_in_use", jobs=shown, job_count=len(using))
        services.remove(secret, tenant=tenant, actor=actor, now=now)

    in_tenant(tenant, work)


def jobs_using(name: str) -> list[Job]:
    """Jobs, also inside of workflows, whose current version names a secret, in id order; in the tenant's schema."""
    path = f'$.** ? (@.secret == "{name}")'  # a name has no characters that mean something here
    ids = [row[0] for row in door.raw().execute(_USING, [sorted(PLAIN_KINDS), path])]
    return list(Job.objects.filter(pk__in=ids).order_by("pk"))


def target_restored(data: Any, known: Mapping[str, Any]) -> Any:
    """A job's members with what its owner was shown as masks. InvalidInput for masks that stand for nothing.

    `known` is the stored target, {} of a new job. Nobody can name what the platform keeps for a job.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("target"), Mapping):
        return data
    if str(data.get("kind")) in PLAIN_KINDS:
        return data
    faults: list[FieldError] = []
    target = restored_target(data["target"], known, faults, "/target")
    theirs = {name for name in secret_names(known) if is_internal(name)}
    faults += [
        FieldError(f"{pointer}/secret", "invalid_name", "There is no secret of this name.")
        for name, pointer in reference_pointers(target, "/target")
        if is_internal(name) and name not in theirs
    ]
    if faults:
        raise InvalidInput(faults)
    return {**data, "target": target}


def target_kept(
    target: Mapping[str, Any], known: Mapping[str, Any], *, tenant: Tenant, now: datetime
) -> dict[str, Any]:  # fmt: skip
    """A valid target as it is stored: credentials kept apart, every secret there and held. InvalidInput.

    Secrets that `known` names already are not looked for: a job must not become unchangeable by losing one.
    """
    faults = secrets_missing(tenant, {0: target}, known=known).get(0)
    if faults:
        raise InvalidInput(faults)
    return literals.kept_apart(target, known=known, tenant_id=tenant.pk, now=now)


def secrets_missing(
    tenant: Tenant, targets: Mapping[int, Mapping[str, Any]], *, known: Mapping[str, Any] | None = None
) -> dict[int, list[FieldError]]:
    """The faults of targets that name secrets which do not exist; those that do are held. One query.

    What `known` names is not looked for.
    """
    before = secret_names(known or {})
    named = {
        number: [
            (name, pointer)
            for name, pointer in reference_pointers(target, "/target")
            if name not in before and not is_internal(name)
        ]
        for number, target in targets.items()
    }
    there = services.names_shared(tenant, {name for pairs in named.values() for name, _ in pairs})
    faults = {
        number: [
            FieldError(f"{pointer}/secret", "unknown_secret", f"There is no secret {name}; create it first.")
            for name, pointer in pairs
            if name not in there
        ]
        for number, pairs in named.items()
    }
    return {number: found for number, found in faults.items() if found}
