"""The examples of docs/jobs.md are run as they stand there, but for the host."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apps.schedules.job_input import JobRules, read_job
from kernel.addressrules import USUAL
from kernel.httprules import RESERVED_HEADERS, TARGET_FIELDS
from kernel.templates import FILTERS, NAMES
from tests.executors.receiver import Receiver
from tests.executors.works import Results, make_work
from workers.executors.http import HttpExecutor

HTTP = (Path(__file__).parents[2] / "docs" / "jobs.md").read_text().partition("## HTTP\n")[2].partition("\n## ")[0]
EXAMPLES = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", HTTP, re.DOTALL)]
HOST = "https://hooks.example.com"


@pytest.mark.parametrize("job", EXAMPLES, ids=[str(job["name"]) for job in EXAMPLES])
def test_an_example_runs(running: Callable[[Any], Any], receiver: Receiver, results: Results, job: Any) -> None:
    form = read_job(job, rules=JobRules(USUAL, 262_144, ()))
    target = {**form.definition.target, "url": str(job["target"]["url"]).replace(HOST, receiver.url("").rstrip("/"))}
    executor: HttpExecutor = running(HttpExecutor(slots=1))
    work = make_work("http", target, payload=form.definition.payload, labels=form.labels, nominal_at=None, run_key="r1")
    executor.submit([work], results)
    assert results.of(work).outcome == "succeeded"
    (request,) = receiver.requests
    if job["name"] == "nightly report":
        assert (request.method, request.path) == ("PUT", "/json/7?day=today")
        assert request.headers["x-team"] == "billing"
        assert json.loads(request.body) == {"customer": {"id": 7}, "format": "pdf", "run": "r1"}


def test_all_that_there_is_is_named() -> None:
    for name in (*TARGET_FIELDS, *FILTERS, *NAMES):
        assert f"`{name}" in HTTP or f"{name}`" in HTTP, name
    assert "idempotency-key" in RESERVED_HEADERS
