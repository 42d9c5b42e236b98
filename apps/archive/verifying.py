"""Holding a batch's files against its row of the catalogue and against their own manifest."""

import hashlib
from typing import NamedTuple

import pyarrow as pa

from apps.archive.catalogue import Batch
from apps.archive.errors import ArchiveDamaged
from apps.archive.files import Store
from apps.archive.manifest import MANIFEST, File, manifest_files
from apps.archive.parquet import reading
from apps.archive.tables import TABLES, Table


class Finding(NamedTuple):
    """What is wrong, and with which file."""

    kind: str  # missing, damaged, changed, rows
    path: str
    detail: str


def batch_check(store: Store, batch: Batch) -> list[Finding]:
    """Reads all files of a batch to their ends; what is wrong with them. ArchiveUnreachable when they can't be read."""
    return _check(store, batch)[0]


def batch_sound(store: Store, batch: Batch) -> dict[str, File]:
    """The files of a batch by their names. ArchiveDamaged when anything is wrong with it."""
    wrong, files = _check(store, batch)
    if wrong:
        raise ArchiveDamaged(f"{wrong[0].path}: {wrong[0].detail}")
    return files


def _check(store: Store, batch: Batch) -> tuple[list[Finding], dict[str, File]]:
    """What is wrong, and the files that the manifest tells of."""
    path = f"{batch.path}/{MANIFEST}"
    try:
        text = store.read(path)
        if hashlib.sha256(text).hexdigest() != batch.manifest_sha256:
            return [Finding("changed", path, "The manifest is not the one that the catalogue knows.")], {}
        files = manifest_files(text, path)
    except ArchiveDamaged as error:
        return [Finding("damaged", path, error.detail)], {}
    found = []
    for table in TABLES:
        known, rows = files.get(table.file), batch.counts.get(table.name, 0)
        if (known.rows if known else 0) != rows:
            found.append(Finding("rows", path, f"{known.rows if known else 0} rows of {table.name} instead of {rows}."))
        if known is not None:
            found += _file(store, batch, table, known)
    return found, files


def _file(store: Store, batch: Batch, table: Table, known: File) -> list[Finding]:
    path = f"{batch.path}/{table.file}"
    try:
        if store.digest(path) != (known.bytes, known.sha256):
            return [Finding("changed", path, "The file is not the one that was written.")]
        with reading(store, path) as reader:
            read = sum(one.num_rows for one in reader.tables())
    except (ArchiveDamaged, pa.ArrowException) as error:
        return [Finding("damaged", path, str(error))]
    return [] if read == known.rows else [Finding("rows", path, f"{read} rows instead of {known.rows}.")]
