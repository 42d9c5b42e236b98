"""What a batch's manifest says: which files, how many rows, of which columns, with which checksums."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from apps.archive.catalogue import FORMAT, Batch
from apps.archive.errors import ArchiveDamaged
from apps.archive.tables import Column, Table

MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class File:
    """A Parquet file as it was written, with the columns that its table had then."""

    rows: int
    bytes: int
    sha256: str
    columns: list[Column] = field(default_factory=list)


def manifest_text(batch: Batch, files: Mapping[Table, File], *, schema: str, low: str, high: str) -> bytes:
    """The manifest of a batch."""
    return orjson.dumps(
        {
            "format": FORMAT, "schema": schema, "batch": str(batch.id), "day": batch.day.isoformat(), "seq": batch.seq,
            "begun_at": batch.created_at.isoformat(), "min_id": low, "max_id": high,
            "files": {
                table.file: {
                    "table": table.table, "rows": one.rows, "bytes": one.bytes, "sha256": one.sha256,
                    "columns": {column.name: column.type for column in one.columns},
                }
                for table, one in files.items()
            },
        },
        option=orjson.OPT_INDENT_2,
    )  # fmt: skip


def manifest_files(text: bytes, path: str) -> dict[str, File]:
    """The files that a manifest tells of, by their names. ArchiveDamaged when it is none, or a newer version's."""
    try:
        told: dict[str, Any] = orjson.loads(text)
        if told["format"] > FORMAT:
            raise ArchiveDamaged(f"{path} has the form {told['format']}; this version reads up to {FORMAT}.")
        return {
            name: File(one["rows"], one["bytes"], one["sha256"], [Column(*column) for column in one["columns"].items()])
            for name, one in told["files"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArchiveDamaged(f"{path} is no manifest: {error!r}") from error
