"""What all management commands share: output as text or JSON, exit codes, the tenant by its slug."""

import sys
from collections.abc import Mapping
from datetime import date
from typing import Any, NoReturn
from uuid import UUID

import orjson
import psycopg
from django.core.management.base import BaseCommand, CommandParser
from django.db import OperationalError

from kernel.errors import InvalidInput, NotFound, ShardbeatError
from kernel.printing import LINES, printable
from tenants import door
from tenants.models import Tenant

EXIT_DONE, EXIT_FOUND, EXIT_BAD_INPUT = 0, 1, 2


def no_answer(error: Exception) -> str:
    """`does not answer: ...`, with the first line of what the driver says, which holds no password."""
    return f"does not answer: {str(error).partition(chr(10))[0]}"


class Command(BaseCommand):
    """Base of the commands: `--format text|json`; errors, and a database away, end with exit 2 and a sentence."""

    requires_system_checks: list[str] = []

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        parser.add_argument("--format", choices=["text", "json"], default="text", help="How to print the answer.")
        return parser

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except InvalidInput as error:
            self.refuse("\n".join(f"{fault.pointer}: {fault.detail}" for fault in error.errors) or error.detail)
        except ShardbeatError as error:
            self.refuse(error.detail)
        except (OperationalError, psycopg.OperationalError) as error:
            if not door.is_away(error):
                raise
            self.refuse(f"The database {no_answer(error)}")

    def show(self, answer: Any, text: str, *, as_json: bool) -> None:
        """Prints the answer in the form that was asked for."""
        self.stdout.write(orjson.dumps(answer, default=str).decode() if as_json else printable(text, keep=LINES))

    def refuse(self, reason: str) -> NoReturn:
        """Exit 2 with the reason on standard error."""
        self.stderr.write(printable(reason, keep=LINES))
        sys.exit(EXIT_BAD_INPUT)

    def id_of(self, text: str) -> UUID:
        """The id that was given; refused when it is none."""
        try:
            return UUID(text)
        except ValueError:
            self.refuse(f"{text!r} is no id.")

    def day_of(self, name: str, text: str) -> date:
        """The day that was given as YYYY-MM-DD; refused when it is none."""
        try:
            return date.fromisoformat(text)
        except ValueError:
            self.refuse(f"{name}: {text!r} is no day; give one as 2026-03-31.")

    def add_tenant(self, parser: CommandParser) -> None:
        """The one tenant that the command is about: `--tenant SLUG` as everywhere, or the slug as the first argument.

        `slug_of` reads it. Without either, or with both, the usage is printed and the exit is 2.
        """
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("slug", nargs="?", metavar="SLUG")
        which.add_argument("--tenant", metavar="SLUG", help="The same.")

    def slug_of(self, options: Mapping[str, Any]) -> str:
        """What was given for `add_tenant`."""
        return str(options["tenant"] if options["slug"] is None else options["slug"])

    def tenant(self, slug: str) -> Tenant:
        """The tenant of this slug; NotFound otherwise."""
        found: Tenant | None = Tenant.objects.select_related("plan").filter(slug=slug).first()
        if found is None:
            raise NotFound(f"There is no tenant {slug!r}.")
        return found
