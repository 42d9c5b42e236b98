"""A `runc run` process: its output, its end, and what the kernel and runc say about the container."""

import asyncio
import json
import os
import subprocess
from contextlib import suppress
from pathlib import Path

from workers.executors.container_pipes import Drain
from workers.executors.container_places import PID
from workers.executors.container_runtime import RuntimeFailed

CGROUPS = Path("/sys/fs/cgroup")


class Running:
    """A `runc run` process, watched by its pidfd."""

    def __init__(self, process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop) -> None:
        assert process.stdout and process.stderr
        self.process, self._loop = process, loop
        self.stdout = Drain(os.dup(process.stdout.fileno()), loop)
        self.stderr = Drain(os.dup(process.stderr.fileno()), loop)
        process.stdout.close()
        process.stderr.close()
        self.ended: asyncio.Future[int] = loop.create_future()
        self._pidfd = os.pidfd_open(process.pid)
        loop.add_reader(self._pidfd, self._reap)

    def _reap(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.ended.set_result(self.process.wait())

    def init_pidfd(self, place: Path) -> int | None:
        """The container's first process; None before there is one. It is ours as long as runc is its parent."""
        try:
            pid = int((place / PID).read_text())
            fd = os.pidfd_open(pid)
        except (OSError, ValueError):
            return None
        with suppress(OSError, ValueError, IndexError):
            if int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) == self.process.pid:
                return fd
        os.close(fd)
        return None


def not_started(path: Path, code: int) -> RuntimeFailed:
    """What runc says about a container that it could not start. A wrong command stays wrong; the rest may pass."""
    said = ""
    with suppress(OSError, ValueError):
        lines = [json.loads(line) for line in path.read_text(errors="replace").splitlines()[-20:]]
        said = next((str(line["msg"]) for line in reversed(lines) if line.get("level") == "error"), "")
    if "exec: " in said or "chdir" in said:
        return RuntimeFailed("command_failed", said.rpartition("container process: ")[2], retryable=False)
    return RuntimeFailed("container_failed", f"runc could not start the container ({code}): {said}")


def oom_kills(cgroup: str) -> int:
    """How many processes of a control group the kernel killed for memory."""
    path = CGROUPS / cgroup[1:] / "memory.events" if is_cgroup2() else CGROUPS / f"memory{cgroup}/memory.oom_control"
    with suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return 0


def is_cgroup2() -> bool:
    """Whether control groups of version 2 are all that there is."""
    return (CGROUPS / "cgroup.controllers").exists()
