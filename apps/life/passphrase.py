"""Passphrases for commands: from a file or the environment, never from the arguments, which everybody can see."""

import os
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from tenants.commands import Command

VARIABLE = "TENANT_PASSPHRASE"


def add_passphrase(parser: CommandParser, text: str) -> None:
    """The option that says where it is."""
    parser.add_argument("--passphrase-file", metavar="FILE", help=f"{text} Or {VARIABLE} in the environment.")


def passphrase_of(command: Command, options: dict[str, Any]) -> str:
    """The passphrase; empty when none is given. The first line of the file is meant."""
    name = options["passphrase_file"]
    if name is None:
        return os.environ.get(VARIABLE, "")
    try:
        lines = Path(name).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        command.refuse(f"The passphrase can't be read: {error}")
    return lines[0] if lines else command.refuse("The passphrase file is empty.")
