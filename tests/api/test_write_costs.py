"""What a write costs in statements, which is most of what it costs in time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.makers import JOB, MINUTELY, Makers
from tests.fixtures_api import Api


@pytest.mark.parametrize(("path", "most"), [("schedules", 7), ("jobs", 6), ("executions", 10)])
def test_one_create(api: Api, make: Makers, statements: list[str], path: str, most: int) -> None:
    job = make.job()["id"]

    def body(number: int) -> dict[str, Any]:
        if path == "schedules":
            return {"name": f"s{number}", "job": job, "trigger": MINUTELY}
        return {**JOB, "name": f"j{number}"} if path == "jobs" else {"job": job}

    assert api.post(path, body(0)).status in (201, 202)  # the first of a process reads more
    statements.clear()
    assert api.post(path, body(1)).status in (201, 202)
    assert len(statements) <= most, statements


def test_many_calendars_and_jobs_are_no_more_statements(api: Api, make: Makers, statements: list[str]) -> None:
    jobs = [make.job()["id"] for _ in range(5)]
    for number in range(5):
        assert api.post("calendars", {"name": f"c{number}", "weekdays": ["sat"]}).status == 201
    items = [
        {"name": f"s{number}", "job": jobs[number % 5], "calendar": f"C{number % 5}", "trigger": {"every_s": 60}}
        for number in range(50)
    ]
    statements.clear()
    assert api.post("schedules/bulk", {"items": items}).body["succeeded"] == 50
    assert len(statements) <= 12, statements
