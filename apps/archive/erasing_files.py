"""Erasing executions from archives: what goes with them there, and files that are written anew without contents."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
import pyarrow.compute as pc

from apps.archive import catalogue, erasing_rows, holds
from apps.archive.catalogue import Batch
from apps.archive.emptying import CONTENTS, GONE, emptied
from apps.archive.files import Store, store
from apps.archive.holds import Hold
from apps.archive.models import ENDED_STATES
from apps.archive.opening import table_reading
from apps.archive.reading import archived_range
from apps.archive.rewriting import batch_rewrite, remove_files, throw_away
from apps.archive.rows import Row, rows_of
from apps.archive.tables import EXECUTIONS, RUNS, STEPS, UNIT
from apps.archive.writing import BatchLost
from apps.executions.filtering import ExecutionFilter
from kernel.errors import ShardbeatError
from kernel.eventtypes import DELIVERY
from kernel.keyset import Position
from tenants.models import Tenant

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
PAGE = 500


class Family(NamedTuple):
    """What is archived of an execution and of what goes with it. `beside`: rows of the same runs that do not go."""

    rows: Mapping[UUID, Row]
    beside: Mapping[UUID, Row]


def family(conn: Conn, tenant: Tenant, execution_id: UUID, *, everything: bool, limit: int) -> Family:
    """Follows an execution through tables and files; nothing where no file may hold any of it.

    ArchiveOff, ArchiveUnreachable and ArchiveDamaged when files can't be read.
    """
    rows: dict[UUID, Row] = {}
    beside: dict[UUID, Row] = {}
    seen, todo = set[UUID](), {execution_id}
    while todo and len(seen) <= limit:
        hot = erasing_rows.belonging(conn, tenant.schema_name, todo, everything=everything, limit=limit + 1)
        cold = hot - seen - erasing_rows.present(conn, tenant.schema_name, hot)
        seen |= hot
        todo = set()
        for key in sorted(cold):
            if key not in rows:  # else its run was read when the first of it came by
                found = _with_unit(conn, tenant, key)
                if not found:
                    continue
                going = _going(found, key, everything=everything)
                beside |= found
                rows |= {one: found[one] for one in going}
                todo |= going
                if everything:
                    todo |= {found[one]["replay_of"] for one in going if found[one]["replay_of"] is not None}
            if everything:
                todo |= set(_run_again(tenant, key))
        todo -= seen
    return Family(rows, {key: row for key, row in beside.items() if key not in rows})


def erase_from_files(conn: Conn, tenant: Tenant, ids: Collection[UUID]) -> set[UUID]:
    """Writes the files anew that hold anything of these; those of these of which something may be left.

    Not in a transaction: it takes long, and each step is one by itself.
    """
    schema = tenant.schema_name
    open_holds = holds.open_holds(conn, schema)
    left = _held_since(conn, tenant, ids, open_holds)
    ids = set(ids) - left

    def no_other_hold() -> bool:
        holds.share(conn, schema)
        return holds.open_holds(conn, schema) == open_holds

    for batch in catalogue.with_files(conn, schema, from_id=min(ids)) if ids else ():
        ours = {key for key in ids if batch.max_id is None or key <= batch.max_id}  # told of, if not in it
        try:
            if batch.state in ENDED_STATES:
                remove_files(conn, schema, store(), batch)
            elif batch.abandoned and batch.state in ("writing", "written"):  # a process died in it
                throw_away(conn, schema, store(), batch)
            elif batch.state != "done":
                left |= ours  # somebody works at it
            elif contents := _contents(store(), batch, ours):
                batch_rewrite(conn, tenant, store(), batch, edit=partial(emptied, ids=contents), still=no_other_hold)
        except (BatchLost, psycopg.errors.LockNotAvailable):  # the next run comes by
            left |= ours
        except ShardbeatError as error:
            log.warning("the archive of tenant %s can't be erased from now: %s", tenant.slug, error.detail)
            left |= ours
    return left


def _held_since(conn: Conn, tenant: Tenant, ids: Collection[UUID], found: Sequence[Hold]) -> set[UUID]:
    """Those of these that are archived and that a hold covers which was placed since they were asked for."""
    return {key for key in ids if found and any(holds.covered(found, _with_unit(conn, tenant, key).values()))}


def may_be_in_files(conn: Conn, schema: str, ids: Collection[UUID]) -> bool:
    """Whether some file may hold or tell of one of these."""
    return bool(catalogue.with_files(conn, schema, from_id=min(ids)))


def _with_unit(conn: Conn, tenant: Tenant, key: UUID) -> dict[UUID, Row]:
    """An archived execution and all of the workflow's run that it is a part of, each with what it `started`."""
    for batch in catalogue.holding(conn, tenant.schema_name, key):
        own = rows_of(batch, EXECUTIONS, "id", [key.bytes])
        if not own:
            continue
        found = {row["id"]: row for row in rows_of(batch, EXECUTIONS, UNIT, [own[0][UNIT].bytes])}
        steps = rows_of(batch, STEPS, "run_id", [one.bytes for one in found])
        started: dict[UUID, set[UUID]] = {}
        for step in steps:
            if step["execution_id"] is not None:
                started.setdefault(step["run_id"], set()).add(step["execution_id"])
        return {one: {**row, "started": started.get(one, set())} for one, row in found.items()}
    return {}


def _going(found: Mapping[UUID, Row], key: UUID, *, everything: bool) -> set[UUID]:
    if everything:
        return set(found)
    going, todo = set[UUID](), {key}
    while todo:
        one = todo.pop()
        going.add(one)
        below = set(found[one]["started"]) | {
            other for other, row in found.items() if row["workflow_run_id"] == one and other != one
        }
        todo |= (below & set(found)) - going
    return going


def _run_again(tenant: Tenant, key: UUID) -> Iterable[UUID]:
    """Archived executions that ran this one again."""
    after: Position | None = None
    while True:
        page = archived_range(tenant, ExecutionFilter(replay_of=key), after=after, size=PAGE)
        yield from (row.id for row in page.rows)
        if page.after is None:
            return
        after = page.after


def _contents(files: Store, batch: Batch, ids: Collection[UUID]) -> set[UUID]:
    """Those of these of which the batch holds more than that they were, and deliveries that tell of one."""
    keys = [one.bytes for one in ids]
    found = set[UUID]()
    for table, columns in ((EXECUTIONS, ("id",)), (RUNS, ("execution_id",)), (STEPS, ("execution_id", "run_id"))):
        for column in columns:
            rows = rows_of(batch, table, column, keys)
            found |= {row[column] for row in rows if any(row.get(name) for name in CONTENTS[table])}
    for table in GONE:
        found |= {row[table.owner] for row in rows_of(batch, table, table.owner, keys)}
    return found | _deliveries(files, batch, ids)


def _deliveries(files: Store, batch: Batch, ids: Collection[UUID]) -> set[UUID]:
    told = "|".join(str(one) for one in ids)
    found = set[UUID]()
    with table_reading(files, batch, EXECUTIONS) as reader:
        for number in range(reader.group_count):
            kinds = pc.equal(reader.group(number, ["trigger"]).column("trigger"), DELIVERY)
            if not pc.any(kinds).as_py():
                continue
            rows = reader.group(number, ["id", "payload"]).filter(kinds)
            rows = rows.filter(pc.fill_null(pc.match_substring_regex(rows.column("payload"), told), False))
            found |= {UUID(bytes=one) for one in rows.column("id").to_pylist()}
    return found
