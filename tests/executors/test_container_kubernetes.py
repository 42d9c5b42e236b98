"""The Kubernetes client against exchanges with the API, its failures included. No cluster is needed."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import wait_until
from tests.executors.replayed import Replayed, a_work
from tests.executors.works import Results, key_of
from workers.executors.base import Result
from workers.executors.container_kubernetes import KubernetesRuntime

MAKE = ("list-none", "created", "secret", "list-mine", "resumed")
READ = ("pod-ended", "pod-ended", "log")
REMOVE = ("job", "deleted", "gone")
WHOLE = (*MAKE, "job", "no-pod", "watch", *READ, *REMOVE)


@pytest.fixture
def kubernetes(running: Callable[[Any], Any], results: Results, tmp_path: Path) -> Iterator[Replayed]:
    (tmp_path / "namespace").write_text("jobs\n")
    (tmp_path / "token").write_text("t0ken\n")

    def make(url: str, **options: Any) -> KubernetesRuntime:
        return KubernetesRuntime(url, account=tmp_path, **options)

    made = Replayed("kubernetes", make, running, results)
    yield made
    made.close()


def why(result: Result) -> Any:
    assert result.error
    return result.error["class"]


def test_a_job_is_made_resumed_watched_read_and_deleted(kubernetes: Replayed) -> None:
    result = kubernetes.run(*WHOLE)
    assert (result.outcome, result.error) == ("succeeded", None)
    assert result.result == {
        "exit_code": 0, "output": {"rows": 3}, "output_is": "json", "truncated": False,
        "stdout": "hello\na warning\nbye\n", "stdout_bytes": 20,
    }  # fmt: skip
    assert kubernetes.replay
    assert [name for name in kubernetes.replay.seen if name != "sweep-nothing"] == list(WHOLE)


def test_what_it_is_given(kubernetes: Replayed) -> None:
    target = {"environment": {"A": "b", "T": {"secret": "T"}}, "network": "egress", "cpu": 0.25, "memory_mb": 64}
    script = ("list-none", "created-otherwise", *WHOLE[2:])
    kubernetes.run(*script, work=a_work(target=target, payload={"n": 1}, secrets={"T": "t0p"}))
    assert kubernetes.replay
    job, secret = (json.loads(kubernetes.replay.bodies[name]) for name in ("created-otherwise", "secret"))
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "busybox:1.36"
    assert (container["command"], container["args"]) == (["sh", "-c"], ["echo hello"])
    assert container["resources"]["limits"] == {"cpu": "250m", "memory": "64Mi"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "privileged": False,
        "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert container["terminationMessagePath"] == "/shardbeat/result"
    assert pod["volumes"][1]["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Mi"}
    assert "t0p" not in json.dumps(job)
    assert {one["name"] for one in container["env"]} >= {"A", "T", "SHARDBEAT_RUN_KEY"}
    values = {name: base64.b64decode(value).decode() for name, value in secret["data"].items()}
    assert (values["payload.json"], values["A"], values["T"]) == ('{"n":1}', "b", "t0p")
    assert len(job["metadata"]["name"]) <= 63
    assert all(len(value) <= 63 for value in job["metadata"]["labels"].values())


def test_a_secret_that_was_left_is_replaced(kubernetes: Replayed) -> None:
    script = ("list-none", "created", "secret-conflict", "secret-replaced", *WHOLE[3:])
    assert kubernetes.run(*script).outcome == "succeeded"


# --- taking over ---

ADOPT = ("list-orphan", "old-job", "taken-over")
OLD_REST = ("old-pod-ended", "old-pod-ended", "old-log", "old-job-mine", "old-deleted", "old-gone")


def test_the_job_of_a_dead_worker_is_taken_over_not_started_twice(kubernetes: Replayed) -> None:
    result = kubernetes.run(*ADOPT, "old-job", "old-pod-running", "old-watch", *OLD_REST)
    assert (result.outcome, result.result and result.result["output"]) == ("succeeded", {"rows": 3})


def test_one_that_has_ended_meanwhile_counts_too(kubernetes: Replayed) -> None:
    script = ("list-orphan-ended", "old-job", "taken-over", "old-job", "old-pod-ended", *OLD_REST)
    assert kubernetes.run(*script).outcome == "succeeded"


@pytest.mark.parametrize("left", ["list-orphan-deleting", "list-orphan-suspended"])
def test_what_can_not_go_on_is_deleted_before_another_starts(kubernetes: Replayed, left: str) -> None:
    script = (left, "old-job", "old-deleted", "old-deleting", "old-gone", *WHOLE[1:])
    assert kubernetes.run(*script).outcome == "succeeded"


def test_who_is_too_late_to_take_over_makes_another(kubernetes: Replayed) -> None:
    script = ("list-orphan", "old-job", "take-over-conflict", "old-job", "old-deleted", "old-gone", *WHOLE[1:])
    assert kubernetes.run(*script).outcome == "succeeded"


def test_one_that_turns_up_late_is_gone_before_ours_starts(kubernetes: Replayed) -> None:
    script = ("list-none", "created", "secret", "list-both", "old-job", "old-deleted", "old-gone", *WHOLE[4:])
    assert kubernetes.run(*script).outcome == "succeeded"


def test_a_newer_attempt_has_the_right_of_way(kubernetes: Replayed) -> None:
    result = kubernetes.run("list-newer")
    assert (result.outcome, why(result)) == ("lost", "superseded")


def test_also_when_both_are_made_at_the_same_time(kubernetes: Replayed) -> None:
    result = kubernetes.run("list-none", "created", "secret", "list-mine-and-newer", *REMOVE)
    assert (result.outcome, why(result)) == ("lost", "superseded")


def test_a_name_that_is_taken_is_our_own_whose_answer_was_lost(kubernetes: Replayed) -> None:
    script = ("list-none", "create-conflict", "list-mine-running", "job", "pod-running", "watch", *READ, *REMOVE)
    assert kubernetes.run(*script).outcome == "succeeded"


def test_a_worker_that_was_frozen_leaves_alone_what_another_has_taken_over(kubernetes: Replayed) -> None:
    result = kubernetes.run(*MAKE, "job", "no-pod", "watch", *READ, "job-anothers")
    assert result.outcome == "succeeded"  # and stale: another attempt is what runs


# --- how it ends ---


@pytest.mark.parametrize(
    ("pod", "class_", "code", "retryable"),
    [
        ("pod-failed", "exit_code", 3, True),
        ("pod-oom", "oom_killed", 137, True),
        ("pod-no-command", "command_failed", None, False),
        ("pod-evicted", "container_gone", None, True),
        ("pod-no-image", "image_missing", None, True),
        ("pod-bad-image", "image_missing", None, False),
    ],
)
def test_pods_that_end_badly(kubernetes: Replayed, pod: str, class_: str, code: int | None, retryable: bool) -> None:
    read = (pod, pod, "log") if code is not None else ()
    result = kubernetes.run(*MAKE, "job", pod, *read, *REMOVE)
    assert (result.outcome, why(result), result.retryable) == ("failed", class_, retryable)
    assert result.error and result.error.get("exit_code") == code


def test_a_pod_that_was_deleted_from_outside(kubernetes: Replayed) -> None:
    script = (*MAKE, "job", "pod-running", "watch-pod-deleted", "job-failed", "no-pod", *REMOVE)
    result = kubernetes.run(*script)
    assert (result.outcome, why(result)) == ("failed", "container_gone")


def test_a_job_that_was_deleted_from_outside_is_lost(kubernetes: Replayed) -> None:
    result = kubernetes.run(*MAKE, "job", "pod-running", "watch-pod-deleted", "gone", "gone")
    assert (result.outcome, why(result), result.retryable) == ("lost", "container_gone", True)


def test_the_clusters_own_deadline_is_a_time_out(kubernetes: Replayed) -> None:
    script = (*MAKE, "job-late", "no-pod", "no-pod", *REMOVE, "gone")
    assert kubernetes.run(*script).outcome == "timed_out"


@pytest.mark.parametrize("broken", ["watch-expires", "watch-cut", "watch-too-old"])
def test_watching_goes_on_whatever_ends_it(kubernetes: Replayed, broken: str) -> None:
    script = (*MAKE, "job", "pod-running", broken, "job", "pod-running", "watch", *READ, *REMOVE)
    assert kubernetes.run(*script).outcome == "succeeded"


@pytest.mark.parametrize("answer", ["log-cut", "log-failed"])
def test_logs_that_break_off_cost_the_output_not_the_outcome(kubernetes: Replayed, answer: str) -> None:
    result = kubernetes.run(*MAKE, "job", "no-pod", "watch", "pod-ended", "pod-ended", answer, *REMOVE)
    assert result.outcome == "succeeded"
    assert result.result and result.result["logs_complete"] is False
    assert result.result["stdout"] == ("hello\na warn" if answer == "log-cut" else "")


@pytest.mark.parametrize(
    ("script", "class_", "retryable"),
    [
        (("list-none", "create-invalid", "list-none"), "bad_target", False),
        (("list-none", "create-forbidden", "list-none"), "container_failed", True),
        (("list-none", "create-failed", "list-none"), "container_failed", True),
        (("list-none", "created", "secret-failed", *REMOVE, "list-none"), "container_failed", True),
        (("list-none", "created", "secret", "list-mine", "resume-failed", *REMOVE), "container_failed", True),
    ],
)
def test_what_the_api_refuses(kubernetes: Replayed, script: tuple[str, ...], class_: str, retryable: bool) -> None:
    result = kubernetes.run(*script)
    assert (result.outcome, why(result), result.retryable) == ("failed", class_, retryable)


def test_a_busy_api_costs_no_attempt(kubernetes: Replayed) -> None:
    result = kubernetes.run("list-none", "create-busy", "list-none")
    assert (result.outcome, result.retry_after_s) == ("returned", 5.0)


def test_a_slow_api_costs_no_attempt_and_leaves_nothing(kubernetes: Replayed) -> None:
    result = kubernetes.run("list-none", "create-slow", "list-mine", *REMOVE, request_s=0.3)
    assert result.outcome == "returned"


# --- stopping ---

STOP = ("pod-running", "log", "job", "deleted", "deleting", "gone", "gone")


def test_cancel_deletes_the_job_with_its_pods_and_keeps_nothing(kubernetes: Replayed) -> None:
    executor = kubernetes.executor(*MAKE, "job", "pod-running", "watch-for-ever", *STOP)
    executor.submit([work := a_work()], kubernetes.results)
    wait_until(lambda: kubernetes.replay and "watch-for-ever" in kubernetes.replay.seen)
    assert executor.cancel(*key_of(work))
    assert kubernetes.results.of(work, within_s=3).outcome == "cancelled"
    kubernetes.check()


def test_a_time_out_keeps_what_was_said(kubernetes: Replayed) -> None:
    script = ("list-none", "created-otherwise", *MAKE[2:], "job", "pod-running", "watch-for-ever", *STOP)
    result = kubernetes.run(*script, work=a_work(timeout_s=0.5))
    assert result.outcome == "timed_out"
    assert result.result and result.result["stdout"] == "hello\na warning\nbye\n"


def test_hand_back_deletes_the_job_too(kubernetes: Replayed) -> None:
    executor = kubernetes.executor(*MAKE, "job", "pod-running", "watch-for-ever", *STOP)
    executor.submit([work := a_work()], kubernetes.results)
    wait_until(lambda: kubernetes.replay and "watch-for-ever" in kubernetes.replay.seen)
    executor.stop(0.1)
    assert kubernetes.results.of(work, within_s=0).outcome == "returned"
    kubernetes.check()


# --- the sweep ---


def test_the_sweep_deletes_what_is_nobodys(kubernetes: Replayed) -> None:
    kubernetes.executor(
        "sweep-two",
        "other-job",
        "delete-other",
        "other-gone",
        "late-job",
        "delete-late",
        "late-gone",
        alive=lambda keys: {},
    )
    wait_until(lambda: kubernetes.replay and not kubernetes.replay.left)
    kubernetes.check()


def test_the_sweep_keeps_what_waits_for_its_next_attempt(kubernetes: Replayed) -> None:
    waiting = lambda keys: dict.fromkeys(keys, "waiting")  # noqa: E731
    kubernetes.executor("sweep-two", "late-job", "delete-late", "late-gone", alive=waiting)
    wait_until(lambda: kubernetes.replay and not kubernetes.replay.left)
    kubernetes.check()
