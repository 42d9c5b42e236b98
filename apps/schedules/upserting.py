"""Jobs and schedules by their owner's own id: made when there is none, changed to what is sent when there is.

Sent again it changes nothing, whoever else sends the same at the same time: who loses the race for the id starts anew
and finds it there.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from apps.audit.services import Actor
from apps.schedules.creating_jobs import job_create
from apps.schedules.creating_schedules import schedule_create
from apps.schedules.defined import DefinedJob, DefinedSchedule
from apps.schedules.input_fields import Fields
from apps.schedules.job_input import MAX_EXTERNAL_ID_CHARS
from apps.schedules.locked_jobs import shown
from apps.schedules.models import Schedule
from apps.schedules.services_jobs import job_replace
from apps.schedules.services_schedules import schedule_replace
from kernel.errors import Conflict, Faults, FieldError, InvalidInput, NotFound, Stale
from tenants.models import Tenant
from tenants.work import Again, in_tenant

T = TypeVar("T")
TAKEN = ("name_taken", "external_id_taken")


@dataclass(frozen=True, slots=True)
class Condition:
    """What must be so, or nothing is done: it is there (in one of these revisions), or it is not there yet."""

    there: bool = False
    revisions: Collection[int] | None = None
    not_there: bool = False


ANY = Condition()


def job_put(
    *, tenant: Tenant, actor: Actor, external_id: str, data: Any, now: datetime, only: Condition = ANY,
    may_create: Callable[[], None] = lambda: None,
) -> tuple[DefinedJob, bool]:  # fmt: skip
    """The job of this external id as `data` says, and whether it was made. Stale when `only` does not hold.

    `may_create` raises when the caller may only change. The rest as `job_create` and `job_replace`.
    """
    given = with_external_id(data, external_id)
    return put_one(
        tenant, only, may_create,
        find=lambda: shown("job").filter(external_id=external_id).values_list("pk", flat=True).first(),
        create=lambda: job_create(tenant=tenant, actor=actor, data=given, now=now),
        replace=lambda pk: job_replace(
            tenant=tenant, actor=actor, job_id=pk, data=given, now=now, expect=only.revisions
        ),
    )  # fmt: skip


def schedule_put(
    *, tenant: Tenant, actor: Actor, external_id: str, data: Any, now: datetime, only: Condition = ANY,
    may_create: Callable[[], None] = lambda: None,
) -> tuple[DefinedSchedule, bool]:  # fmt: skip
    """As `job_put`, for schedules."""
    given = with_external_id(data, external_id)
    alive = Schedule.objects.filter(external_id=external_id, deleted_at=None)
    return put_one(
        tenant, only, may_create,
        find=lambda: alive.values_list("pk", flat=True).first(),
        create=lambda: schedule_create(tenant=tenant, actor=actor, data=given, now=now),
        replace=lambda pk: schedule_replace(
            tenant=tenant, actor=actor, schedule_id=pk, data=given, now=now, expect=only.revisions
        ),
    )  # fmt: skip


def external_id_of(text: str) -> str:
    """An external id as it may be stored. InvalidInput."""
    faults = Faults()
    if Fields({"external_id": text}, faults).text("external_id", most=MAX_EXTERNAL_ID_CHARS) != text:
        faults.add("/external_id", "type", "must not begin or end with a blank.")
    faults.raise_if_any()
    return text


def with_external_id(data: Any, external_id: str) -> Any:
    """A body that is to have this external id; another one in it is refused. InvalidInput."""
    external_id_of(external_id)
    if not isinstance(data, Mapping):
        return data  # its reader says what is wrong with it
    if data.get("external_id") not in (None, external_id):
        detail = "is another one than the path's; leave it out."
        raise InvalidInput([FieldError("/external_id", "contradiction", detail)])
    return {**data, "external_id": external_id}


def put_one(
    tenant: Tenant, only: Condition, may_create: Callable[[], None], *, find: Callable[[], UUID | None],
    create: Callable[[], T], replace: Callable[[UUID], T],
) -> tuple[T, bool]:  # fmt: skip
    """Replaces the one that `find` finds, or creates one; and whether it was made. Stale when `only` does not hold."""

    def work() -> tuple[T, bool]:
        pk = find()
        if pk is not None:
            if only.not_there:
                raise Stale("There is one already.")
            try:
                return replace(pk), False
            except NotFound as error:  # deleted since
                raise Again from error
        if only.there:
            raise Stale("There is none with this external_id.")
        may_create()
        try:
            return create(), True
        except Conflict as error:
            if error.extra.get("code") in TAKEN and find() is not None:
                raise Again from error
            raise

    return in_tenant(tenant, work)
