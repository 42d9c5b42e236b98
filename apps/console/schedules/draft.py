"""A schedule as a form has it: what it would run, what it changes, and whether that was looked at before saving."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from apps.audit.actors import Actor
from apps.console.schedules.payload import unmasked
from apps.console.shown import masked
from apps.presenting.fields import Field, Form
from apps.presenting.load_words import load_words
from apps.presenting.schedule_fields import Offered, definition_of, fill, schedule_form
from apps.presenting.schedule_shown import Forecast, Limits, differences, forecast_of, known_of
from apps.schedules import services
from apps.schedules.defined import DefinedSchedule, schedule_as_given
from apps.schedules.loads import load_hint
from apps.schedules.names import calendar_options, job_options, workflow_options
from apps.schedules.services_calendars import exclusion_read
from kernel.errors import Faults
from kernel.pools import WORKFLOW
from tenants import door
from tenants.models import Tenant

SHOWN = 20
REASON_CHARS = 500
REASON_HELP = "For the audit trail, and for whoever comes after you."


@dataclass(slots=True)
class Draft:
    """What is in the form of a schedule; `found` is the one that it changes. In the tenant's schema."""

    tenant: Tenant
    form: Form
    found: DefinedSchedule | None
    data: dict[str, Any] | None = None  # once it was read

    @property
    def seen(self) -> str:
        """A short text of what is asked for, and of what it would change: what was shown is known by it."""
        revision = self.found.schedule.revision if self.found is not None else 0
        told = json.dumps(self.data, sort_keys=True, default=str)
        return sha256(f"{revision}\n{told}".encode()).hexdigest()[:16]

    @property
    def is_stale(self) -> bool:
        """Whether another revision was looked at than there is."""
        return self.found is not None and self.form.seen() != {self.found.schedule.revision}

    def read(self) -> None:
        """Reads the form. InvalidInput with what can't even be told."""
        data = definition_of(self.form)
        if self.found is not None and "payload" in data:
            data["payload"] = unmasked(data["payload"], self.found.definition.payload)
        self.data = data

    def forecast(self, now: datetime) -> Forecast:
        """What would run. InvalidInput as saving would raise it, but for a name and a job."""
        assert self.data is not None
        found, plan = self.found, self.tenant.plan
        known = None
        if found is not None:
            known = known_of(found.definition.spec, found.definition.definition, found.schedule.paused_at)
        return forecast_of(
            self.data, key=str(found.schedule.pk) if found is not None else "", known=known, now=now, count=SHOWN,
            limits=Limits(plan.min_interval_s, plan.max_payload_bytes), exclusion_of=exclusion_read,
        )  # fmt: skip

    def load(self, forecast: Forecast, now: datetime) -> list[str]:
        """Where its runs meet those of others, in sentences."""
        key = str(self.found.schedule.pk) if self.found is not None else ""
        told = load_hint(door.raw(), forecast.spec, key=key, now=now)
        return load_words(told.hint if told is not None else None)

    def changes(self) -> list[tuple[str, Any, Any]]:
        """Member, as it is, as the form has it; none for a new schedule."""
        return [] if self.found is None or self.data is None else differences(schedule_as_given(self.found), self.data)

    def reason(self) -> str:
        """Why. InvalidInput: a change needs one."""
        reason, faults = self.form.text("reason"), Faults()
        if not reason and self.found is not None:
            faults.add("/reason", "required", "Say why, in a few words.")
        if len(reason) > REASON_CHARS:
            faults.add("/reason", "too_long", f"has {len(reason):,} characters; {REASON_CHARS} are allowed.")
        faults.raise_if_any()
        return reason

    def apply(self, *, actor: Actor, now: datetime) -> DefinedSchedule:
        """Makes or changes it, with the audit row. InvalidInput, Conflict, QuotaExceeded, Stale."""
        reason = self.reason()
        if self.found is None:
            return services.schedule_create(tenant=self.tenant, actor=actor, data=self.data, now=now, reason=reason)
        return services.schedule_replace(
            tenant=self.tenant, actor=actor, schedule_id=self.found.schedule.pk, data=self.data, now=now,
            expect=self.form.seen(), reason=reason,
        )  # fmt: skip


def draft_of(tenant: Tenant, found: DefinedSchedule | None, *, also_job: UUID | None = None) -> Draft:
    """The form of a schedule as it is stored; of a new one with the defaults."""
    if found is not None and found.schedule.job.kind != WORKFLOW:
        also_job = found.schedule.job_id
    form = schedule_form(offered=Offered(job_options(also=also_job), workflow_options(), calendar_options()))
    form.fields |= {one.name: one for one in (
        Field("reason", "Why", "area", help=REASON_HELP, rows=2, required=found is not None),
        Field("seen", "Seen", "hidden"),
    )}  # fmt: skip
    if found is not None:
        given = schedule_as_given(found)
        fill(form, {**given, "payload": masked(given["payload"])})
        form["revision"].value = str(found.schedule.revision)
    return Draft(tenant, form, found)
