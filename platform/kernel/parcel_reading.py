"""Reads what may be a tenant's file, and may be anything; its form is `parcel`'s.

Nothing is ever unpacked: names are looked up, lines are read one by one, and what is larger than it says ends the
reading.
"""

import base64
import binascii
import hashlib
import hmac
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from kernel.errors import ShardbeatError
from kernel.parcel import (
    FORMAT,
    MANIFEST,
    NAME,
    SUM,
    VERSION,
    Damaged,
    Manifest,
    PassphraseWrong,
    Table,
    key_of,
    place_of,
)
from kernel.sealing import Unreadable, decrypt

MANIFEST_MAX = 4 * 1024 * 1024
LINE_MAX = 32 * 1024 * 1024  # a payload, a result and an error have their own bounds, far below
TABLES_MAX = 200
RATIO_MAX = 200  # deflate reaches 1,032; rows of history some 30
SMALL = 16 * 1024 * 1024  # below it no ratio is asked for
# What zipfile and json make of bytes that are none of theirs.
UNREADABLE = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, RuntimeError, OSError, ValueError, LookupError,
    ArithmeticError, AttributeError,
)  # fmt: skip


class Reader:
    """Reads a file that may be anything. Damaged, PassphraseWrong. What was read of `rows` is right when it ended."""

    def __init__(self, path: Path, *, passphrase: str = "") -> None:
        self._key = b""
        try:
            self._file: IO[bytes] = path.open("rb")
        except OSError as error:
            raise Damaged(f"The file can't be read: {error.strerror}.") from None
        try:
            self._zip = zipfile.ZipFile(self._file)
            self._size = os.fstat(self._file.fileno()).st_size
            self.manifest = self._manifest(passphrase)
            self._check_entries()
        except UNREADABLE as error:
            self._file.close()
            raise Damaged(f"This is no file of tenant_export, or it was damaged: {error}.") from None
        except ShardbeatError:
            self._file.close()
            raise

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *of: object) -> None:
        self._file.close()

    @property
    def opens(self) -> bool:
        """Whether sealed tables can be read."""
        return bool(self._key)

    def rows(self, name: str) -> Iterator[tuple[str | None, ...]]:
        """The rows of a table that the manifest names."""
        table = self.manifest.tables[name]
        size, count, digest = 0, 0, hashlib.sha256()
        try:
            with self._zip.open(table.entry) as lines:
                while line := lines.readline(LINE_MAX + 1):
                    size, count = size + len(line), count + 1
                    if size > table.size or count > table.rows or len(line) > LINE_MAX:
                        raise Damaged(f"{name} has more in it than the manifest says.")
                    digest.update(line)
                    yield self._row(table, line, count - 1)
        except UNREADABLE as error:
            raise Damaged(f"{name} can't be read: {error}.") from None
        if (size, count, digest.hexdigest()) != (table.size, table.rows, table.sha256):
            raise Damaged(f"{name} is not as it was written: its checksum differs.")

    def verify(self) -> None:
        """Reads all of it."""
        for table in self.manifest.tables.values():
            if not table.sealed or self.opens:
                for _ in self.rows(table.name):
                    pass

    def _row(self, table: Table, line: bytes, number: int) -> tuple[str | None, ...]:
        try:
            if table.sealed:
                if not self._key:
                    raise PassphraseWrong(f"{table.name} is encrypted: give the passphrase.")
                sealed = base64.b64decode(line.strip(), validate=True)
                line = decrypt(self._key, sealed, place_of(self.manifest.id, table.name, number))
            row = json.loads(line)
        except (Unreadable, binascii.Error, ValueError, RecursionError):
            raise Damaged(f"{table.name}: line {number + 1} can't be read.") from None
        if not isinstance(row, list) or len(row) != len(table.columns) or not all(_is_value(one) for one in row):
            raise Damaged(f"{table.name}: line {number + 1} is no row of {len(table.columns)} values.")
        return tuple(row)

    def _manifest(self, passphrase: str) -> Manifest:
        text = self._small(MANIFEST)
        sums = json.loads(self._small(SUM))
        digest = hashlib.sha256(text).hexdigest()
        if not isinstance(sums, dict) or sums.get("sha256") != digest:
            raise Damaged("The manifest is not as it was written: its checksum differs.")
        told = json.loads(text)
        if not isinstance(told, dict) or told.get("format") != FORMAT:
            raise Damaged("This is no file of tenant_export.")
        if told.get("version") != VERSION:
            raise Damaged(f"The file has version {told.get('version')!r} of its form; version {VERSION} is known here.")
        salt, mac = str(told.get("salt") or ""), str(sums.get("hmac") or "")
        if passphrase and salt:
            self._key = key_of(passphrase, bytes.fromhex(salt))
            if not hmac.compare_digest(hmac.digest(self._key, text, "sha256").hex(), mac):
                raise PassphraseWrong("The file was written with another passphrase, or was changed since.")
        tables = [_table(one) for one in _listed(told.get("tables"))]
        about = told.get("about")
        if not isinstance(about, dict) or len({one.name for one in tables}) != len(tables):
            raise Damaged("The manifest can't be read.")
        return Manifest(about, {one.name: one for one in tables}, str(told.get("id")), digest, salt, bool(self._key))

    def _small(self, name: str) -> bytes:
        with self._zip.open(name) as file:
            text = file.read(MANIFEST_MAX + 1)
        if len(text) > MANIFEST_MAX:
            raise Damaged(f"{name} is too large.")
        return text

    def _check_entries(self) -> None:
        """Exactly what the manifest names, each once, and no more than could be in a file of this size."""
        found = [one.filename for one in self._zip.infolist()]
        wanted = [MANIFEST, SUM, *(one.entry for one in self.manifest.tables.values())]
        if sorted(found) != sorted(wanted):
            raise Damaged("What is in the file is not what its manifest names.")
        total = sum(one.size for one in self.manifest.tables.values())
        if total > max(SMALL, self._size * RATIO_MAX):
            raise Damaged(f"It says that {total:,} bytes are in a file of {self._size:,}: that can't be.")


def _is_value(one: Any) -> bool:
    return one is None or (isinstance(one, str) and "\x00" not in one)


def _listed(found: Any) -> list[Any]:
    if not isinstance(found, list) or len(found) > TABLES_MAX:
        raise Damaged("The manifest can't be read.")
    return found


def _table(told: Any) -> Table:
    try:
        name, columns = told["name"], told["columns"]
        rows, size, sha256, sealed = told["rows"], told["bytes"], told["sha256"], told["sealed"]
    except (TypeError, KeyError):
        raise Damaged("The manifest can't be read.") from None
    whole = all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in (rows, size))
    names = isinstance(columns, list) and 0 < len(columns) <= TABLES_MAX and all(_is_name(one) for one in columns)
    if not (_is_name(name) and names and whole and isinstance(sha256, str) and isinstance(sealed, bool)):
        raise Damaged("The manifest can't be read.")
    return Table(name, tuple(columns), rows, size, sha256, sealed)


def _is_name(one: Any) -> bool:
    return isinstance(one, str) and NAME.fullmatch(one) is not None
