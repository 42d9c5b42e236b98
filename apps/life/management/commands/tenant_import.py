"""Makes a tenant from a file."""

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from apps.audit.services import Actor
from apps.life.importing import import_rehearse, tenant_abandon, tenant_import
from apps.life.passphrase import add_passphrase, passphrase_of
from kernel.errors import NotFound, ShardbeatError
from kernel.parcel import Manifest
from kernel.parcel_reading import Reader
from kernel.printing import printable
from tenants import door
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base
from tenants.models import Plan
from tenants.provisioning import host_for
from tenants.work import database_now, rehearsing


class Command(Base):
    help = (
        "Make a tenant from a file of tenant_export, suspended: look at it, then tenant_resume. Stopped, it goes on "
        "when it is asked again with the same file."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", nargs="?")
        parser.add_argument("--slug", "--tenant", dest="slug", metavar="SLUG", help="Another one than in the file.")
        parser.add_argument("--name", default="", help="Another one than in the file.")
        parser.add_argument("--plan", help="A plan of this installation; the one of the file's name by default.")
        parser.add_argument("--host", help="SLUG.TENANT_DOMAIN by default.")
        parser.add_argument(
            "--dry-run", action="store_true",
            help="Only say what is in the file and whether it could be imported, or whether --abandon could be done.",
        )  # fmt: skip
        parser.add_argument("--abandon", action="store_true", help="Take back an import of this slug that was stopped.")
        add_passphrase(parser, "The one that the file was written with.")

    def handle(self, *args: Any, **options: Any) -> None:
        as_json = options["format"] == "json"
        door.become_owner()
        if options["abandon"]:
            tenant = self.tenant(options["slug"] or self.refuse("Which one? Give --slug."))
            dry = options["dry_run"]
            with rehearsing(dry):
                tenant_abandon(tenant)
            verb = "could be" if dry else "was"
            taken = {"dry_run": dry, "slug": tenant.slug, "abandoned": not dry}
            self.show(taken, f"{tenant.slug} {verb} taken back.", as_json=as_json)
            return
        path, passphrase = Path(options["file"] or self.refuse("Which file?")), passphrase_of(self, options)
        with Reader(path, passphrase=passphrase) as file:
            manifest = file.manifest
            if options["dry_run"]:
                file.verify()
        slug = options["slug"] or str(manifest.about.get("slug"))
        host = options["host"] or host_for(slug)
        if options["dry_run"]:
            try:
                plan = _plan(options, manifest)
                import_rehearse(path=path, plan=plan, slug=slug, host=host, passphrase=passphrase)
                refused = ""
            except ShardbeatError as error:
                refused = error.detail
            self._tell(manifest, slug, refused, as_json=as_json)
            return
        done = tenant_import(
            path=path, plan=_plan(options, manifest), slug=slug, host=host, name=options["name"],
            actor=Actor(name="command:tenant_import", role="admin"), now=database_now(),
            passphrase=passphrase, report=lambda table, rows: self.stderr.write(f"{table}: {rows:,}"),
        )  # fmt: skip
        answer = {
            "slug": done.tenant.slug, "status": done.tenant.status, "rows": done.rows, "resumed": done.resumed,
            "notes": done.notes,
        }  # fmt: skip
        lines = [
            f"{slug} is here, suspended, with {sum(done.rows.values()):,} rows. tenant_resume lets it go on.",
            *map(printable, done.notes),
        ]
        self.show(answer, "\n".join(lines), as_json=as_json)

    def _tell(self, manifest: Manifest, slug: str, refused: str, *, as_json: bool) -> None:
        """What is in a file, and whether it could be imported; exit 1 when not."""
        rows = {name: one.rows for name, one in manifest.tables.items()}
        about = {name: value for name, value in manifest.about.items() if name != "left_out"}
        lines = [printable(f"{name}: {value}") for name, value in about.items()]  # none makes lines of its own
        lines += [f"{name}: {count:,} rows" for name, count in rows.items()]
        lines.append(printable(f"It would be refused: {refused}" if refused else f"It could be imported as {slug}."))
        answer = {"about": manifest.about, "rows": rows, "trusted": manifest.trusted, "refused": refused or None}
        self.show({"dry_run": True, **answer}, "\n".join(lines), as_json=as_json)
        if refused:
            raise SystemExit(EXIT_FOUND)


def _plan(options: dict[str, Any], manifest: Manifest) -> Plan:
    name = options["plan"] or str(manifest.about.get("plan"))
    plan = Plan.objects.filter(name=name).first()
    if plan is None:
        raise NotFound(f"There is no plan {name!r} here: name another with --plan, or make it in the admin.")
    return plan
