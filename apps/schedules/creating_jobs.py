"""New jobs, one or many in one transaction: each kind of row is one statement, however many there are."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.conf import settings

from apps.audit.services import Actor, Entry, record_many
from apps.schedules import naming, store
from apps.schedules.batches import in_rounds, only, results
from apps.schedules.changes import of_new
from apps.schedules.defined import DefinedJob, job_as_given
from apps.schedules.job_input import JobForm, JobRules, read_job
from apps.schedules.models import Job, JobVersion
from apps.schedules.services_secrets import PLAIN_KINDS, secrets_missing, target_restored
from apps.secrets import literals
from apps.tickets import filling, pull_queues
from apps.usage import notices
from kernel.containerrules import rules_of
from kernel.errors import InvalidInput, QuotaExceeded, ShardbeatError
from kernel.ids import uuid7s
from tenants import door
from tenants.limits import plan_locked, quota_error, use_of
from tenants.models import Plan, Tenant
from tenants.registry import reach_of
from tenants.work import in_tenant

Refused = dict[int, ShardbeatError]


def job_create(*, tenant: Tenant, actor: Actor, data: Mapping[str, Any], now: datetime) -> DefinedJob:
    """Makes a job. InvalidInput with all faults; Conflict when the name is taken; QuotaExceeded."""
    return only(jobs_create(tenant=tenant, actor=actor, items=[data], now=now))


def jobs_create(
    *, tenant: Tenant, actor: Actor, items: Sequence[Any], now: datetime, atomic: bool = False
) -> list[DefinedJob | ShardbeatError]:
    """Makes jobs; of each the job, or what it was refused with as `job_create` would raise it.

    All or nothing when `atomic`: BatchRefused.
    """

    def work() -> list[DefinedJob | ShardbeatError]:
        plan = plan_locked(tenant, quota="max_jobs")
        forms, refused = _read(tenant, items, job_rules(tenant, plan))
        use = use_of(Job.objects.filter(deleted_at=None), plan.max_jobs)
        made: dict[int, DefinedJob] = {}

        def over(count: int) -> QuotaExceeded:
            return quota_error(quota="max_jobs", limit=plan.max_jobs, use=use + count, what="jobs")

        def make(some: dict[int, JobForm]) -> Refused:
            new, lost = _insert(tenant, some, now)
            made.update(new)
            return lost

        room = None if plan.max_jobs is None else plan.max_jobs - use
        refused |= in_rounds(forms, room=room, make=make, over=over)
        found = results(len(items), made, refused, atomic=atomic)
        notices.crossed(
            door.raw(), tenant.pk, quota="max_jobs", limit=plan.max_jobs, before=use, after=use + len(made), now=now
        )
        record_many([_entry(one) for one in made.values()], actor=actor, now=now, tenant_id=tenant.pk)
        return found

    return in_tenant(tenant, work)


def job_rules(tenant: Tenant, plan: Plan) -> JobRules:
    """What the tenant and the operator allow."""
    return JobRules(
        reach_of(tenant.network), plan.max_payload_bytes, settings.PYTHON_TASKS, rules_of(settings), tenant.slug
    )  # fmt: skip


def _read(tenant: Tenant, items: Sequence[Any], rules: JobRules) -> tuple[dict[int, JobForm], Refused]:
    forms: dict[int, JobForm] = {}
    refused: Refused = {}
    for number, data in enumerate(items):
        try:
            forms[number] = read_job(target_restored(data, {}), rules=rules)
        except InvalidInput as error:
            refused[number] = error
    targets = {number: form.definition.target for number, form in forms.items() if form.kind not in PLAIN_KINDS}
    for number, faults in secrets_missing(tenant, targets).items():
        refused[number] = InvalidInput(faults)
        del forms[number]
    return forms, refused


def _insert(tenant: Tenant, forms: Mapping[int, JobForm], now: datetime) -> tuple[dict[int, DefinedJob], Refused]:
    conn, schema = door.raw(), tenant.schema_name
    rows = {
        number: store.NewJob(job_id, form.name, form.kind, form.labels, form.external_id)
        for (number, form), job_id in zip(forms.items(), uuid7s(len(forms)), strict=True)
    }
    there = store.jobs_insert(conn, schema, list(rows.values()), now=now)
    won = {number: row for number, row in rows.items() if row.id in there}
    lost = {number: row for number, row in rows.items() if row.id not in there}
    made = {number: _defined(tenant, row, forms[number], now) for number, row in won.items()}
    for queue in {one.definition.queue for one in made.values()} - {""}:
        pull_queues.put(conn, tenant_id=tenant.pk, name=queue, now=now)
    if made:
        store.job_versions_insert(conn, schema, [_version_row(one) for one in made.values()], now=now)
        given = [(one.job.pk, one.definition.rate_limit) for one in made.values()]
        filling.put(conn, tenant.pk, [filling.rate_of(job_id, rate) for job_id, rate in given if rate is not None])
    by_external_id = store.taken(conn, schema, "schedules_job", list(lost.values())) if lost else {}
    return made, {
        number: naming.taken("job", external_id=by_external_id[row.id]) for number, row in lost.items()
    }  # fmt: skip


def _defined(tenant: Tenant, row: store.NewJob, form: JobForm, now: datetime) -> DefinedJob:
    definition = form.definition
    if form.kind not in PLAIN_KINDS:
        target = literals.kept_apart(definition.target, known={}, tenant_id=tenant.pk, now=now)
        definition = replace(definition, target=target)
    job = Job(
        id=row.id, name=row.name, kind=row.kind, labels=row.labels, external_id=row.external_id, created_at=now,
        updated_at=now,
    )  # fmt: skip
    return DefinedJob(job, JobVersion(job_id=row.id, version=1, created_at=now, **definition.as_dict()))


def _version_row(made: DefinedJob) -> store.NewJobVersion:
    return store.NewJobVersion(*(getattr(made.definition, name) for name in store.NewJobVersion._fields))


def _entry(made: DefinedJob) -> Entry:
    return Entry("job.create", "job", made.job.pk, after=of_new(job_as_given(made)))
