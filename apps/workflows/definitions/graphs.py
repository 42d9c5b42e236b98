"""Graphs of stored versions of workflows, for the hot paths: read once a process, then remembered."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import orjson
import psycopg
from psycopg import sql

from apps.workflows.definitions.definition import from_json
from apps.workflows.definitions.graph import Graph, graph_of

# Of all graphs together, in edges: an edge takes about 300 bytes, a step five times as much. So 90 MB at most.
REMEMBERED_EDGES = 300_000
STEP_WEIGHT = 5


class Graphs:
    """Remembers graphs by schema, workflow and version. Not shared between threads."""

    def __init__(self) -> None:
        self._graphs: OrderedDict[tuple[str, UUID, int], Graph] = OrderedDict()
        self._weight = 0

    def load(
        self, conn: psycopg.Connection[Any], schema: str, wanted: Iterable[tuple[UUID, int]]
    ) -> dict[tuple[UUID, int], Graph]:
        """Graphs by (workflow, version); one query for those not known. Missing or unreadable ones are left out."""
        keys = set(wanted)
        found = {key: self._graphs[(schema, *key)] for key in keys if (schema, *key) in self._graphs}
        missing = [key for key in keys if key not in found]
        if missing:
            query = sql.SQL(
                "SELECT v.job_id, v.version, v.target::text FROM {}.schedules_jobversion v"
                " JOIN unnest(%s::uuid[], %s::int[]) AS m(job_id, version)"
                " ON m.job_id = v.job_id AND m.version = v.version"
            ).format(sql.Identifier(schema))
            for job_id, version, target in conn.execute(
                query, [[key[0] for key in missing], [key[1] for key in missing]]
            ):
                try:
                    graph = graph_of(from_json(orjson.loads(target)))
                except (ValueError, TypeError, KeyError):
                    continue
                found[(job_id, version)] = graph
                self._keep((schema, job_id, version), graph)
        for key in found:
            if (schema, *key) in self._graphs:
                self._graphs.move_to_end((schema, *key))
        return found

    def _keep(self, key: tuple[str, UUID, int], graph: Graph) -> None:
        self._graphs[key] = graph
        self._weight += _weight(graph)
        while self._weight > REMEMBERED_EDGES:
            _, oldest = self._graphs.popitem(last=False)
            self._weight -= _weight(oldest)


def _weight(graph: Graph) -> int:
    return STEP_WEIGHT * len(graph.steps) + sum(map(len, graph.children.values()))
