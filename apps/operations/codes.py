"""Why items of an operation were skipped or failed, counted by code."""

from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from tenants.statements import run_in

Conn = psycopg.Connection[Any]
COUNTED_MAX = 10_000

# The narrow index has the rows; a look at more of them would say little more.
_CODES = """
SELECT state, code, count(*), min(n), min(detail) FROM (
    SELECT state, code, detail, n FROM {schema}.operations_item
    WHERE operation_id = $1 AND state IN ('skipped', 'failed') ORDER BY n LIMIT $2) bad
GROUP BY 1, 2 ORDER BY 3 DESC
"""


class Reason(NamedTuple):
    """A code, how many of the first COUNTED_MAX bad items have it, the first of them, and what one of them says."""

    state: str
    code: str
    many: int
    first_n: int
    detail: str

    @property
    def before(self) -> int:
        """Where a page begins that has the first of them on top."""
        return self.first_n - 1


def reasons_read(conn: Conn, schema: str, operation_id: UUID) -> list[Reason]:
    """The commonest first."""
    return [Reason(*row) for row in run_in(conn, _CODES, schema, [operation_id, COUNTED_MAX])]
