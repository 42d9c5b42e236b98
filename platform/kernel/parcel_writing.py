"""Writes a tenant's file; its form is `parcel`'s."""

import base64
import errno
import fcntl
import hashlib
import hmac
import json
import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from kernel.parcel import FORMAT, MANIFEST, SALT_BYTES, SUM, VERSION, NotWritten, Row, Table, key_of, place_of
from kernel.sealing import encrypt

LEVEL = 3


class Writer:
    """Writes a file beside its place and puts it there when it is whole; readable by its owner only.

    NotWritten where that can't be, or another process writes to the same place.
    """

    def __init__(self, path: Path, *, passphrase: str = "") -> None:
        self._path, self._part = path, path.with_name(path.name + ".part")
        self._salt = os.urandom(SALT_BYTES) if passphrase else b""
        self._key = key_of(passphrase, self._salt) if passphrase else b""
        self._id = os.urandom(SALT_BYTES).hex()
        self._tables: dict[str, Table] = {}
        try:
            self._file = os.fdopen(_alone(self._part), "wb")
        except OSError as error:
            raise self._not_written(error) from error
        self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL)

    def __enter__(self) -> "Writer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._part.unlink(missing_ok=True)
            with suppress(OSError, ValueError):
                self._zip.close()
            with suppress(OSError):  # closed all the same
                self._file.close()
        if isinstance(error, OSError) and error.errno is not None:
            raise self._not_written(error) from error

    def _not_written(self, error: OSError) -> NotWritten:
        return NotWritten(f"{self._path} can't be written: {error.strerror}.")

    @property
    def seals(self) -> bool:
        """Whether sealed tables can be written."""
        return bool(self._key)

    def table(self, name: str, columns: Sequence[str], rows: Iterable[Row], *, sealed: bool = False) -> Table:
        """Writes a table, row by row."""
        count, size, digest = 0, 0, hashlib.sha256()
        with self._zip.open(f"tables/{name}.ndjson", "w", force_zip64=True) as out:
            for row in rows:
                line = line_of(row)
                if sealed:
                    line = base64.b64encode(encrypt(self._key, line, place_of(self._id, name, count)))
                out.write(line + b"\n")
                count, size = count + 1, size + len(line) + 1
                digest.update(line + b"\n")
        self._tables[name] = Table(name, tuple(columns), count, size, digest.hexdigest(), sealed)
        return self._tables[name]

    def finish(self, about: Mapping[str, Any]) -> str:
        """Writes what is in it and puts the file in its place; its digest."""
        told = {
            "format": FORMAT, "version": VERSION, "id": self._id, "salt": self._salt.hex(), "about": about,
            "tables": [
                {
                    "name": one.name, "columns": one.columns, "rows": one.rows, "bytes": one.size,
                    "sha256": one.sha256, "sealed": one.sealed,
                }
                for one in self._tables.values()
            ],
        }  # fmt: skip
        text = json.dumps(told, indent=1, default=str).encode()
        digest = hashlib.sha256(text).hexdigest()
        sums = {"sha256": digest, "hmac": hmac.digest(self._key, text, "sha256").hex() if self._key else ""}
        self._zip.writestr(MANIFEST, text)
        self._zip.writestr(SUM, json.dumps(sums))
        self._zip.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._part.replace(self._path)  # while it is still ours
        self._file.close()
        return digest


def line_of(row: Row) -> bytes:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()


def _alone(part: Path) -> int:
    """The file to write to, empty; what a killed process left is taken over, what is being written is not."""
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), os.stat(part)):
            raise BlockingIOError(errno.EWOULDBLOCK, "another process writes to it")
        os.fchmod(descriptor, 0o600)
        os.ftruncate(descriptor, 0)
    except BlockingIOError as error:
        os.close(descriptor)
        raise BlockingIOError(errno.EWOULDBLOCK, "another process writes to it") from error
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
