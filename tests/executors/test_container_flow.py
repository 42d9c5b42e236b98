"""A container job from the API to its result, with a real dispatcher, a real worker and runc."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import wait_until
from tests.executors.rootfs import IMAGE
from tests.executors.works import case
from tests.fixtures_api import Api
from tests.processes import Processes, kill

ENDED = ("succeeded", "dead", "cancelled")
INSTALLATION = "flow"


@pytest.fixture
def runc(settings: Any, rootfs: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of a worker that serves containers; the API knows the same."""
    settings.CONTAINER_RUNTIME, settings.CONTAINER_ROOTFS = "runc", {IMAGE: str(rootfs)}
    return {
        "WORKER_POOLS": "container", "CONTAINER_RUNTIME": "runc", "CONTAINER_ROOTFS": f"{IMAGE}={rootfs}",
        "CONTAINER_RUNC_DIR": str(tmp_path / "runc"), "INSTALLATION": INSTALLATION, "CONTAINER_SLOTS": "2",
    }  # fmt: skip


@pytest.fixture
def boxes(runc: dict[str, str]) -> Iterator[Path]:
    path = Path(runc["CONTAINER_RUNC_DIR"], INSTALLATION, "boxes")
    yield path


class Jobs:
    """Submits shell scripts and waits for what becomes of them."""

    def __init__(self, api: Api) -> None:
        self.api, self.count = api, 0

    def submit(self, script: str, *, payload: Any = None, target: dict[str, Any] | None = None, **job: Any) -> str:
        self.count += 1
        made = self.api.post(
            "jobs",
            {
                "name": f"container {self.count}", "kind": "container",
                "target": {"image": IMAGE, "command": ["sh", "-c", script], **(target or {})}, **job,
            },
        )  # fmt: skip
        assert made.status == 201, made.body
        submitted = self.api.post("executions", {"job": made.body["id"], "payload": payload})
        assert submitted.status == 202, submitted.body
        return str(submitted.body["id"])

    def read(self, execution: str) -> dict[str, Any]:
        read: dict[str, Any] = self.api.get(f"executions/{execution}").body
        return read

    def ended(self, execution: str, *, within_s: float | None = None) -> dict[str, Any]:
        wait_until(lambda: self.read(execution)["state"] in ENDED, f"the end of {execution}", timeout_s=within_s)
        return self.read(execution)

    def attempts(self, execution: str) -> list[str]:
        listed = self.api.get(f"executions/{execution}/attempts").body["items"]
        return [one["state"] for one in sorted(listed, key=lambda one: one["number"])]


@pytest.fixture
def jobs(api: Api) -> Jobs:
    return Jobs(api)


@pytest.mark.timeout(180)
def test_containers_run_fail_stop_and_survive_their_worker(
    jobs: Jobs, processes: Processes, runc: dict[str, str], boxes: Path
) -> None:
    processes.dispatcher()
    worker = processes.worker(**runc)
    good = jobs.submit("cp $SHARDBEAT_PAYLOAD_FILE $SHARDBEAT_RESULT_FILE; echo done", payload={"rows": [1, 2]})
    ended = jobs.ended(good, within_s=60)
    assert (ended["state"], ended["attempt_count"]) == ("succeeded", 1)
    assert ended["result"]["output"] == {"rows": [1, 2]}
    assert ended["result"]["stdout"] == "done\n"

    assert jobs.api.post("secrets", {"name": "TOKEN", "value": "hunter22"}).status == 201
    environment = {"TOKEN": {"secret": "TOKEN"}, "API_KEY": "written down"}
    shown = jobs.ended(jobs.submit("echo $TOKEN ${#TOKEN} ${#API_KEY} $API_KEY", target={"environment": environment}))
    assert (shown["state"], shown["result"]["stdout"]) == ("succeeded", "*** 8 12 ***\n")

    once = {"max_attempts": 2, "base_s": 0, "jitter": "none"}
    never = jobs.ended(jobs.submit("exit 64", target={"exit_codes": {"never_on": [64]}}, retry=once))
    assert (never["state"], never["attempt_count"], never["error"]["exit_code"]) == ("dead", 1, 64)
    hungry = jobs.submit(
        "exec tail -c 100000000 /dev/zero", target={"memory_mb": 16}, retry={**once, "never_on": ["oom_killed"]}
    )
    out_of_memory = jobs.ended(hungry)
    assert (out_of_memory["state"], out_of_memory["attempt_count"]) == ("dead", 1)
    assert out_of_memory["error"]["class"] == "oom_killed"
    assert out_of_memory["result"]["exit_code"] == 137

    slow = jobs.submit("sleep 100", timeout_s=1, retry={"max_attempts": 1})
    assert jobs.ended(slow)["error"]["class"] == "timeout"

    cancelled = jobs.submit("trap '' TERM; while :; do sleep 0.1; done")
    wait_until(lambda: jobs.read(cancelled)["state"] == "running" and running(boxes), "the container to run")
    begun = time.monotonic()
    assert jobs.api.post(f"executions/{cancelled}/cancel").status in (200, 202)
    assert jobs.ended(cancelled)["state"] == "cancelled"
    assert time.monotonic() - begun < 4  # three, and the settling
    wait_until(lambda: not any(boxes.iterdir()), "all containers to be removed")

    survivor = jobs.submit("[ $SHARDBEAT_ATTEMPT = 2 ] || sleep 100; echo $SHARDBEAT_ATTEMPT", retry=once, timeout_s=60)
    wait_until(lambda: running(boxes), "the container of the first attempt")
    (init,) = running(boxes)
    kill(worker)
    wait_until(lambda: not Path(f"/proc/{init}").exists(), "the container to end with its worker", timeout_s=5)
    processes.worker(**runc)
    ended = jobs.ended(survivor, within_s=60)
    assert (ended["state"], ended["result"]["stdout"]) == ("succeeded", "2\n")
    assert jobs.attempts(survivor) == ["lost", "succeeded"]
    wait_until(lambda: not any(boxes.iterdir()), "all containers to be removed")


