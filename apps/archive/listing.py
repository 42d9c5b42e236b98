"""Lists of archived executions: rows by the highest id that a group holds, and no file before its ids come up."""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from typing import Any, NamedTuple
from uuid import UUID

import orjson
import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from apps.archive.catalogue import Batch
from apps.archive.erasing_rows import present
from apps.archive.files import Store, store
from apps.archive.opening import table_reading
from apps.archive.parquet import Reader
from apps.archive.reading import LAST_ID
from apps.archive.rows import execution_row, rows_told
from apps.archive.tables import EXECUTIONS, TIME_TYPE
from apps.executions.filtering import ExecutionFilter
from apps.executions.reading import ExecutionRow
from kernel.eventtypes import DELIVERY
from kernel.keyset import LOOK_ROWS, Page, Position

Conn = psycopg.Connection[Any]
Row = Mapping[str, Any]
_LISTED = (
    "id", "run_key", "job_id", "job_version", "schedule_id", "schedule_version", "trigger", "state", "priority",
    "nominal_at", "until_at", "count", "actual_at", "created_at", "queued_at", "started_at", "finished_at",
    "attempt_count", "result", "error", "reason", "replay_of", "workflow_run_id", "step", "fired_by", "labels",
)  # fmt: skip


def page_of(
    conn: Conn, schema: str, batches: Sequence[Batch], wanted: ExecutionFilter, *, low: UUID, high: UUID, size: int
) -> Page[ExecutionRow]:
    """The newest executions that fit, with ids between `low` and `high`, both exclusive (`reading.archived_range`)."""
    found: list[ExecutionRow] = []
    with ExitStack() as opened:
        pile = _Pile(opened, batches, wanted, low, high)
        sure: list[ExecutionRow] = []
        for batch, rows in pile.rows(size + 1):
            found += _cold(conn, schema, batch, rows)
            # What stands above all that was not looked at has its place for good.
            sure = [one for one in found if one.id > pile.next_id]
            if len(sure) > size or (pile.looked >= LOOK_ROWS and pile.came_on):
                break
        sure.sort(key=lambda one: one.id, reverse=True)
        if len(sure) > size:
            return Page(sure[:size], Position(sure[size - 1].id))
        return Page(sure, Position(UUID(int=pile.next_id.int + 1)) if pile.more else None)


class _Group(NamedTuple):
    batch: Batch
    reader: Reader
    number: int


class _Rows(NamedTuple):
    """Rows that fit, but for what their JSON says; by descending id."""

    batch: Batch
    table: pa.Table


class _Pile:
    """Batches, once opened their groups of rows, once read their rows, by the highest id that each may hold."""

    def __init__(
        self, opened: ExitStack, batches: Sequence[Batch], wanted: ExecutionFilter, low: UUID, high: UUID
    ) -> None:
        self._opened, self._wanted, self._low, self._high = opened, wanted, low, high
        self._heap: list[tuple[int, int, Batch | _Group | _Rows]] = []
        self._store: Store | None = None
        self._numbers = count()
        self.looked = 0
        for batch in batches:
            self._push(batch.max_id or LAST_ID, batch)

    @property
    def more(self) -> bool:
        return bool(self._heap)

    @property
    def next_id(self) -> UUID:
        """No row that was not looked at has a higher id."""
        return min(UUID(int=-self._heap[0][0]), UUID(int=self._high.int - 1)) if self._heap else self._low

    @property
    def came_on(self) -> bool:
        """Whether a page that ends here goes on below where it began."""
        return self.next_id.int + 1 < self._high.int

    def rows(self, size: int) -> Iterator[tuple[Batch, list[Row]]]:
        """The rows that fit, so many at a time; none after each group that was read."""
        while self._heap:
            one = heapq.heappop(self._heap)[2]
            if isinstance(one, Batch):
                self._open(one)
            elif isinstance(one, _Group):
                table = one.reader.group(one.number, _LISTED)
                self.looked += table.num_rows
                self._push_rows(one.batch, _fitting(table, self._wanted, self._low, self._high))
                yield one.batch, []
            else:
                self._push_rows(one.batch, one.table.slice(size))
                yield one.batch, [row for row in rows_told(one.table.slice(0, size)) if _fits_json(row, self._wanted)]

    def _open(self, batch: Batch) -> None:
        self._store = self._store or store()
        reader = self._opened.enter_context(table_reading(self._store, batch, EXECUTIONS))
        for group in reader.groups("id"):
            least, most = UUID(bytes=group.least), UUID(bytes=group.most)
            if least < self._high and most > self._low:
                self._push(most, _Group(batch, reader, group.number))

    def _push_rows(self, batch: Batch, table: pa.Table) -> None:
        if table.num_rows:
            self._push(UUID(bytes=table.column("id")[0].as_py()), _Rows(batch, table))

    def _push(self, highest: UUID, one: "Batch | _Group | _Rows") -> None:
        heapq.heappush(self._heap, (-highest.int, next(self._numbers), one))


def _fitting(table: pa.Table, wanted: ExecutionFilter, low: UUID, high: UUID) -> pa.Table:
    """The rows of a group that fit, but for what their JSON says; by descending id."""
    column = table.column
    masks = []
    for name, values in (
        ("state", wanted.states or None), ("job_id", wanted.job_ids), ("trigger", wanted.triggers or None),
        ("schedule_id", _one(wanted.schedule_id)), ("run_key", _one(wanted.run_key)),
        ("replay_of", _one(wanted.replay_of)), ("workflow_run_id", _one(wanted.workflow_run_id)),
    ):  # fmt: skip
        if values is not None:
            plain = [one.bytes if isinstance(one, UUID) else one for one in values]
            masks.append(pc.is_in(column(name), pa.array(plain, column(name).type)))
    if not wanted.triggers and wanted.run_key is None and wanted.job_ids is None and wanted.schedule_id is None:
        masks.append(pc.not_equal(column("trigger"), DELIVERY))
    for name in ("created", "nominal", "started", "finished"):
        for compare, end in ((pc.greater, "after"), (pc.less, "before")):
            instant = getattr(wanted, f"{name}_{end}")
            if instant is not None:
                masks.append(compare(column(f"{name}_at"), pa.scalar(instant, TIME_TYPE)))
    if masks:
        fits = masks[0]
        for mask in masks[1:]:
            fits = pc.and_(fits, mask)
        table = table.filter(fits)
    ids: list[bytes] = table.column("id").to_pylist()
    fitting = [number for number, key in enumerate(ids) if low.bytes < key < high.bytes]
    return table.take(pa.array(sorted(fitting, key=ids.__getitem__, reverse=True), pa.int64()))


def _one(value: Any) -> list[Any] | None:
    return None if value is None else [value]


def _fits_json(row: Row, wanted: ExecutionFilter) -> bool:
    if wanted.error_class is not None:
        error = orjson.loads(row["error"]) if row["error"] else {}
        if error.get("class") != wanted.error_class:
            return False
    if wanted.labels:
        labels = orjson.loads(row["labels"]) if row["labels"] else {}
        return all(labels.get(name) == value for name, value in wanted.labels.items())
    return True


def _cold(conn: Conn, schema: str, batch: Batch, rows: list[Row]) -> list[ExecutionRow]:
    """Without those that the tables have, too."""
    if batch.state != "done" and rows:
        hot = present(conn, schema, [one["id"] for one in rows])
        rows = [one for one in rows if one["id"] not in hot]
    return [execution_row(one) for one in rows]
