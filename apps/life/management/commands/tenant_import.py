"""Makes a tenant from a file."""

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from apps.audit.services import Actor
from apps.life.importing import tenant_abandon, tenant_import
from apps.life.passphrase import add_passphrase, passphrase_of
from kernel.parcel_reading import Reader
from kernel.printing import printable
from tenants import door
from tenants.commands import Command as Base
from tenants.models import Plan
from tenants.provisioning import host_for
from tenants.work import database_now


class Command(Base):
    help = (
        "Make a tenant from a file of tenant_export, suspended: look at it, then tenant_resume. Stopped, it goes on "
        "when it is asked again with the same file."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", nargs="?")
        parser.add_argument("--slug", help="Another one than in the file.")
        parser.add_argument("--name", default="", help="Another one than in the file.")
        parser.add_argument("--plan", help="A plan of this installation; the one of the file's name by default.")
        parser.add_argument("--host", help="SLUG.TENANT_DOMAIN by default.")
        parser.add_argument("--dry-run", action="store_true", help="Only read all of the file and say what is in it.")
        parser.add_argument("--abandon", action="store_true", help="Take back an import of this slug that was stopped.")
        add_passphrase(parser, "The one that the file was written with.")

    def handle(self, *args: Any, **options: Any) -> None:
        as_json = options["format"] == "json"
        door.become_owner()
        if options["abandon"]:
            tenant = self.tenant(options["slug"] or self.refuse("Which one? Give --slug."))
            tenant_abandon(tenant)
            self.show({"slug": tenant.slug, "abandoned": True}, f"{tenant.slug} was taken back.", as_json=as_json)
            return
        path, passphrase = Path(options["file"] or self.refuse("Which file?")), passphrase_of(self, options)
        with Reader(path, passphrase=passphrase) as file:
            manifest = file.manifest
            if options["dry_run"]:
                file.verify()
        told = {name: one.rows for name, one in manifest.tables.items()}
        if options["dry_run"]:
            about = {name: value for name, value in manifest.about.items() if name != "left_out"}
            lines = [
                printable(f"{name}: {value}") for name, value in about.items()
            ]  # none of them makes lines of its own
            lines += [f"{name}: {rows:,} rows" for name, rows in told.items()]
            self.show(
                {"about": manifest.about, "rows": told, "trusted": manifest.trusted}, "\n".join(lines), as_json=as_json
            )
            return
        slug = options["slug"] or str(manifest.about.get("slug"))
        name = options["plan"] or str(manifest.about.get("plan"))
        plan = Plan.objects.filter(name=name).first()
        if plan is None:
            self.refuse(f"There is no plan {name!r} here: name another with --plan, or make it in the admin.")
        done = tenant_import(
            path=path, plan=plan, slug=slug, host=options["host"] or host_for(slug),
            name=options["name"], actor=Actor(name="command:tenant_import", role="admin"), now=database_now(),
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
