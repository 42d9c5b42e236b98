"""The Docker Engine client against exchanges with the API, its failures included. No daemon is needed."""

from __future__ import annotations

import io
import json
import socket
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import wait_until
from tests.executors.replayed import Replayed, a_work
from tests.executors.works import Results, key_of
from workers.executors.base import Result
from workers.executors.container_docker import DockerRuntime

MAKE = ("list-none", "created", "put", "list-created", "started")
READ = ("artefact", "logs")
WHOLE = (*MAKE, "wait", "inspect-ended", *READ, "inspect-ended", "removed")


@pytest.fixture
def docker(running: Callable[[Any], Any], results: Results) -> Iterator[Replayed]:
    made = Replayed("docker", DockerRuntime, running, results)
    yield made
    made.close()


def why(result: Result) -> Any:
    assert result.error
    return result.error["class"]


def test_a_container_is_made_started_read_and_removed(docker: Replayed) -> None:
    result = docker.run(*WHOLE)
    assert (result.outcome, result.error) == ("succeeded", None)
    assert result.result == {
        "exit_code": 0, "output": {"rows": 3}, "output_is": "json", "truncated": False, "stdout": "hello\nbye\n",
        "stderr": "a warning\n", "stdout_bytes": 10, "stderr_bytes": 10,
    }  # fmt: skip
    assert docker.replay
    assert [name for name in docker.replay.seen if name != "sweep-nothing"] == list(WHOLE)


def test_what_it_is_given(docker: Replayed) -> None:
    target = {
        "environment": {"A": "b", "T": {"secret": "T"}},
        "network": "egress",
        "scratch_mb": 4,
        "working_dir": "/srv",
    }
    docker.run(
        "list-none", "create-no-image", "list-none", pull="never",
        work=a_work(target=target, payload={"n": 1}, secrets={"T": "t0ken"}),
    )  # fmt: skip
    assert docker.replay
    body = json.loads(docker.replay.bodies["create-no-image"])
    assert {"A=b", "T=t0ken", "SHARDBEAT_PAYLOAD_FILE=/shardbeat/payload.json"} <= set(body["Env"])
    assert (body["WorkingDir"], body["NetworkDisabled"]) == ("/srv", False)
    assert body["HostConfig"]["NetworkMode"] == "egress"
    assert body["HostConfig"]["Tmpfs"] == {"/tmp": "rw,nosuid,nodev,exec,mode=1777,size=4m"}
    assert body["HostConfig"]["LogConfig"]["Config"]["max-size"] == "1m"


def test_payload_and_an_empty_artefact_go_in_by_archive(docker: Replayed) -> None:
    docker.run(*WHOLE, work=a_work(payload={"n": 1}))
    assert docker.replay
    with tarfile.open(fileobj=io.BytesIO(docker.replay.bodies["put"])) as archive:
        payload, result = archive.getmembers()
        read = archive.extractfile(payload)
        assert read and read.read() == b'{"n":1}'
    assert (payload.name, payload.mode, payload.uid) == ("payload.json", 0o444, 0)
    assert (result.name, result.size, result.mode, result.uid) == ("result", 0, 0o600, 65534)


def test_over_a_unix_socket_as_daemons_have_it(docker: Replayed, tmp_path: Path) -> None:
    assert docker.run(*WHOLE, socket=tmp_path / "d.sock").outcome == "succeeded"


# --- images ---


def test_a_missing_image_is_pulled_when_the_operator_says_so(docker: Replayed) -> None:
    script = ("list-none", "create-no-image", "pulled", *WHOLE[1:])
    assert docker.run(*script).outcome == "succeeded"


def test_always_pulling(docker: Replayed) -> None:
    assert docker.run("list-none", "pulled", *WHOLE[1:], pull="always").outcome == "succeeded"


def test_never_pulling_is_final(docker: Replayed) -> None:
    result = docker.run("list-none", "create-no-image", "list-none", pull="never")
    assert (why(result), result.retryable) == ("image_missing", False)


