"""Operations of a tenant: shown, paused, resumed, cancelled, undone."""

import sys
from typing import Any

from django.core.management.base import CommandParser

from apps.audit.services import Actor
from apps.operations import services
from apps.operations.models import Operation
from apps.operations.progress_line import progress_line
from apps.operations.reading import counts_of, name_of
from tenants import door
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base
from tenants.models import Tenant
from tenants.work import database_now, rehearsing

SHOWN_MOST = 50
VERBS = {
    "pause": services.operation_pause, "resume": services.operation_resume, "cancel": services.operation_cancel,
    "undo": services.operation_undo,
}  # fmt: skip
WITH_REASON = ("pause", "cancel", "undo")


class Command(Base):
    help = "Show a tenant's newest operations or one of them; pause, resume, cancel or undo it. Exit 1: items failed."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument("--id", metavar="ID", help="Of one operation; without it the newest are listed.")
        verb = parser.add_mutually_exclusive_group()
        verb.add_argument("--pause", dest="verb", action="store_const", const="pause", help="Start nothing more of it.")
        verb.add_argument("--resume", dest="verb", action="store_const", const="resume", help="Let it go on.")
        verb.add_argument("--cancel", dest="verb", action="store_const", const="cancel", help="End it.")
        verb.add_argument("--undo", dest="verb", action="store_const", const="undo", help="Take back what can be.")
        parser.add_argument("--reason", default="", help="Why; it is written into the trail.")
        parser.add_argument("--dry-run", action="store_true", help="Only say whether that could be done.")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant, as_json = self.tenant(options["tenant"]), options["format"] == "json"
        if not options["id"]:
            if options["verb"]:
                self.refuse("--id: say which operation.")
            with door.inside(tenant):
                found = list(Operation.objects.order_by("-id")[:SHOWN_MOST])
            self.show([shape(one) for one in found], "\n".join(map(line, found)) or "There is none.", as_json=as_json)
            return
        one = self._one(tenant, options)
        answer = {**shape(one), "dry_run": options["dry_run"]}
        self.show(answer, line(one), as_json=as_json)
        if one.failed or one.state == "failed":
            sys.exit(EXIT_FOUND)

    def _one(self, tenant: Tenant, options: dict[str, Any]) -> Operation:
        operation_id = self.id_of(options["id"])
        if not options["verb"]:
            with door.inside(tenant):
                found = Operation.objects.filter(pk=operation_id).first()
            if found is None:
                self.refuse("There is no such operation.")
            return found
        actor = Actor(name="command:operation", role="admin", tenant_id=tenant.pk)
        more = {"reason": options["reason"]} if options["verb"] in WITH_REASON else {}
        with rehearsing(options["dry_run"]):
            return VERBS[options["verb"]](
                tenant=tenant, actor=actor, operation_id=operation_id, now=database_now(), **more
            )


def shape(one: Operation) -> dict[str, Any]:
    """One operation as JSON."""
    names = (
        "id", "action", "target", "filter", "params", "state", "waits_for", "paused_reason", "error", "reason",
        "created_by", "created_at", "started_at", "finished_at",
    )  # fmt: skip
    return {**{name: getattr(one, name) for name in names}, "counts": counts_of(one)}


def line(one: Operation) -> str:
    """One operation in a line."""
    why = one.error or one.paused_reason
    head = f"{one.pk}  {name_of(one)}"
    told = progress_line(one.state, counts_of(one), planned=one.planned, expected_end=None, waits_for=one.waits_for)
    return f"{head}  {told}{f'  {why}' if why else ''}"
