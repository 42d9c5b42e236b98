"""The store of the files: a folder, or S3-compatible, whatever fsspec reaches. Paths are relative to ARCHIVE_URL."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, BinaryIO

import orjson
from django.conf import settings

from apps.archive.errors import ArchiveDamaged, ArchiveOff, ArchiveUnreachable

READ_BYTES = 1 << 20


def store() -> "Store":
    """The store that ARCHIVE_URL names; ArchiveOff when it names none."""
    if not settings.ARCHIVE_URL:
        raise ArchiveOff()
    return _opened(settings.ARCHIVE_URL, orjson.dumps(settings.ARCHIVE_OPTIONS, option=orjson.OPT_SORT_KEYS))


@lru_cache(maxsize=4)
def _opened(url: str, options: bytes) -> "Store":
    return Store(url, orjson.loads(options))


class Sink:
    """A file that is being written: counts its bytes and hashes them. pyarrow writes to it as to a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._hash = file, hashlib.sha256()
        self.bytes = 0
        self.closed = False
        self.given_up = False  # pyarrow still writes a footer when its writer is thrown away

    def write(self, data: Any) -> int:
        view = memoryview(data)
        if self.given_up:
            return view.nbytes
        self._file.write(view)
        self._hash.update(view)
        self.bytes += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        self._file.flush()

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


class Store:
    """Files below one address. ArchiveUnreachable when it does not answer, ArchiveDamaged when a file is missing."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        from fsspec.core import url_to_fs  # loaded where there is an archive
        from fsspec.implementations.local import LocalFileSystem

        try:
            # What others wrote is seen at once: nothing that was listed is remembered.
            fs, root = url_to_fs(url, use_listings_cache=False, skip_instance_cache=True, **options)
        except (ImportError, ValueError, TypeError) as error:
            raise ArchiveUnreachable(f"ARCHIVE_URL or ARCHIVE_OPTIONS can't be used: {error}") from error
        self._fs: Any = fs
        self._root = str(root).rstrip("/")
        self._local = isinstance(fs, LocalFileSystem)
        self._faults = _faults(self._fs)

    @contextmanager
    def create(self, path: str) -> Iterator[Sink]:
        """A new file. It is whole, and on disk where the store is a folder, when the block ends."""
        with self._guard(path):
            full = self._full(path)
            if self._local:
                os.makedirs(os.path.dirname(full), exist_ok=True)
            with self._fs.open(full, "wb") as file:
                sink = Sink(file)
                try:
                    yield sink
                    if self._local:
                        file.flush()
                        os.fsync(file.fileno())
                except BaseException:
                    sink.given_up = True
                    raise
            sink.closed = True
            if self._local:
                _sync_folders(os.path.dirname(full), self._root)

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        """A file to read from."""
        with self._guard(path), self._fs.open(self._full(path), "rb", block_size=READ_BYTES) as file:
            yield file

    def read(self, path: str) -> bytes:
        """A small file."""
        with self.open(path) as file:
            return bytes(file.read())

    def digest(self, path: str) -> tuple[int, str]:
        """Bytes and SHA-256 of a file as it is now, read to its end."""
        found, size = hashlib.sha256(), 0
        with self.open(path) as file:
            while block := file.read(READ_BYTES):
                found.update(block)
                size += len(block)
        return size, found.hexdigest()

    def remove(self, folder: str) -> None:
        """Removes a folder with all its files, if it is there."""
        with self._guard(folder):
            try:
                self._fs.rm(self._full(folder), recursive=True)
            except FileNotFoundError:
                return

    def files(self, folder: str) -> list[str]:
        """Paths of all files below a folder."""
        with self._guard(folder):
            found = self._fs.find(self._full(folder))
        return sorted(str(one)[len(self._root) + 1 :] for one in found)

    def folders(self) -> list[str]:
        """Names of the folders right below the address."""
        with self._guard(""):
            try:
                found = self._fs.ls(self._root, detail=True)
            except FileNotFoundError:  # nothing was ever written
                return []
        return sorted(str(one["name"]).rstrip("/").rpartition("/")[2] for one in found if one["type"] == "directory")

    def check(self) -> None:
        """ArchiveUnreachable when the store does not answer, or has no such bucket; a folder is made when needed."""
        place = self._root if self._local else self._root.partition("/")[0]
        try:
            with self._guard(place):
                self._fs.ls(place)
        except ArchiveDamaged as error:
            if not self._local:
                raise ArchiveUnreachable(f"There is no {place} in the archive's store.") from error

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}"

    @contextmanager
    def _guard(self, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise ArchiveDamaged(f"{path} is missing in the archive.") from error
        except self._faults as error:
            raise ArchiveUnreachable(f"The archive's store failed at {path}: {error}") from error


def _faults(fs: Any) -> tuple[type[Exception], ...]:
    """What the store raises when it does not answer."""
    if "s3" not in fs.protocol:
        return (OSError,)
    from botocore.exceptions import BotoCoreError, ClientError

    return (OSError, BotoCoreError, ClientError)


def _sync_folders(folder: str, root: str) -> None:
    """A new file's name is on disk only when the folders that hold it are."""
    while len(folder) >= len(root):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        folder = os.path.dirname(folder)