@pytest.mark.parametrize(("answer", "said"), [("pull-failed", "toomanyrequests"), ("pull-unknown", "manifest unknown")])
def test_a_pull_that_fails_may_be_tried_again(docker: Replayed, answer: str, said: str) -> None:
    result = docker.run("list-none", "create-no-image", answer, "list-none")
    assert (why(result), result.retryable) == ("image_missing", True)
    assert result.error and said in result.error["message"]


# --- taking over ---

REST = ("old-inspect-mine", "old-artefact", "old-logs", "old-inspect-mine", "old-removed")


def test_the_container_of_a_dead_worker_is_taken_over_not_started_twice(docker: Replayed) -> None:
    result = docker.run("list-orphan", "old-inspect-running", "taken-over", "old-wait", *REST)
    assert (result.outcome, result.result and result.result["output"]) == ("succeeded", {"rows": 3})


def test_one_that_has_ended_meanwhile_counts_too(docker: Replayed) -> None:
    result = docker.run("list-orphan-ended", "old-inspect-ended", "taken-over", "old-wait", *REST)
    assert result.outcome == "succeeded"


def test_its_time_runs_since_it_started(docker: Replayed) -> None:
    script = ("list-orphan", "old-inspect-running", "taken-over", "old-wait-for-ever")
    stop = ("old-inspect-mine-running", "old-mine-marked", "old-term", "old-wait-until-term", "old-inspect-mine")
    result = docker.run(
        *script, *stop, "old-artefact-none", "old-logs", "old-inspect-mine", "old-removed",
        work=a_work(timeout_s=4), always=("sweep-nothing", "old-inspect-running", "old-wait-until-kill"),
    )  # fmt: skip
    assert result.outcome == "timed_out"
    assert (result.finished_at - result.started_at).total_seconds() < 3


@pytest.mark.parametrize("left", ["list-orphan-ending", "list-orphan-created", "list-orphan-late"])
def test_what_can_not_go_on_is_removed_before_another_starts(docker: Replayed, left: str) -> None:
    looked = () if left == "list-orphan-created" else ("old-inspect-running",)
    result = docker.run(left, *looked, "old-inspect-running", "old-removed", *WHOLE[1:])
    assert result.outcome == "succeeded"


def test_when_it_can_not_be_taken_over_another_is_made(docker: Replayed) -> None:
    result = docker.run(
        "list-orphan", "old-inspect-running", "take-over-too-late", "old-inspect-running", "old-removed", *WHOLE[1:]
    )
    assert result.outcome == "succeeded"


def test_one_that_turns_up_late_is_gone_before_ours_starts(docker: Replayed) -> None:
    script = (
        "list-none",
        "created",
        "put",
        "list-both",
        "old-inspect-running",
        "old-inspect-running",
        "old-removed",
        *WHOLE[4:],
    )
    assert docker.run(*script).outcome == "succeeded"


def test_a_newer_attempt_has_the_right_of_way(docker: Replayed) -> None:
    result = docker.run("list-newer", "inspect-newer")
    assert (result.outcome, why(result)) == ("lost", "superseded")


def test_also_when_both_are_made_at_the_same_time(docker: Replayed) -> None:
    result = docker.run("list-none", "created", "put", "list-mine-and-newer", "inspect-ended", "removed")
    assert (result.outcome, why(result)) == ("lost", "superseded")


def test_a_name_that_is_taken_is_our_own_whose_answer_was_lost(docker: Replayed) -> None:
    script = ("list-none", "create-conflict", "list-mine-running", "inspect-running", "wait", "inspect-ended")
    assert docker.run(*script, *READ, "inspect-ended", "removed").outcome == "succeeded"


def test_a_name_that_stays_taken_fails_the_attempt(docker: Replayed) -> None:
    result = docker.run(*("list-none", "create-conflict") * 4, "list-none")
    assert (why(result), result.retryable) == ("container_failed", True)


def test_a_worker_that_was_frozen_leaves_alone_what_another_has_taken_over(docker: Replayed) -> None:
    result = docker.run(*MAKE, "wait", "inspect-ended", *READ, "inspect-anothers")
    assert result.outcome == "succeeded"  # and stale: another attempt is what runs


