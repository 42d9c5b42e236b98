"""The doors to a tenant's objects: missing, deleted, another tenant's and forbidden are the same 404."""

from uuid import UUID

from apps.archive.finding import Found, execution_anywhere
from apps.archive.models import LegalHold
from apps.audit.services import Actor
from apps.deadletters.models import DeadLetter
from apps.executions.reading import ExecutionRow
from apps.schedules.defined import definition_of, version_of
from apps.schedules.locked_jobs import shown
from apps.schedules.models import Calendar, Schedule
from apps.schedules.services import DefinedJob, DefinedSchedule
from apps.secrets.models import Secret
from apps.webhooks.models import Webhook
from apps.webhooks.reading import webhook_find
from apps.workflows.definitions.defined import DefinedWorkflow
from apps.workflows.definitions.selecting import workflow_find
from apps.workflows.views.runs_reading import RunRow, run_read
from apps.workflows.views.steps_reading import StepRow, step_read
from kernel.errors import NotFound
from tenants.models import ApiKey, Invitation, Member, Tenant
from tenants.permissions import may


def access_job(*, actor: Actor, job_id: UUID, need: str) -> DefinedJob:
    """A job with its current version, in the schema that the request is in."""
    job = shown("job").filter(pk=job_id).first()
    if job is None or not may(actor, need):
        raise NotFound("There is no such job.")
    return DefinedJob(job, definition_of(job))


def access_workflow(*, actor: Actor, workflow_id: UUID, need: str) -> DefinedWorkflow:
    """A workflow with its current version, in the schema that the request is in."""
    if not may(actor, need):
        raise NotFound("There is no such workflow.")
    return workflow_find(workflow_id)


def access_workflow_run(*, tenant: Tenant, actor: Actor, run_id: UUID, need: str) -> RunRow:
    """A run of a workflow, whether it has begun or not."""
    found = run_read(tenant, run_id)
    if found is None or not may(actor, need):
        raise NotFound("There is no such run.")
    return found


def access_step(
    *, tenant: Tenant, actor: Actor, run_id: UUID, step: str, item: int | None = None, need: str
) -> StepRow:
    """A step of a run, or one item of its list."""
    found = step_read(tenant, run_id, step, item=item)
    if found is None or not may(actor, need):
        raise NotFound("There is no such step of such a run.")
    return found


def access_schedule(*, actor: Actor, schedule_id: UUID, need: str) -> DefinedSchedule:
    """A schedule with its current version, in the schema that the request is in."""
    schedule = Schedule.objects.select_related("job").filter(pk=schedule_id, deleted_at=None).first()
    if schedule is None or not may(actor, need):
        raise NotFound("There is no such schedule.")
    return DefinedSchedule(schedule, version_of(schedule))


def access_execution(*, tenant: Tenant, actor: Actor, execution_id: UUID, need: str) -> ExecutionRow:
    """An execution with its live state; one that has left the tables is read from its archive."""
    return access_whole(tenant=tenant, actor=actor, execution_id=execution_id, need=need).row


def access_whole(*, tenant: Tenant, actor: Actor, execution_id: UUID, need: str) -> Found:
    """The same, with its attempts, dead letters and dependencies where it was read from its archive."""
    found = execution_anywhere(tenant, execution_id)
    if found is None or not may(actor, need):
        raise NotFound("There is no such execution.")
    return found


def access_calendar(*, actor: Actor, calendar_id: UUID, need: str) -> Calendar:
    """A calendar, in the schema that the request is in."""
    found = Calendar.objects.filter(pk=calendar_id, deleted_at=None).first()
    if found is None or not may(actor, need):
        raise NotFound("There is no such calendar.")
    return found


def access_hold(*, actor: Actor, hold_id: UUID, need: str) -> LegalHold:
    """A legal hold, in the schema that the request is in."""
    found = LegalHold.objects.filter(pk=hold_id).first()
    if found is None or not may(actor, need):
        raise NotFound("There is no such legal hold.")
    return found


def access_secret(*, actor: Actor, secret_id: UUID, need: str) -> Secret:
    """A secret that jobs may name, in the schema that the request is in."""
    found = Secret.objects.filter(pk=secret_id, purpose=Secret.Purpose.JOB).first()
    if found is None or not may(actor, need):
        raise NotFound("There is no such secret.")
    return found


def access_deadletter(*, actor: Actor, letter_id: UUID, need: str) -> DeadLetter:
    """A dead letter, in the schema that the request is in."""
    letter = DeadLetter.objects.filter(pk=letter_id).first()
    if letter is None or not may(actor, need):
        raise NotFound("There is no such dead letter.")
    return letter


def access_webhook(*, actor: Actor, webhook_id: UUID, need: str) -> Webhook:
    """A webhook, in the schema that the request is in."""
    found = webhook_find(webhook_id)
    if found is None or not may(actor, need):
        raise NotFound("There is no such webhook.")
    return found


def access_member(*, actor: Actor, member_id: UUID, need: str) -> Member:
    """Somebody of the actor's tenant, with the login."""
    found = Member.objects.select_related("user").filter(uid=member_id).first()
    if found is None or found.tenant_id != actor.tenant_id or not may(actor, need):
        raise NotFound("There is no such member.")
    return found


def access_invitation(*, actor: Actor, invitation_id: UUID, need: str) -> Invitation:
    """An invitation of the actor's tenant."""
    found = Invitation.objects.select_related("member").filter(pk=invitation_id).first()
    if found is None or found.tenant_id != actor.tenant_id or not may(actor, need):
        raise NotFound("There is no such invitation.")
    return found


def access_apikey(*, actor: Actor, key_id: UUID, need: str) -> ApiKey:
    """A key of the actor's tenant."""
    key = ApiKey.objects.filter(pk=key_id).first()
    if key is None or key.tenant_id != actor.tenant_id or not may(actor, need):
        raise NotFound("There is no such API key.")
    return key
