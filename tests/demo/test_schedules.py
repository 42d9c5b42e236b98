"""The demo's schedules are what people run, and each is one that the platform takes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import demo
from apps.schedules.timing import TimingInvalid, next_after, spec_from_api

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
LINES = (Path(demo.__file__).parent / "schedules.jsonl").read_text().splitlines()
ROWS: list[dict[str, Any]] = [json.loads(line) for line in LINES]


def test_there_are_some_hundred_with_names_of_their_own() -> None:
    assert len(ROWS) > 400
    assert len({row["name"] for row in ROWS}) == len(ROWS)


def test_each_is_accepted_and_will_run() -> None:
    refused = {row["name"]: problem for row in ROWS if (problem := problem_of(row))}
    assert refused == {}


def problem_of(row: dict[str, Any]) -> str:
    trigger = {name: row[name] for name in ("cron", "every_s") if name in row}
    timezone = {"timezone": row["timezone"]} if "timezone" in row else {}
    assert set(row) == {"name", *trigger, *timezone}
    try:
        spec = spec_from_api({"trigger": trigger, **timezone}, now=NOW, key=row["name"])
    except TimingInvalid as error:
        return str([fault.detail for fault in error.errors])
    return "" if next_after(spec, NOW) else "never runs"
