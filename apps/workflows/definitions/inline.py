"""Jobs that are written inside of a workflow: hidden rows that are made once and never changed.

A place whose job stays as it was keeps its row; what differs gets a new one. So a run keeps the jobs of the version
with which it started, as it keeps the version itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.schedules.defined import DefinedJob
from apps.schedules.job_input import Definition, JobForm
from apps.schedules.models import Job, JobVersion
from apps.schedules.services_secrets import PLAIN_KINDS, secrets_missing, target_restored
from apps.secrets import literals
from apps.tickets import filling, pull_queues
from apps.workflows.definitions.definition import ON_FAILURE_PLACE, compensate_place, step_place
from kernel.errors import FieldError, InvalidInput
from kernel.ids import uuid7s
from tenants import door
from tenants.models import Tenant

Known = Mapping[str, DefinedJob]  # the jobs of the version until now, by place


def masks_restored(data: Any, known: Known) -> Any:
    """A body with what its owner was shown as masks. InvalidInput for masks that stand for nothing."""
    faults: list[FieldError] = []

    def restored(job: Mapping[str, Any], place: str, pointer: str) -> Any:
        before = known.get(place)
        try:
            return target_restored(job, {} if before is None else before.definition.target)
        except InvalidInput as error:
            faults.extend(_placed(error.errors, pointer))
            return job

    found = _each(data, restored)
    if faults:
        raise InvalidInput(faults)
    return found


def check_secrets(
    tenant: Tenant, forms: Mapping[str, JobForm], known: Known, *, pointers: Mapping[str, str]
) -> None:  # fmt: skip
    """Every secret that the jobs name is there, and held. InvalidInput.

    Those that the version until now names are not looked for: a workflow must not become unchangeable by losing one.
    """
    places = [place for place, form in forms.items() if form.kind not in PLAIN_KINDS]
    targets = {at: forms[place].definition.target for at, place in enumerate(places)}
    before = {place: one.definition.target for place, one in known.items()}
    missing = secrets_missing(tenant, targets, known=before)
    faults = [one for at, found in missing.items() for one in _placed(found, pointers[places[at]])]
    if faults:
        raise InvalidInput(faults)


def jobs_kept(
    tenant: Tenant, forms: Mapping[str, JobForm], known: Known, *, now: datetime
) -> tuple[dict[str, UUID], list[tuple[str, JobForm]]]:
    """The ids of jobs that stay as they are, by place, and the others as they are stored: credentials kept apart."""
    stored = {place: _secrets_kept(tenant, form, known.get(place), now) for place, form in forms.items()}
    same = {place: known[place].job.pk for place, form in stored.items() if place in known and _is(form, known[place])}
    return same, [(place, form) for place, form in stored.items() if place not in same]


def jobs_add(
    tenant: Tenant, workflow: Job, forms: list[tuple[str, JobForm]], *, now: datetime
) -> dict[str, UUID]:  # fmt: skip
    """Makes hidden jobs of a workflow; their ids by place."""
    conn, made = door.raw(), list(zip(forms, uuid7s(len(forms)), strict=True))
    Job.objects.bulk_create(
        Job(
            id=key, name=name_in(workflow.name, place), kind=form.kind, workflow_id=workflow.pk, labels=form.labels,
            created_at=now, updated_at=now, deleted_at=now,
        )
        for (place, form), key in made
    )  # fmt: skip
    JobVersion.objects.bulk_create(
        JobVersion(job_id=key, version=1, created_at=now, **form.definition.as_dict()) for (_, form), key in made
    )
    for queue in {form.definition.queue for _, form in forms} - {""}:
        pull_queues.put(conn, tenant_id=tenant.pk, name=queue, now=now)
    rates = [(key, form.definition.rate_limit) for (_, form), key in made]
    filling.put(conn, tenant.pk, [filling.rate_of(key, rate) for key, rate in rates if rate is not None])
    return {place: key for (place, _), key in made}


def jobs_rename(workflow: Job, known: Known) -> None:
    """The jobs of a workflow are named after it."""
    places = {one.job.pk: place for place, one in known.items()}
    rows = list(Job.objects.select_for_update().filter(pk__in=places).order_by("pk"))
    for row in rows:
        row.name = name_in(workflow.name, places[row.pk])
    Job.objects.bulk_update(rows, ["name"])


def name_in(workflow: str, place: str) -> str:
    """The name of a job inside of a workflow, for people."""
    return f"{workflow}/{place.removeprefix('steps/')}"


def _secrets_kept(tenant: Tenant, form: JobForm, before: DefinedJob | None, now: datetime) -> JobForm:
    if form.kind in PLAIN_KINDS:
        return form
    known = {} if before is None else before.definition.target
    target = literals.kept_apart(form.definition.target, known=known, tenant_id=tenant.pk, now=now)
    return replace(form, definition=replace(form.definition, target=target))


def _is(form: JobForm, job: DefinedJob) -> bool:
    """Whether a job is what its form says."""
    stored = Definition(**{name: getattr(job.definition, name) for name in form.definition.as_dict()})
    return (form.kind, form.labels, form.definition) == (job.job.kind, job.job.labels, stored)


def _each(data: Any, change: Callable[[Mapping[str, Any], str, str], Any]) -> Any:
    """A body with each of its inline jobs as `change` says, which is given the job, its place and its pointer."""
    if not isinstance(data, Mapping):
        return data

    def changed(holder: Any, place: str, pointer: str) -> Any:
        if not isinstance(holder, Mapping) or not isinstance(holder.get("job"), Mapping):
            return holder
        return {**holder, "job": change(holder["job"], place, f"{pointer}/job")}

    def step(one: Any, pointer: str) -> Any:
        if not isinstance(one, Mapping):
            return one
        name = str(one.get("name"))
        found = changed(one, step_place(name), pointer)
        if "compensate" not in found:
            return found
        compensate = changed(found["compensate"], compensate_place(name), f"{pointer}/compensate")
        return {**found, "compensate": compensate}

    found = dict(data)
    if isinstance(data.get("steps"), list):
        found["steps"] = [step(one, f"/steps/{at}") for at, one in enumerate(data["steps"])]
    if "on_failure" in data:
        found["on_failure"] = changed(data["on_failure"], ON_FAILURE_PLACE, "/on_failure")
    return found


def _placed(errors: list[FieldError], pointer: str) -> list[FieldError]:
    return [replace(one, pointer=f"{pointer}{one.pointer}") for one in errors]
