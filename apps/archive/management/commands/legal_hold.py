"""Legal holds of a tenant: shown, placed and released. What a command places only an operator can release."""

from typing import Any

from django.core.management.base import CommandParser

from apps.archive.holding import hold_place, hold_release
from apps.archive.models import SCOPES, LegalHold
from apps.audit.services import Actor
from tenants import door
from tenants.commands import Command as Base
from tenants.models import Tenant
from tenants.work import database_now, rehearsing

SHOWN_MOST = 1_000


class Command(Base):
    help = (
        "Show a tenant's legal holds, place one or release one: while it is open nothing of what it names is deleted."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--place", metavar="SCOPE", choices=SCOPES, help=f"Hold {', '.join(SCOPES)}.")
        what.add_argument("--release", metavar="ID", help="The hold that is not needed any more.")
        parser.add_argument("--object", metavar="ID", help="The job, schedule, workflow or execution to hold.")
        parser.add_argument(
            "--from", dest="from_at", metavar="TIME", help="Only executions made at this time or later."
        )
        parser.add_argument("--until", dest="until_at", metavar="TIME", help="Only executions made before this time.")
        parser.add_argument("--reason", default="", help="Why; it is shown, and written into the trail.")
        parser.add_argument("--all", action="store_true", help="Show those that are released, too.")
        parser.add_argument("--dry-run", action="store_true", help="Only say what would be placed or released.")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant = self.tenant(options["tenant"])
        if options["release"] and not options["reason"].strip():
            self.refuse("--reason: say why it is not needed any more.")
        as_json = options["format"] == "json"
        if not (options["place"] or options["release"]):
            found = _holds(tenant, every=options["all"])
            self.show([_shape(one) for one in found], _listed(found), as_json=as_json)
            return
        actor, now = Actor(name="command:legal_hold", role="admin", tenant_id=tenant.pk), database_now()
        with rehearsing(options["dry_run"]):
            if options["release"]:
                hold = hold_release(
                    tenant=tenant, actor=actor, hold_id=self.id_of(options["release"]), reason=options["reason"],
                    now=now, by_operator=True,
                )  # fmt: skip
            else:
                given = {name: options[name] for name in ("object", "from_at", "until_at", "reason") if options[name]}
                data = {"scope": options["place"], **given}
                hold = hold_place(tenant=tenant, actor=actor, data=data, now=now, by_operator=True)
        verb = f"{'would be ' if options['dry_run'] else ''}{'released' if options['release'] else 'placed'}"
        answer = {**_shape(hold), "dry_run": options["dry_run"]}
        self.show(answer, f"{hold.pk}: {verb}, of {hold}{_range(hold)}.", as_json=as_json)


def _holds(tenant: Tenant, *, every: bool) -> list[LegalHold]:
    with door.inside(tenant):
        found = LegalHold.objects.order_by("-id")
        return list((found if every else found.filter(released_at=None))[:SHOWN_MOST])


def _listed(found: list[LegalHold]) -> str:
    if not found:
        return "There is no legal hold."
    return "\n".join(
        f"{one.pk}  {one}{_range(one)}  since {one.created_at:%Y-%m-%d}"
        f"{f', released {one.released_at:%Y-%m-%d}' if one.released_at else ''}: {one.reason}"
        for one in found
    )


def _range(hold: LegalHold) -> str:
    parts = ((" from ", hold.from_at), (" until ", hold.until_at))
    return "".join(f"{word}{at:%Y-%m-%dT%H:%M:%SZ}" for word, at in parts if at is not None)


def _shape(hold: LegalHold) -> dict[str, Any]:
    names = ("id", "scope", "object_id", "from_at", "until_at", "reason", "by_operator", "created_by", "created_at")
    return {name: getattr(hold, name) for name in (*names, "released_at", "released_by", "released_reason")}