def test_also_when_it_is_told_to_stop(docker: Replayed) -> None:
    executor = docker.executor(
        *MAKE, "inspect-anothers", *READ, "inspect-anothers", always=("sweep-nothing", "wait-until-term")
    )
    executor.submit([work := a_work()], docker.results)
    wait_until(lambda: docker.replay and "started" in docker.replay.seen)
    assert executor.cancel(*key_of(work))
    assert docker.results.of(work).outcome == "cancelled"
    docker.check()


# --- failures ---


def test_out_of_memory_is_told_apart(docker: Replayed) -> None:
    result = docker.run(*MAKE, "wait", "inspect-oom", "artefact-none", "logs", "inspect-ended", "removed")
    assert (why(result), result.error and result.error["exit_code"]) == ("oom_killed", 137)
    assert docker.replay


def test_killed_is_not_out_of_memory(docker: Replayed) -> None:
    result = docker.run(*MAKE, "wait", "inspect-killed", "artefact-none", "logs", "inspect-ended", "removed")
    assert (why(result), result.error and result.error["exit_code"]) == ("exit_code", 137)


def test_an_exit_code_with_its_last_words(docker: Replayed) -> None:
    result = docker.run(*MAKE, "wait", "inspect-failed", "artefact-none", "logs", "inspect-ended", "removed")
    assert result.error == {
        "class": "exit_code", "message": "The container ended with exit code 3.", "exit_code": 3,
        "output_end": "a warning",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("script", "class_", "retryable"),
    [
        (("list-none", "create-bad", "list-none"), "bad_target", False),
        (("list-none", "create-failed", "list-none"), "container_failed", True),
        (("list-none", "created", "put-failed", "inspect-ended", "removed", "list-none"), "container_failed", True),
        (
            ("list-none", "created", "put", "list-created", "start-failed", "inspect-ended", "removed"),
            "container_failed",
            True,
        ),
        (
            ("list-none", "created", "put", "list-created", "start-no-command", "inspect-ended", "removed"),
            "command_failed",
            False,
        ),
    ],
)
def test_what_the_daemon_refuses(docker: Replayed, script: tuple[str, ...], class_: str, retryable: bool) -> None:
    result = docker.run(*script)
    assert (result.outcome, why(result), result.retryable) == ("failed", class_, retryable)


def test_a_busy_daemon_costs_no_attempt(docker: Replayed) -> None:
    result = docker.run("list-none", "create-busy", "list-none")
    assert (result.outcome, result.retry_after_s) == ("returned", 5.0)


def test_a_slow_daemon_costs_no_attempt_and_leaves_nothing(docker: Replayed) -> None:
    executor = docker.executor("list-none", "create-slow", "list-created", "inspect-ended", "removed", request_s=0.3)
    executor.submit([work := a_work()], docker.results)
    assert docker.results.of(work).outcome == "returned"
    docker.check()
    assert executor.free() == 0  # for a moment: it is offered nothing that it can't run


def test_a_daemon_that_is_away_costs_no_attempt(docker: Replayed, results: Results, running: Any) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = "http://{}:{}".format(*unused.getsockname())
    executor = docker.executor()
    executor._runtime._api._base = url + "/v1.41"  # type: ignore[attr-defined]  # nobody listens there
    executor.submit([work := a_work()], results)
    result = results.of(work)
    assert (result.outcome, why(result)) == ("returned", "container_failed")


def test_waiting_goes_on_after_the_connection_broke(docker: Replayed) -> None:
    result = docker.run(*MAKE, "wait-cut", "wait", "inspect-ended", *READ, "inspect-ended", "removed")
    assert result.outcome == "succeeded"


def test_a_container_that_somebody_removed_is_lost(docker: Replayed) -> None:
    result = docker.run(*MAKE, "wait-gone", "inspect-gone")
    assert (result.outcome, why(result), result.retryable) == ("lost", "container_gone", True)


