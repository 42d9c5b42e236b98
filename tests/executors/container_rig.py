"""The conformance rig of kind `container`, with runc for real."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernel.containerrules import ContainerRules
from tests.conftest import wait_until
from tests.executors.rootfs import IMAGE
from tests.executors.works import make_work
from workers.executors.base import Work
from workers.executors.container import ContainerExecutor
from workers.executors.container_places import IO
from workers.executors.container_runc import RESULT, RuncRuntime

INSTALLATION = "tests"
RULES = ContainerRules(runtime="runc", images=(IMAGE,), networks=("host",), root_user=True)
WAIT_FOR_GO = """
trap 'exit 143' TERM
echo running > $SHARDBEAT_RESULT_FILE
while [ ! -e /shardbeat/go ]; do sleep 0.02; done
: > $SHARDBEAT_RESULT_FILE
"""


def shell(script: str, target: dict[str, Any] | None = None, **changes: Any) -> Work:
    """A work that runs a script of busybox's shell."""
    whole = {"image": IMAGE, "command": ["sh", "-c", script], **(target or {})}
    return make_work("container", whole, **changes)


class ContainerHold:
    def __init__(self, boxes: Path, **changes: Any) -> None:
        self.work = shell(WAIT_FOR_GO, **changes)
        self._boxes = boxes

    @property
    def place(self) -> Path:
        return self._boxes / self.work.execution_id.hex

    def wait_running(self) -> None:
        wait_until(lambda: self._said() == "running", "the container runs")

    def release(self) -> None:
        (self.place / IO / "go").touch()

    def _said(self) -> str:
        try:
            return (self.place / IO / RESULT).read_text().strip()
        except OSError:
            return ""


class ContainerRig:
    ends_when_killed = "failed"
    many = 60  # a container takes longer than a call

    scripts = {
        "ok": "echo '{\"n\": 1}' > $SHARDBEAT_RESULT_FILE",
        "fail": "echo broken >&2; exit 3",
        "fail_for_good": "exit 64",
        "ask_for_pause": "echo '{\"retry_after_s\": 120}' > $SHARDBEAT_RESULT_FILE; exit 75",
        "dies": "sh -c 'kill -9 $$'; exit $?",
        "big": "head -c 200000 /dev/zero | tr '\\0' x > $SHARDBEAT_RESULT_FILE",
    }
    hostile_scripts = (
        "head -c 20000000 /dev/urandom",
        "head -c 50000 /dev/urandom >&2; head -c 50000 /dev/urandom > $SHARDBEAT_RESULT_FILE",
        "printf 'a\\0b\\0'; printf '\"a\\\\u0000b\"' > $SHARDBEAT_RESULT_FILE",
        "printf '\\\\\\\\%.0s' $(seq 1 30000); printf '\\377\\376' >&2",
        "head -c 60000 /dev/zero | tr '\\0' '[' > $SHARDBEAT_RESULT_FILE",
        "printf '{\"a\": 123456789012345678901234567890}' > $SHARDBEAT_RESULT_FILE",
        "printf '[\"\\\\ud800\", NaN, 12345678901234567890123]' > $SHARDBEAT_RESULT_FILE",
        "head -c 100000000 /dev/zero > $SHARDBEAT_RESULT_FILE; head -c 100000000 /dev/zero > /tmp/full",
        "head -c 100000000 /dev/zero | tail -c 100000000 | wc -c",
        "rm -rf / 2> /dev/null; echo > /bin/sh; ln -sf /etc/shadow $SHARDBEAT_RESULT_FILE; mkfifo /shardbeat/x",
        "bomb() { bomb | bomb & }; bomb; sleep 5",
        "sleep 100 & exit 7",
        "trap '' TERM; kill -9 -1; exec 1>&- 2>&-; exit 9",
        "unshare -Ur sh; mount -t tmpfs x /tmp; chroot /; mknod /tmp/sda b 8 0; cat /proc/kcore; reboot -f",
    )

    def __init__(self, running: Callable[[Any], Any], rootfs: Path, folder: Path) -> None:
        self._running, self._rootfs, self._folder = running, rootfs, folder
        self._executors: list[ContainerExecutor] = []
        self.boxes = folder / INSTALLATION / "boxes"

    def runtime(self) -> RuncRuntime:
        return RuncRuntime(root=self._folder, installation=INSTALLATION, rootfs={IMAGE: self._rootfs})

    def executor(self, parallel: int = 1, **options: Any) -> ContainerExecutor:
        made = ContainerExecutor(self.runtime(), rules=RULES, installation=INSTALLATION, slots=parallel, **options)
        self._executors.append(made)
        started: ContainerExecutor = self._running(made)
        return started

    def work(self, how: str, **changes: Any) -> Work:
        target = {"exit_codes": {"never_on": [64]}} if how == "fail_for_good" else None
        return shell(self.scripts[how], target, **changes)

    def hold(self, **changes: Any) -> ContainerHold:
        return ContainerHold(self.boxes, **changes)

    def kill(self, executor: Any, held: Any) -> None:
        """As an operator would, or the kernel."""
        pid = held.place / "pid"
        wait_until(pid.is_file, "runc to tell its process, which runs already")
        os.kill(int(pid.read_text()), signal.SIGKILL)

    def hostile(self) -> list[Work]:
        works = [shell(script, timeout_s=8) for script in self.hostile_scripts]
        works += [shell("id; ln -sf /etc/shadow /shardbeat/result; exit 0", {"user": "0"})]
        works += [shell("true", {"command": ["nothing of this name"]}), shell("true", {"image": "other"})]
        return [*works, make_work("container", {}), shell("true", payload={"half": "\ud800"})]

    def close(self) -> None:
        for executor in self._executors:
            executor.stop(0)
        wait_until(lambda: not self.boxes.is_dir() or not list(self.boxes.iterdir()), "all containers to be gone")
