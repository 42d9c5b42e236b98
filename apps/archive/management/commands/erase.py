"""Erases one execution everywhere; that it ran stays."""

from typing import Any
from uuid import UUID

from django.core.management.base import CommandParser

from apps.archive.erasing import Receipt, execution_erase, receipt, would_erase
from apps.audit.services import Actor
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base
from tenants.models import Tenant
from tenants.work import database_now


class Command(Base):
    help = (
        "Erase an execution that has ended: its payload, labels, answer, errors, attempts, dead letters and events, "
        "from the tables and from archives. Can't be undone; that it ran stays. Exit 1 when something is left for now, "
        "which the platform goes on with by itself."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument("--execution", required=True, metavar="ID")
        parser.add_argument(
            "--everything", action="store_true",
            help="Also the workflow's run that it is a step of, and what was run again of it or what it ran again.",
        )  # fmt: skip
        parser.add_argument("--reason", default="", help="Why; it is written into the trail.")
        parser.add_argument("--dry-run", action="store_true", help="Only say what would be erased.")
        parser.add_argument("--status", action="store_true", help="Only say what was erased and what is left of it.")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant, key = self.tenant(options["tenant"]), self.id_of(options["execution"])
        as_json = options["format"] == "json"
        if options["dry_run"]:
            self._would(tenant, key, everything=options["everything"], as_json=as_json)
            return
        if options["status"]:
            found = receipt(tenant, key)
        else:
            found = execution_erase(
                tenant=tenant, actor=Actor(name="command:erase", role="admin", tenant_id=tenant.pk), execution_id=key,
                reason=options["reason"], now=database_now(), everything=options["everything"],
            )  # fmt: skip
        self.show(_shape(found), _text(found), as_json=as_json)
        if found.left:
            raise SystemExit(EXIT_FOUND)

    def _would(self, tenant: Tenant, key: UUID, *, everything: bool, as_json: bool) -> None:
        ids = would_erase(tenant=tenant, execution_id=key, now=database_now(), everything=everything)
        answer = {"dry_run": True, "executions": [str(one) for one in ids]}
        self.show(answer, "\n".join(["These would be erased:", *map(str, ids)]), as_json=as_json)


def _shape(found: Receipt) -> dict[str, Any]:
    return {
        "dry_run": False, "execution": str(found.execution_id), "erased_at": found.erased_at, "done": not found.left,
        "executions": [str(one.execution_id) for one in found.parts], "left": [str(one) for one in found.left],
    }  # fmt: skip


def _text(found: Receipt) -> str:
    others = f", with {len(found.parts) - 1:,} that went with it" if len(found.parts) > 1 else ""
    text = f"{found.execution_id}: erased{others}."
    if found.left:
        text += f" Of {len(found.left):,} something is left; the platform goes on by itself, every 10 minutes."
    return text