@pytest.mark.parametrize("answer", ["logs-cut", "logs-failed"])
def test_logs_that_break_off_cost_the_output_not_the_outcome(docker: Replayed, answer: str) -> None:
    result = docker.run(*MAKE, "wait", "inspect-ended", "artefact", answer, "inspect-ended", "removed")
    assert result.outcome == "succeeded"
    assert result.result and result.result["logs_complete"] is False
    if answer == "logs-cut":
        assert (result.result["stdout"], result.result["stderr"]) == ("hello\n", "a wa")


def test_a_link_is_no_artefact(docker: Replayed) -> None:
    result = docker.run(*MAKE, "wait", "inspect-ended", "artefact-link", "logs", "inspect-ended", "removed")
    assert result.result and result.result["output"] is None


def test_a_huge_artefact_is_cut(docker: Replayed) -> None:
    result = docker.run(*MAKE, "wait", "inspect-ended", "artefact-huge", "logs", "inspect-ended", "removed")
    assert result.result and result.result["truncated"] is True
    assert len(json.dumps(result.result)) < 65_536


def test_a_removal_that_somebody_else_began_is_waited_for(docker: Replayed) -> None:
    script = (*WHOLE[:-1], "remove-in-progress", "removed")
    assert docker.run(*script).outcome == "succeeded"


def test_a_removal_that_fails_is_left_to_the_sweep(docker: Replayed) -> None:
    assert docker.run(*WHOLE[:-1], "remove-failed").outcome == "succeeded"


# --- stopping ---


def test_cancel_terminates_and_then_kills(docker: Replayed) -> None:
    stop = ("inspect-running", "marked", "term", "inspect-running", "kill", "inspect-killed")
    executor = docker.executor(
        *MAKE, *stop, "artefact-none", "logs", "inspect-ended", "removed", always=("sweep-nothing", "wait-until-kill")
    )
    executor.submit([work := a_work()], docker.results)
    assert docker.replay
    seen = docker.replay.seen
    wait_until(lambda: "wait-until-kill" in seen or "started" in seen)
    assert executor.cancel(*key_of(work))
    assert docker.results.of(work, within_s=3).outcome == "cancelled"
    docker.check()
    assert seen.index("marked") < seen.index("term") < seen.index("kill") < seen.index("removed")


def test_hand_back_removes_the_container_too(docker: Replayed) -> None:
    stop = ("inspect-running", "marked", "term", "inspect-killed")
    executor = docker.executor(
        *MAKE, *stop, "artefact-none", "logs", "inspect-ended", "removed", always=("sweep-nothing", "wait-until-term")
    )
    executor.submit([work := a_work()], docker.results)
    assert docker.replay
    wait_until(lambda: docker.replay and "started" in docker.replay.seen)
    executor.stop(0.1)
    assert docker.results.of(work, within_s=0).outcome == "returned"
    docker.check()


# --- the sweep ---


def test_the_sweep_removes_only_what_is_ours_and_nobodys(docker: Replayed) -> None:
    asked: list[Any] = []

    def alive(keys: Any) -> Any:
        asked.extend(keys)
        return {}

    docker.executor("sweep-three", "inspect-aaa1", "remove-aaa1", "inspect-aaa2", "remove-aaa2", alive=alive)
    wait_until(lambda: docker.replay and not docker.replay.left)
    docker.check()
    assert [fence for _, fence in asked] == [3, 4]


def test_the_sweep_keeps_what_waits_for_its_next_attempt_until_its_time_is_up(docker: Replayed) -> None:
    docker.executor("sweep-three", "inspect-aaa2", "remove-aaa2", alive=lambda keys: dict.fromkeys(keys, "waiting"))
    wait_until(lambda: docker.replay and not docker.replay.left)
    docker.check()


def test_the_sweep_keeps_what_runs_on_another_worker(docker: Replayed) -> None:
    docker.executor("sweep-three", alive=lambda keys: dict.fromkeys(keys, "running"))
    wait_until(lambda: docker.replay and not docker.replay.left)
    assert docker.run(*WHOLE).outcome == "succeeded"


def test_a_sweep_that_fails_is_no_harm(docker: Replayed) -> None:
    assert docker.run("sweep-unavailable", *WHOLE).outcome == "succeeded"
