"""Which executions files and tables say the same of."""

from typing import Any

import pyarrow as pa

from apps.archive.chunks import Chunk
from apps.archive.tables import ATTACHED, EXECUTIONS, Table


def same_executions(filed: Chunk, hot: Chunk) -> set[bytes]:
    """Executions of which files and tables say the same, to the last column of the last row."""
    common = set(filed.ids()) & set(hot.ids())
    if not common:
        return common
    changed: set[bytes] = set()
    for table in (EXECUTIONS, *ATTACHED):
        changed |= _changed(_rows(filed, table), _rows(hot, table), table, common)
    return common - changed


def _rows(chunk: Chunk, table: Table) -> pa.Table | None:
    return chunk.executions if table is EXECUTIONS else chunk.attached.get(table)


def _changed(filed: pa.Table | None, hot: pa.Table | None, table: Table, common: set[bytes]) -> set[bytes]:
    """Owners whose rows differ."""
    if filed is not None and hot is not None and filed.equals(hot):
        return set()
    found = _by_owner(filed, table), _by_owner(hot, table)
    return {owner for owner in common if found[0].get(owner) != found[1].get(owner)}


def _by_owner(rows: pa.Table | None, table: Table) -> dict[bytes, list[dict[str, Any]]]:
    found: dict[bytes, list[dict[str, Any]]] = {}
    for row in rows.to_pylist() if rows is not None else ():
        found.setdefault(row[table.owner], []).append(row)
    return found
