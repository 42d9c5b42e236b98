"""The examples of docs/limits.md are accepted as they stand, and its table has every code in its order."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import psycopg

from tests.fixtures_api import Api

PAGE = (Path(__file__).resolve().parents[2] / "docs/limits.md").read_text()


def test_its_examples_are_accepted(api: Api, conn: psycopg.Connection[Any]) -> None:
    blocks = re.findall(r"^```json\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    jobs = {}
    for one in [json.loads(block) for block in blocks if '"kind"' in block]:
        made = api.post("jobs", one)
        assert made.status == 201, made.body
        assert {name: made.body[name] for name in one} == one
        jobs[one["name"]] = made.body["id"]
    assert len(jobs) == 4
    [batch] = [block for block in blocks if "$JOB" in block]
    done = api.post("executions/bulk", json.loads(batch.replace("$JOB", jobs["invoices of a customer"])))
    assert done.body["succeeded"] == 4
    keys = conn.execute("SELECT key, flow_limit FROM tickets_ticket ORDER BY execution_id").fetchall()
    assert keys == [("/customer/id=1", 1)] * 3 + [("/customer/id=2", 1)]


def test_its_table_is_the_list_of_admission() -> None:
    from apps.dispatch.admission import CODES

    table = PAGE.partition("## What holds a run back\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(CODES)
