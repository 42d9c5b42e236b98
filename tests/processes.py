"""Real processes of the platform for tests: started with the test's database and broker, ended by their ids."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from embedded.process import spawn
from tests.nursery import born

ROOT = Path(__file__).resolve().parent.parent
QUIET = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING")
END_S = 40


class Processes:
    """Starts dispatchers and workers; `close` ends whatever still lives, also what was stopped with SIGSTOP."""

    def __init__(self, environment: dict[str, str], logs: Path) -> None:
        self._environment = {
            **environment, "WORKER_GRACE_S": "2", "PYTHON_CHILDREN": "1", "LOG_LEVEL": "INFO",
            "PULL_WAITERS": "12",
        }  # fmt: skip
        self._logs = logs
        self._started: list[subprocess.Popen[bytes]] = []

    def dispatcher(self, **environment: str) -> subprocess.Popen[bytes]:
        return self._start("dispatcher", [sys.executable, "manage.py", "dispatcher"], environment)

    def worker(self, **environment: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-W", "ignore", "-m", "celery", "-A", "workers.app", "worker", *QUIET]
        return self._start("worker", command, environment)

    def beat(self, **environment: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-W", "ignore", "-m", "celery", "-A", "workers.app", "beat"]
        place = self._logs / f"celerybeat-{len(self._started)}"
        return self._start(
            "beat", [*command, "-S", "workers.beat:LeaseScheduler", "--pidfile=", "-s", str(place)], environment
        )

    def web(self, port: int, **environment: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "gunicorn", "config.wsgi:application", "--bind", f"127.0.0.1:{port}"]
        command += ["--worker-class", "gthread", "--threads", "16", "--graceful-timeout", "2", "--no-control-socket"]
        return self._start("web", command, environment)

    def program(self, name: str, *command: str, **environment: str) -> subprocess.Popen[bytes]:
        """Any other program."""
        return self._start(name, [sys.executable, *command], environment)

    def log(self, name: str) -> str:
        """What the processes of that name have written."""
        return "".join(path.read_text(errors="replace") for path in sorted(self._logs.glob(f"*-{name}.log")))

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self._started:
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, name: str, command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        # They end with a run that is interrupted: nobody else would end them.
        log = self._logs / f"{len(self._started)}-{name}.log"
        usual = None if environment else born(command[1:], log=log, environment=self._environment)
        process = usual or spawn(
            command, log=log, death_signal=signal.SIGTERM, cwd=ROOT, env={**self._environment, **environment}
        )
        self._started.append(process)
        return process


def kill(process: subprocess.Popen[bytes]) -> None:
    """kill -9, and wait for the end."""
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
