"""Containers of runc, for real: limits, isolation, what they are given and what is kept of them, and who ends them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kernel.clock import utc_now
from kernel.containerrules import ContainerRules
from tests.conftest import wait_until
from tests.executors.container_rig import INSTALLATION, RULES, ContainerRig, shell
from tests.executors.works import Results, key_of
from workers.executors.base import Result, Work
from workers.executors.container import ContainerExecutor
from workers.executors.container_box import box_of
from workers.executors.container_bundle import config_of

ROOT = Path(__file__).resolve().parents[2]


def run(containers: ContainerRig, results: Results, work: Work, **options: Any) -> Result:
    containers.executor(**options).submit([work], results)
    return results.of(work)


def said(result: Result) -> str:
    assert result.result, result.error
    text: str = result.result["stdout"]
    return text.strip()


# --- what it is given ---


def test_the_artefact_is_the_result_and_both_streams_are_kept(containers: ContainerRig, results: Results) -> None:
    work = shell("echo out; echo err >&2; echo '{\"rows\": 3}' > $SHARDBEAT_RESULT_FILE")
    result = run(containers, results, work)
    assert result.result == {
        "exit_code": 0, "output": {"rows": 3}, "output_is": "json", "truncated": False, "stdout": "out\n",
        "stderr": "err\n", "stdout_bytes": 4, "stderr_bytes": 4,
    }  # fmt: skip


def test_the_payload_is_a_file_that_it_can_only_read(containers: ContainerRig, results: Results) -> None:
    script = "cat $SHARDBEAT_PAYLOAD_FILE; echo x 2> /dev/null > $SHARDBEAT_PAYLOAD_FILE || echo ' kept'"
    work = shell(script, payload={"n": [1, "ü"], "big": "x" * 200})
    assert said(run(containers, results, work)) == json.dumps(
        work.payload, ensure_ascii=False, separators=(",", ":")
    ) + " kept"  # fmt: skip


def test_the_payload_can_be_a_variable(containers: ContainerRig, results: Results) -> None:
    work = shell("echo $SHARDBEAT_PAYLOAD", {"payload_as": "env"}, payload={"n": 1})
    assert said(run(containers, results, work)) == '{"n":1}'
    large = shell("true", {"payload_as": "env"}, payload="x" * 120_000)
    refused = run(containers, results, large)
    assert (refused.outcome, refused.retryable, refused.error and refused.error["class"]) == (
        "failed", False, "bad_payload",
    )  # fmt: skip


def test_it_knows_its_run(containers: ContainerRig, results: Results) -> None:
    work = shell("env", {"environment": {"MODE": "full run"}})
    found = dict(line.split("=", 1) for line in said(run(containers, results, work)).splitlines())
    assert found["MODE"] == "full run"
    assert found["SHARDBEAT_EXECUTION"] == str(work.execution_id)
    assert found["SHARDBEAT_RUN_KEY"] == work.run_key
    assert found["SHARDBEAT_NOMINAL_TIME"] == "2026-03-29T01:00:00Z"
    assert found["SHARDBEAT_TENANT"] == "acme"
    assert not {"DATABASE_URL", "SECRET_KEY", "BROKER_URL"} & set(found)


def test_secrets_reach_it_and_nothing_that_is_kept(containers: ContainerRig, results: Results) -> None:
    secret = 'hunter"2\\'
    environment = {"TOKEN": {"secret": "TOKEN"}, "AUTH": {"secret": "TOKEN", "prefix": "Bearer "}}
    script = 'echo $AUTH; echo "$TOKEN" >&2; echo "$TOKEN" > $SHARDBEAT_RESULT_FILE; [ ${#TOKEN} = 9 ] && exit 3'
    work = shell(script, {"environment": environment}, secrets={"TOKEN": secret})
    result = run(containers, results, work)
    assert result.error and result.error["exit_code"] == 3
    assert result.result and result.result["stdout"] == "Bearer ***\n"
    assert secret not in repr(result)
    assert json.dumps(secret)[1:-1] not in json.dumps([result.result, result.error])
    missing = run(containers, results, shell("true", {"environment": environment}))
    assert (missing.retryable, missing.error and missing.error["class"]) == (False, "secret_missing")


def test_working_directory_and_user(containers: ContainerRig, results: Results) -> None:
    work = shell("pwd; id -u; id -g", {"working_dir": "/tmp", "user": "1000:1001"})
    assert said(run(containers, results, work)).split() == ["/tmp", "1000", "1001"]


# --- what it may do ---


def test_it_is_alone(containers: ContainerRig, results: Results) -> None:
    script = """
    ls /sys/class/net; ps -o pid= | wc -l; hostname; id -u; grep -c . /proc/self/mountinfo > /dev/null
    grep -E '^Cap(Prm|Eff|Bnd)' /proc/self/status | grep -cv 0000000000000000
    grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\n\\t'
    """
    lines = said(run(containers, results, shell(script))).splitlines()
    assert lines[0] == "lo"
    assert int(lines[1]) <= 4
    assert lines[2:] == ["container", "65534", "0", "NoNewPrivs:1Seccomp:2"]


def test_no_socket_leads_to_the_hypervisor() -> None:
    """AF_VSOCK asks no network namespace. No program of the image can try it, so the rule itself is looked at."""
    box = box_of(shell("true"), RULES, installation=INSTALLATION, now=utc_now())
    config = config_of(box, rootfs=Path("/r"), io=Path("/i"), scratch=Path("/s"), cgroup="/c", limit_swap=True)
    rules = [rule for rule in config["linux"]["seccomp"]["syscalls"] if rule["names"] == ["socket"]]
    assert [(rule["action"], rule["args"][0]["value"]) for rule in rules] == [("SCMP_ACT_ERRNO", socket.AF_VSOCK)]


def test_only_scratch_can_be_written(containers: ContainerRig, results: Results, rootfs: Path) -> None:
    script = """
    for at in / /bin /etc /shardbeat /dev /sys /proc/sys/kernel; do echo x 2> /dev/null > $at/x && echo $at; done
    echo x > /tmp/x && cat /tmp/x
    head -c 5000000 /dev/zero 2> /dev/null > /tmp/y; wc -c < /tmp/y
    """
    result = run(containers, results, shell(script, {"scratch_mb": 2, "user": "0"}))
    # /shardbeat is its own, and bounded; root of the container may make files there
    lines = said(result).splitlines()
    assert lines[:-2] in (["/shardbeat"], ["/shardbeat", "/dev"])
    assert lines[-2] == "x"
    assert 1_900_000 < int(lines[-1]) <= 2 * 1_048_576
    assert not (rootfs / "x").exists()


def test_memory_has_a_limit_and_its_end_is_told_apart(containers: ContainerRig, results: Results) -> None:
    eats = "x=$(head -c 60000000 /dev/zero | tr '\\0' x); exec tail -c 100000000 /dev/zero"
    result = run(containers, results, shell(eats, {"memory_mb": 24}))
    assert (result.outcome, result.retryable) == ("failed", True)
    assert result.error and (result.error["class"], result.error["exit_code"]) == ("oom_killed", 137)
    assert "24 MB" in result.error["message"]
    assert result.result and result.result["oom_killed"] is True
    killed = run(containers, results, shell("sh -c 'kill -9 $$'; exit $?"))
    assert killed.error and (killed.error["class"], killed.error["exit_code"]) == ("exit_code", 137)


def test_processes_have_a_limit(containers: ContainerRig, results: Results) -> None:
    script = "for n in $(seq 1 50); do sleep 5 & done; echo all"
    result = run(containers, results, shell(script, {"pids": 10}))
    assert result.result and "can't fork" in result.result["stderr"]


def test_cpu_has_a_limit(containers: ContainerRig, results: Results) -> None:
    script = """
    begin=$(cut -d. -f1 /proc/uptime); while [ $(($(cut -d. -f1 /proc/uptime) - begin)) -lt 3 ]; do :; done
    cat /proc/self/stat > /dev/null; times
    """
    result = run(containers, results, shell(script, {"cpu": 0.2}))
    user = sum(float(part.rstrip("s").split("m")[1]) for line in said(result).splitlines() for part in line.split())
    assert 0.1 < user < 2.0  # a fifth of three to four seconds, and some noise


# --- how it ends ---


@pytest.mark.parametrize(
    ("codes", "code", "outcome", "retryable"),
    [
        ({}, 0, "succeeded", True),
        ({}, 1, "failed", True),
        ({"success": [0, 3]}, 3, "succeeded", True),
        ({"success": [3]}, 0, "failed", True),
        ({"never_on": [64]}, 64, "failed", False),
        ({"never_on": [64]}, 65, "failed", True),
        ({"retry_on": [75]}, 75, "failed", True),
        ({"retry_on": [75]}, 1, "failed", False),
    ],
)  # fmt: skip
def test_exit_codes_decide(
    containers: ContainerRig, results: Results, codes: dict[str, Any], code: int, outcome: str, retryable: bool
) -> None:
    result = run(containers, results, shell(f"exit {code}", {"exit_codes": codes}))
    assert (result.outcome, result.retryable) == (outcome, retryable)
    assert result.result and result.result["exit_code"] == code


def test_a_crash_says_its_signal_and_its_last_words(containers: ContainerRig, results: Results) -> None:
    result = run(containers, results, shell("echo going down >&2; sh -c 'kill -11 $$'; exit $?"))
    assert result.error and result.error["exit_code"] == 139
    assert "SIGSEGV" in result.error["message"]
    assert result.error["output_end"].startswith("going down")


def test_it_may_ask_for_no_retry(containers: ContainerRig, results: Results) -> None:
    result = run(containers, results, shell("echo '{\"no_retry\": true}' > $SHARDBEAT_RESULT_FILE; exit 1"))
    assert (result.outcome, result.retryable) == ("failed", False)


def test_the_last_part_of_a_flood_is_kept(containers: ContainerRig, results: Results) -> None:
    work = shell("yes | head -c 3000000; echo; echo the end; seq 1 100000 >&2")
    result = run(containers, results, work)
    assert result.result and result.result["stdout"].endswith("the end\n")
    assert result.result["stderr"].endswith("\n99999\n100000\n")
    assert result.result["stdout_bytes"] == 3_000_009
    assert len(result.result["stdout"]) < 40_000


def test_who_ignores_term_is_killed(containers: ContainerRig, results: Results) -> None:
    work = shell("trap '' TERM; echo on; while :; do sleep 0.1; done", timeout_s=0.5)
    result = run(containers, results, work, stop_grace_s=0.3)
    assert result.outcome == "timed_out"
    assert result.result and result.result["stdout"] == "on\n"
    assert 0.5 <= (result.finished_at - result.started_at).total_seconds() < 2.5


def test_who_cares_for_term_may_tidy_up(containers: ContainerRig, results: Results) -> None:
    work = shell("trap 'echo tidied; exit 0' TERM; echo on; while :; do sleep 0.05; done", timeout_s=0.5)
    result = run(containers, results, work)
    assert result.outcome == "timed_out"
    assert said(result) == "on\ntidied"


def test_cancel_takes_less_than_three_seconds_whatever_runs(containers: ContainerRig, results: Results) -> None:
    executor = containers.executor()
    work = shell("trap '' TERM; echo running > $SHARDBEAT_RESULT_FILE; while :; do sleep 0.1; done")
    executor.submit([work], results)
    running = containers.boxes / work.execution_id.hex / "io" / "result"
    results.wait(lambda: True)
    wait_until(lambda: running.exists() and running.read_text())
    begun = time.monotonic()
    assert executor.cancel(*key_of(work))
    assert results.of(work).outcome == "cancelled"
    assert time.monotonic() - begun < 2.5  # half a second of the 3 s is the heartbeat's


def test_cancel_while_it_is_made(containers: ContainerRig, results: Results) -> None:
    executor = containers.executor(parallel=4)
    works = [shell("sleep 30") for _ in range(12)]
    for work in works:
        executor.submit([work], results)
        executor.cancel(*key_of(work))
    assert {result.outcome for result in results.all_of(works)} == {"cancelled"}


@pytest.mark.parametrize(
    ("target", "class_"),
    [
        ({"command": ["no-such-program"]}, "command_failed"),
        ({"working_dir": "/nowhere"}, "command_failed"),
        ({"image": "not-on-the-list"}, "image_refused"),
        ({"memory_mb": 100_000}, "bad_target"),
        ({"environment": {"X": {"secret": "NUL"}}}, "bad_target"),
    ],
)
def test_what_can_not_run_is_not_tried_again(
    containers: ContainerRig, results: Results, target: dict[str, Any], class_: str
) -> None:
    result = run(containers, results, shell("true", target, secrets={"NUL": "a\x00b"}))
    assert (result.outcome, result.retryable) == ("failed", False)
    assert result.error and result.error["class"] == class_, result.error


def test_an_image_without_root_file_system(containers: ContainerRig, results: Results, running: Any) -> None:
    rules = ContainerRules(runtime="runc", images=("*",))
    executor = running(ContainerExecutor(containers.runtime(), rules=rules, installation=INSTALLATION))
    executor.submit([work := shell("true", {"image": "absent"})], results)
    result = results.of(work)
    assert result.error and result.error["class"] == "image_missing"


# --- who ends it when its worker can't ---

WORKER = """
import sys, threading, time
from pathlib import Path
from tests.executors.container_rig import INSTALLATION, RULES, WAIT_FOR_GO, shell
from tests.executors.rootfs import IMAGE
from workers.executors.container import ContainerExecutor
from workers.executors.container_runc import RuncRuntime
folder, rootfs, silence_s = sys.argv[1:]
rootfs = {IMAGE: Path(rootfs)}
runtime = RuncRuntime(root=Path(folder), installation=INSTALLATION, rootfs=rootfs, silence_s=float(silence_s))
executor = ContainerExecutor(runtime, rules=RULES, installation=INSTALLATION, slots=3)
executor.start()
executor.submit([shell(WAIT_FOR_GO) for _ in range(3)], lambda work, result: None)
threading.Event().wait()
"""


@pytest.fixture
def worker(containers: ContainerRig, rootfs: Path, request: pytest.FixtureRequest) -> Any:
    """A process with three containers that never end."""
    folder, silence_s = containers.boxes.parents[1], getattr(request, "param", "20")
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(folder), str(rootfs), silence_s], cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/platform"}, start_new_session=True,
    )  # fmt: skip
    wait_until(lambda: len(inits(containers)) == 3)
    yield process
    process.kill()
    process.wait()


def inits(containers: ContainerRig) -> list[int]:
    """Process ids of the containers that run now."""
    found = []
    for path in containers.boxes.glob("*/pid"):
        try:
            pid = int(path.read_text() or 0)
        except FileNotFoundError:  # removed since it was listed
            continue
        if pid and Path(f"/proc/{pid}").exists():
            found.append(pid)
    return found


def keepers(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes()
            is_child = f"PPid:\t{parent}\n" in (path / "status").read_text()
        except OSError:
            continue
        if is_child and b"container_keeper" in command:
            found.append(int(path.name))
    return found


def test_a_worker_killed_takes_its_containers_along(containers: ContainerRig, worker: Any) -> None:
    alive = inits(containers)
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in alive))
    wait_until(lambda: not list(containers.boxes.iterdir()))


def test_the_next_worker_ends_what_a_dead_one_and_its_keeper_left(
    containers: ContainerRig, worker: Any, results: Results
) -> None:
    alive = inits(containers)
    (keeper,) = keepers(worker.pid)
    os.kill(worker.pid, signal.SIGSTOP)
    os.kill(keeper, signal.SIGKILL)
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    assert len(inits(containers)) == 3
    containers.executor()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in alive))
    wait_until(lambda: not list(containers.boxes.iterdir()))


@pytest.mark.parametrize("worker", ["1.5"], indirect=True)
def test_a_frozen_workers_containers_end_like_its_lease(containers: ContainerRig, worker: Any) -> None:
    assert len(inits(containers)) == 3  # it says that it lives
    os.kill(worker.pid, signal.SIGSTOP)
    wait_until(lambda: not inits(containers))
    wait_until(lambda: not list(containers.boxes.iterdir()))
    os.kill(worker.pid, signal.SIGCONT)


def test_a_keeper_that_dies_is_replaced(containers: ContainerRig, worker: Any) -> None:
    (keeper,) = keepers(worker.pid)
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: keepers(worker.pid) not in ([], [keeper]))
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    wait_until(lambda: not inits(containers))


def test_the_sweep_leaves_a_living_workers_containers_alone(
    containers: ContainerRig, worker: Any, results: Results
) -> None:
    asked: list[Any] = []

    def alive(keys: Any) -> Any:
        asked.append(keys)
        return dict.fromkeys(keys, "running")

    containers.executor(alive=alive, sweep_every_s=0.05)
    wait_until(lambda: len(asked) >= 3)
    assert len(inits(containers)) == 3


def test_the_sweep_ends_what_the_database_knows_nothing_of(containers: ContainerRig, worker: Any) -> None:
    containers.executor(alive=lambda keys: dict.fromkeys(keys, "waiting"), sweep_every_s=0.05)
    wait_until(lambda: not inits(containers))
    # Who is stopped in the middle of a sweep leaves the rest to the next worker's.
    wait_until(lambda: not list(containers.boxes.iterdir()))


def test_the_next_attempt_ends_the_last_ones_container_first(
    containers: ContainerRig, worker: Any, results: Results
) -> None:
    place = next(iter(containers.boxes.iterdir()))
    meta = json.loads((place / "meta.json").read_text())
    init = int((place / "pid").read_text())
    work = shell("echo mine", execution_id=UUID(meta["execution"]), fence=8, attempt=2)
    result = run(containers, results, work, alive=lambda keys: dict.fromkeys(keys, "running"))
    assert (result.outcome, said(result)) == ("succeeded", "mine")
    assert not Path(f"/proc/{init}").exists()


def test_two_attempts_in_one_worker_keep_apart(containers: ContainerRig, results: Results) -> None:
    executor = containers.executor(parallel=2)
    first = containers.hold()
    executor.submit([first.work], results)
    first.wait_running()
    wait_until(lambda: inits(containers))  # its command may speak before runc has told the process
    (init,) = inits(containers)
    second = shell("echo mine", execution_id=first.work.execution_id, fence=8, attempt=2)
    executor.submit([second], results)
    assert said(results.of(second)) == "mine"
    assert results.of(first.work).outcome in ("failed", "lost")  # and stale
    assert not Path(f"/proc/{init}").exists()
    wait_until(lambda: executor.held() == set())


def test_an_attempt_that_is_not_the_newest_does_not_start(
    containers: ContainerRig, worker: Any, results: Results
) -> None:
    place = next(iter(containers.boxes.iterdir()))
    meta = json.loads((place / "meta.json").read_text())
    work = shell("echo mine", execution_id=UUID(meta["execution"]), fence=6, attempt=0)
    result = run(containers, results, work, alive=lambda keys: dict.fromkeys(keys, "running"))
    assert (result.outcome, result.error and result.error["class"]) == ("lost", "superseded")
    assert len(inits(containers)) == 3


def test_idle_costs_nothing(containers: ContainerRig, results: Results) -> None:
    executor = containers.executor()
    held = containers.hold()
    executor.submit([held.work], results)
    held.wait_running()
    begun, used = time.monotonic(), time.process_time()
    threading.Event().wait(1.5)
    assert (time.process_time() - used) / (time.monotonic() - begun) < 0.01
    held.release()
    assert results.of(held.work).outcome == "succeeded"
