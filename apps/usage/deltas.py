"""Writing what was done into the transaction that did it: one row, which no other transaction touches."""

from datetime import datetime
from typing import Any

import orjson
import psycopg

from apps.usage.figures import Tally

Conn = psycopg.Connection[Any]

_ADD = "INSERT INTO usage_delta (minute, counts, failures) VALUES (date_trunc('minute', %s), %s, %s)"


def add(conn: Conn, tally: Tally, *, now: datetime) -> None:
    """Adds these figures to the minute of `now`, when the current transaction commits. Fit for a pipeline."""
    rows, failures = tally.rows(), tally.failures()
    if rows or failures:
        noted = orjson.dumps(failures).decode() if failures else None
        conn.execute(_ADD, [now, orjson.dumps(rows).decode(), noted])