@pytest.mark.timeout(180)
def test_a_stopping_worker_hands_its_container_back(
    jobs: Jobs, processes: Processes, runc: dict[str, str], boxes: Path
) -> None:
    processes.dispatcher()
    first = processes.worker(**runc, WORKER_GRACE_S="1")
    execution = jobs.submit(
        "[ $SHARDBEAT_ATTEMPT = 2 ] || sleep 100; echo $SHARDBEAT_ATTEMPT", retry={"max_attempts": 1}, timeout_s=90
    )
    wait_until(lambda: boxes.is_dir() and running(boxes), "the container to run", timeout_s=60)
    os.kill(first.pid, signal.SIGTERM)
    assert first.wait(40) == 0
    assert not any(boxes.iterdir())
    processes.worker(**runc)
    ended = jobs.ended(execution, within_s=60)
    assert (ended["state"], ended["result"]["stdout"]) == ("succeeded", "2\n")
    assert jobs.attempts(execution) == ["returned", "succeeded"]


@pytest.mark.timeout(180)
def test_a_crash_each_time_is_final_within_its_attempts(jobs: Jobs, processes: Processes, runc: dict[str, str]) -> None:
    """Case C28 for containers: known within minutes, with the exit code, and in as many attempts as were asked for."""
    given = case("worker", "C28")
    assert given["every_attempt"] == "exit 139"
    processes.dispatcher()
    processes.worker(**runc)
    begun = time.monotonic()
    retry = {"max_attempts": given["max_attempts"], "base_s": 1, "jitter": "none"}
    execution = jobs.submit("sh -c 'kill -SEGV $$'; exit $?", retry=retry)
    ended = jobs.ended(execution, within_s=60)
    assert time.monotonic() - begun < given["expected"]["total_time_to_final_s_max"]
    assert (ended["state"], ended["attempt_count"]) == ("dead", 2)
    assert (ended["error"]["class"], ended["error"]["exit_code"]) == ("exit_code", 139)
    assert jobs.attempts(execution) == ["failed", "failed"]

    # Case C03 for containers: killed for memory, it is tried again, and each attempt says why.
    hungry = jobs.submit("exec tail -c 100000000 /dev/zero", target={"memory_mb": 16}, retry=retry)
    assert jobs.ended(hungry, within_s=60)["state"] == "dead"
    listed = jobs.api.get(f"executions/{hungry}/attempts").body["items"]
    assert [(one["state"], one["error"]["class"]) for one in listed] == [("failed", "oom_killed")] * 2


def test_without_a_runtime_the_kind_is_refused(api: Api) -> None:
    target = {"image": IMAGE, "command": ["true"]}
    refused = api.post("jobs", {"name": "x", "kind": "container", "target": target})
    assert refused.faults == {"/kind": "kind_not_offered"}


def test_a_job_comes_back_as_it_was_given(api: Api, runc: dict[str, str]) -> None:
    target = {
        "image": IMAGE, "command": ["sh", "-c", "true"], "args": ["x"], "environment": {"A": "b"}, "cpu": 0.25,
        "memory_mb": 64, "pids": 16, "scratch_mb": 8, "network": "none", "working_dir": "/tmp", "user": "1000:1000",
        "payload_as": "env", "exit_codes": {"success": [0, 3], "retry_on": [75], "never_on": [64]},
    }  # fmt: skip
    made = api.post("jobs", {"name": "all", "kind": "container", "target": target})
    assert (made.status, made.body["target"]) == (201, target)
    refused = api.post(
        "jobs", {"name": "x", "kind": "container", "target": {**target, "image": "other", "cpu": 9, "mounts": []}}
    )
    assert refused.faults == {
        "/target/image": "image_not_allowed", "/target/cpu": "range", "/target/mounts": "unknown_field",
    }  # fmt: skip


def running(boxes: Path) -> list[int]:
    """Process ids of the containers that run now."""
    found = []
    for path in boxes.glob("*/pid"):
        text = path.read_text()
        if text and Path(f"/proc/{text}").exists():
            found.append(int(text))
    return found
