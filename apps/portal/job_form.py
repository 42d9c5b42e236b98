"""Making and editing a job."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse

from apps.portal.job_fields import definition_of, fill, job_form, places_of
from apps.portal.jobs import access_job
from apps.portal.pages import Page, go
from apps.presenting.fields import Form
from apps.schedules import services
from apps.schedules.defined import DefinedJob
from apps.schedules.reading import job_shape
from apps.schedules.retry import DEFAULTS
from kernel.errors import Conflict, InvalidInput, QuotaExceeded, Stale

STALE = "Somebody changed this job since you opened it. What you wrote is still here; saving now takes its place."


class JobNew(Page):
    """A new one."""

    actions = {"GET": "job.create", "POST": "job.create"}
    section = "jobs"

    def get(self, request: HttpRequest) -> HttpResponse:
        return shown(self, job_form(), title="New job")

    def post(self, request: HttpRequest) -> HttpResponse:
        form = job_form()
        form.take(request.POST)
        try:
            data = definition_of(form, retry=DEFAULTS)
            made = services.job_create(tenant=self.tenant, actor=self.actor, data=data, now=self.now)
        except (InvalidInput, Conflict, QuotaExceeded) as error:
            self.refused(error)
            blame(form, error)
            return shown(self, form, title="New job", status=error.status)
        messages.success(request, f"{made.job.name} is made. Run it now, or make a schedule for it.")
        return go("portal:job", made.job.pk)


class JobEdit(Page):
    """Changing one."""

    actions = {"GET": "job.update", "POST": "job.update"}
    section = "jobs"

    def get(self, request: HttpRequest, job_id: UUID) -> HttpResponse:
        found = access_job(job_id)
        return shown(self, self._form(found), title="Edit job", found=found)

    def post(self, request: HttpRequest, job_id: UUID) -> HttpResponse:
        found = access_job(job_id)
        form = self._form(found)
        form.take(request.POST)
        try:
            data = definition_of(form, retry=found.definition.retry)
            changed = services.job_replace(
                tenant=self.tenant, actor=self.actor, job_id=job_id, data=data, now=self.now,
                expect=form.seen(),
            )  # fmt: skip
        except Stale as error:
            self.refused(error)
            found = access_job(job_id)
            form["revision"].value = str(found.job.revision)
            form.errors.append(STALE)
            now_is = self._form(found)
            differs = [(one.label, now_is[name].value, one.value) for name, one in form.fields.items()
                       if name in now_is.fields and one.value != now_is[name].value]  # fmt: skip
            return shown(self, form, title="Edit job", found=found, status=409, differs=differs)
        except (InvalidInput, Conflict, QuotaExceeded) as error:
            self.refused(error)
            blame(form, error)
            return shown(self, form, title="Edit job", found=found, status=error.status)
        messages.success(request, f"Saved. {changed.job.name} is version {changed.job.version} now.")
        return go("portal:job", job_id)

    def _form(self, found: DefinedJob) -> Form:
        form = job_form()
        fill(form, job_shape(found))
        form["revision"].value = str(found.job.revision)
        return form


def shown(
    page: Page, form: Form, *, title: str, found: DefinedJob | None = None, status: int = 200, differs: Any = ()
) -> HttpResponse:
    """The form, with what is wrong in it."""
    job = found.job if found else None
    return page.page("portal/job_form.html", status=status, title=title, form=form, job=job, differs=differs)


def blame(form: Form, error: InvalidInput | Conflict | QuotaExceeded) -> None:
    """The service's refusal to where it belongs."""
    if isinstance(error, InvalidInput):
        form.blame(error.errors, places_of(form))
    else:
        form.refuse(error)
