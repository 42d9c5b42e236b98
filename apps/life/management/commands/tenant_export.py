"""Writes a tenant into one file."""

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from apps.audit.services import Actor
from apps.life.exporting import export_rehearse, tenant_export
from apps.life.passphrase import add_passphrase, passphrase_of
from tenants.commands import Command as Base
from tenants.work import database_now


class Command(Base):
    help = (
        "Write a tenant into one file that another installation can import: definitions, history, what waits. With its "
        "history it has to be suspended; its definitions alone can be written at any time."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument(
            "--to", required=True, metavar="FILE", help="Replaced when it is there and --force is given."
        )
        parser.add_argument("--without-history", action="store_true", help="Definitions alone, in one snapshot.")
        parser.add_argument("--with-access", action="store_true", help="People and API keys too; needs a passphrase.")
        parser.add_argument("--force", action="store_true", help="Replace a file that is there.")
        parser.add_argument("--dry-run", action="store_true", help="Only say whether it could be written.")
        add_passphrase(parser, "Values of secrets are in the file only with one, encrypted with it.")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant, path, passphrase = self.tenant(options["tenant"]), Path(options["to"]), passphrase_of(self, options)
        if path.exists() and not options["force"]:
            self.refuse(f"{path} is there already; --force replaces it.")
        if options["with_access"] and not passphrase:
            self.refuse("--with-access needs a passphrase.")
        now, history = database_now(), not options["without_history"]
        if options["dry_run"]:
            left_out = export_rehearse(tenant=tenant, now=now, history=history)
            answer = {"dry_run": True, "file": str(path), "left_out": left_out}
            self._tell(answer, f"{path} could be written.", as_json=options["format"] == "json")
            return
        done = tenant_export(
            tenant=tenant, path=path, actor=Actor(name="command:tenant_export", role="admin", tenant_id=tenant.pk),
            now=now, history=history, passphrase=passphrase,
            access=options["with_access"], report=lambda table, rows: self.stderr.write(f"{table}: {rows:,}"),
        )  # fmt: skip
        size = path.stat().st_size
        answer = {"file": str(path), "bytes": size, "sha256": done.digest, "rows": done.rows, "left_out": done.left_out}
        line = f"{path}: {size:,} bytes, {sum(done.rows.values()):,} rows, {done.digest}"
        self._tell({"dry_run": False, **answer}, line, as_json=options["format"] == "json")

    def _tell(self, answer: dict[str, Any], line: str, *, as_json: bool) -> None:
        lines = [line, *(f"left out: {name} ({why})" for name, why in answer["left_out"].items())]
        self.show(answer, "\n".join(lines), as_json=as_json)
