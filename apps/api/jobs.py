"""/jobs"""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_job
from apps.api.bulk import Batch, BulkEndpoint, Result
from apps.api.definition_lists import JOB_PAGE, OF_JOBS, list_jobs
from apps.api.documents_bulk import BulkAnswer, JobsBulkInput
from apps.api.documents_jobs import JobAnswer, JobChange, JobInput, JobReplacement
from apps.api.documents_runs import NoInput, ReasonInput
from apps.api.endpoint import Endpoint, retry_safe
from apps.api.etags import revisions, tagged
from apps.api.openapi import (
    operation,
)
from apps.api.reading import nothing_of, read_only_dropped, reason_of
from apps.api.shapes import job_shape
from apps.schedules import services
from apps.schedules.job_input import READ_ONLY
from kernel.errors import ShardbeatError

TAG = "jobs"


class JobList(Endpoint):
    """All jobs."""

    actions = {"GET": "job.read", "POST": "job.create"}

    @operation("jobs_list", "List jobs", answer=JOB_PAGE, parameters=OF_JOBS, tag=TAG)
    def get(self, request: Request) -> Response:
        return list_jobs(self, self.query(*(one.name for one in OF_JOBS)))

    @operation(
        "jobs_create", "Create a job", body=JobInput, answer=JobAnswer, status=201, retry_safe=True, tag=TAG,
        problems=("name_taken", "external_id_taken", "quota_exceeded", "secrets_key_unknown"),
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request) -> Response:
        made = services.job_create(tenant=self.tenant, actor=self.actor, data=self.body, now=self.now)
        return tagged(job_shape(made), made.job.revision, status=201, location=f"{request.path}/{made.job.pk}")


class JobBulk(BulkEndpoint):
    """Many jobs at a time."""

    actions = {"POST": "job.create"}

    @operation(
        "jobs_bulk_create", "Create up to 1,000 jobs; each item has its own result", body=JobsBulkInput,
        answer=BulkAnswer, retry_safe=True, tag=TAG, problems=["batch_refused"],
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request) -> Response:
        return self.made(self._make, status=201)

    def _make(self, batch: Batch) -> list[Result]:
        found = services.jobs_create(
            tenant=self.tenant, actor=self.actor, items=batch.items, now=self.now, atomic=batch.atomic
        )
        return [one if isinstance(one, ShardbeatError) else one.job.pk for one in found]


class JobDetail(Endpoint):
    """One job."""

    actions = {"GET": "job.read", "PATCH": "job.update", "PUT": "job.update", "DELETE": "job.delete"}

    @operation("jobs_read", "Read a job", answer=JobAnswer, tag=TAG)
    def get(self, request: Request, job_id: UUID) -> Response:
        self.query().finish()
        found = access_job(actor=self.actor, job_id=job_id, need="job.read")
        return tagged(job_shape(found), found.job.revision)

    @operation(
        "jobs_patch",
        "Change members of a job",
        body=JobChange,
        answer=JobAnswer,
        if_match=True,
        tag=TAG,
        problems=("name_taken", "external_id_taken", "kind_is_fixed", "secrets_key_unknown", "secret_unreadable"),
    )
    def patch(self, request: Request, job_id: UUID) -> Response:
        changed = services.job_update(
            tenant=self.tenant, actor=self.actor, job_id=job_id, patch=self.body, now=self.now,
            expect=revisions(request),
        )  # fmt: skip
        return tagged(job_shape(changed), changed.job.revision)

    @operation(
        "jobs_replace",
        "Replace a job",
        body=JobReplacement,
        answer=JobAnswer,
        if_match=True,
        tag=TAG,
        problems=("name_taken", "external_id_taken", "kind_is_fixed", "secrets_key_unknown", "secret_unreadable"),
    )
    def put(self, request: Request, job_id: UUID) -> Response:
        changed = services.job_replace(
            tenant=self.tenant, actor=self.actor, job_id=job_id, data=read_only_dropped(self.body, READ_ONLY),
            now=self.now, expect=revisions(request),
        )  # fmt: skip
        return tagged(job_shape(changed), changed.job.revision)

    @operation(
        "jobs_delete",
        "Delete a job that no schedule uses",
        status=204,
        if_match=True,
        tag=TAG,
        problems=("job_in_use",),
    )
    def delete(self, request: Request, job_id: UUID) -> Response:
        services.job_delete(
            tenant=self.tenant, actor=self.actor, job_id=job_id, now=self.now, expect=revisions(request)
        )
        return Response(status=204)


class JobPause(Endpoint):
    """Stopping a job."""

    actions = {"POST": "job.pause"}

    @operation(
        "jobs_pause", "Pause a job: nothing of it starts, no debt builds up", body=ReasonInput, answer=JobAnswer,
        retry_safe=True, tag=TAG,
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, job_id: UUID) -> Response:
        reason = reason_of(self.body)
        found = services.job_pause(tenant=self.tenant, actor=self.actor, job_id=job_id, now=self.now, reason=reason)
        return tagged(job_shape(found), found.job.revision)


class JobResume(Endpoint):
    """Letting a job run again."""

    actions = {"POST": "job.resume"}

    @operation(
        "jobs_resume", "Resume a job; its schedules go on from now", body=NoInput, answer=JobAnswer, retry_safe=True,
        tag=TAG,
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, job_id: UUID) -> Response:
        nothing_of(self.body)
        found = services.job_resume(tenant=self.tenant, actor=self.actor, job_id=job_id, now=self.now)
        return tagged(job_shape(found), found.job.revision)
