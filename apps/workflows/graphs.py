"""Graphs of workflows' versions for the hot paths: read once a process, then remembered. Safe from any thread."""

import logging
import threading
from collections import OrderedDict
from collections.abc import Collection
from typing import Any, NamedTuple
from uuid import UUID

import orjson
import psycopg
from psycopg import sql

from apps.workflows.definition import from_json
from apps.workflows.graph import Graph, graph_of

log = logging.getLogger(__name__)
Conn = psycopg.Connection[Any]
Version = tuple[UUID, int]
REMEMBERED_STEPS = 200_000  # of all graphs together

_READ = """
SELECT v.job_id, v.version, v.target::text FROM {schema}.schedules_jobversion v
JOIN unnest(%s::uuid[], %s::int[]) AS m(job_id, version) ON m.job_id = v.job_id AND m.version = v.version
"""


class _Memory(NamedTuple):
    graphs: "OrderedDict[tuple[str, UUID, int], Graph]"
    lock: threading.Lock


_memory = _Memory(OrderedDict(), threading.Lock())


def graphs_of(conn: Conn, schema: str, wanted: Collection[Version]) -> dict[Version, Graph]:
    """Graphs by (workflow, version), shared by all who ask: nobody may change them. Unreadable ones are left out."""
    with _memory.lock:
        found = {key: _memory.graphs[(schema, *key)] for key in set(wanted) if (schema, *key) in _memory.graphs}
        for key in found:
            _memory.graphs.move_to_end((schema, *key))
    missing = set(wanted) - found.keys()
    if not missing:
        return found
    query = sql.SQL(_READ).format(schema=sql.Identifier(schema))
    new = {}
    for row in conn.execute(query, [[key[0] for key in missing], [key[1] for key in missing]]):
        try:
            new[row[0], row[1]] = graph_of(from_json(orjson.loads(row[2])))
        except (KeyError, TypeError, ValueError):
            log.exception("version %d of workflow %s in %s can't be read", row[1], row[0], schema)
    with _memory.lock:
        _memory.graphs.update({(schema, *key): graph for key, graph in new.items()})
        steps = sum(len(graph.steps) for graph in _memory.graphs.values())
        while steps > REMEMBERED_STEPS and len(_memory.graphs) > 1:
            steps -= len(_memory.graphs.popitem(last=False)[1].steps)
    return found | new
