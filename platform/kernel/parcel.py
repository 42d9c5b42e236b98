"""The form of a tenant in one file: a zip of tables as lines of JSON, and a manifest with what must be in it.

`tables/<name>.ndjson` has one row a line, an array of texts and nulls in the order of the manifest's columns. Sealed
tables have a row encrypted instead, as base64. `manifest.json` names each table with rows, bytes and SHA-256;
`manifest.sum` has the SHA-256 of the manifest and, where the file has a passphrase, its HMAC: then nobody changed it
who does not know that. `parcel_writing` writes such files, `parcel_reading` reads what may be one.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernel.errors import ShardbeatError
from kernel.sealing import KEY_BYTES

FORMAT = "shardbeat tenant"
VERSION = 1
MANIFEST, SUM = "manifest.json", "manifest.sum"
PASSPHRASE_MIN = 12
SALT_BYTES = 16
# RFC 7914; fixed by the format, since numbers from a file could ask for any amount of memory. 32 MiB, 0.1 s.
SCRYPT: Mapping[str, int] = {"n": 2**15, "r": 8, "p": 1, "maxmem": 64 * 1024 * 1024, "dklen": KEY_BYTES}
NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
Row = Sequence[str | None]


class Damaged(ShardbeatError):
    """The file is not one of ours, was damaged or changed, or is of a version that is not known here."""

    code = "parcel_damaged"
    status = 422


class NotWritten(ShardbeatError):
    """The file can't be made where it was asked for, or there is no room for it."""

    code = "parcel_not_written"


class PassphraseWrong(ShardbeatError):
    """The passphrase is missing, too short, or another one than the file was written with."""

    code = "passphrase_wrong"
    status = 422


@dataclass(frozen=True, slots=True)
class Table:
    """What the manifest says of a table."""

    name: str
    columns: tuple[str, ...]
    rows: int
    size: int  # bytes of all its lines
    sha256: str
    sealed: bool = False

    @property
    def entry(self) -> str:
        return f"tables/{self.name}.ndjson"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is in the file. `about` is the tenant and whatever else its writer says."""

    about: Mapping[str, Any]
    tables: Mapping[str, Table]
    id: str
    digest: str = ""  # SHA-256 of the manifest: names the whole file
    salt: str = ""  # hexadecimal; empty: nothing is sealed
    trusted: bool = field(default=False, compare=False)  # whoever wrote it knows the passphrase


def key_of(passphrase: str, salt: bytes) -> bytes:
    """The key that a passphrase is for one file. PassphraseWrong when it is too short to protect anything."""
    if len(passphrase) < PASSPHRASE_MIN:
        raise PassphraseWrong(f"A passphrase has {PASSPHRASE_MIN} characters or more.")
    return hashlib.scrypt(passphrase.encode("utf-8", "surrogatepass"), salt=salt, **SCRYPT)


def place_of(file_id: str, table: str, number: int) -> bytes:
    """Where a sealed row belongs: it can be read nowhere else."""
    return json.dumps([FORMAT, VERSION, file_id, table, number]).encode()
