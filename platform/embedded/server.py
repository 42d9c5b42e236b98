"""What the two servers share: a folder, a process, a port, and the way from one to the other."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from embedded.folder import HOST, Folder, choose_port, port_free
from embedded.process import POLL_S, ServiceError, end, spawn, wait_until

PORT_TRIES = 5
SHUTDOWN_OF_OTHERS_S = 15.0  # how long a killed predecessor's processes may take to end


class Server(ABC):
    """One server in a folder. Not for use from several threads."""

    name: ClassVar[str]
    title: ClassVar[str]
    start_timeout_s: ClassVar[float]
    stop_signal: ClassVar[signal.Signals]  # also what it gets when our process dies

    def __init__(self, folder: Path, *, port: int | None = None) -> None:
        self._folder = Folder(folder)
        self._wanted_port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._state: dict[str, Any] = {}

    @property
    @abstractmethod
    def url(self) -> str:
        """Where the application connects."""

    @property
    def port(self) -> int:
        return int(self._state["port"])

    @property
    def log(self) -> Path:
        return self._folder.log

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start and wait until it takes connections; recovers after a crash. Raises ServiceError with one line."""
        if self.alive():
            return
        self._folder.close()
        self._folder.open(need_bytes=self._need_bytes())
        try:
            self._state = self._folder.read_state()
            self._prepare()
            self._serve()
            self._complete()
        except BaseException:
            self.stop()
            raise

    def stop(self, *, timeout_s: float = 10.0) -> None:
        """Ask it to end, and end it after `timeout_s`. Harmless when it does not run."""
        if self._process is not None:
            end(self._process, steps=[(self.stop_signal, timeout_s), (signal.SIGQUIT, 3.0)])
            self._process = None
        self._folder.close()

    @abstractmethod
    def _need_bytes(self) -> int:
        """Free disk space without which a start is not tried."""

    @abstractmethod
    def _prepare(self) -> None:
        """Everything before the process is started; may change the remembered state."""

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """The process to start, on `self.port`."""

    @abstractmethod
    def _ready(self, pid: int) -> bool:
        """Whether this process takes connections."""

    @abstractmethod
    def _reason(self, output: str) -> str:
        """One line that says why a start failed, from what the server wrote."""

    def _complete(self) -> None:  # noqa: B027  most servers have nothing to add
        """What needs the running server."""

    def _credentials(self) -> Mapping[str, Any]:
        """Popen's user, group and extra_groups, where it runs as another user."""
        return {}

    def _serve(self) -> None:
        """Start the process on the wanted, the remembered or another free port."""
        deadline = time.monotonic() + SHUTDOWN_OF_OTHERS_S
        for _ in range(PORT_TRIES):
            port = self._wanted_port or choose_port(remembered=self._state.get("port"))
            if self._wanted_port and not port_free(port):
                raise ServiceError(f"port {port} on {HOST} is in use; {self.title} cannot listen there")
            self._state["port"] = port
            self._folder.write_state(self._state)
            output = self._launch()
            while output is not None and "is still in use" in output and time.monotonic() < deadline:
                time.sleep(POLL_S)  # sessions of a server that was killed end one by one
                output = self._launch()
            if output is None:
                return
            if "Address already in use" not in output or self._wanted_port:
                raise ServiceError(self._reason(output))
            self._state.pop("port")  # somebody took it between our look and the server's
        raise ServiceError(f"{self.title} found no free port on {HOST} in {PORT_TRIES} tries")

    def _launch(self) -> str | None:
        """Start the process; None when it is ready, else what it said before it ended."""
        offset = self._folder.log_size()
        self._process = process = spawn(
            self._command(),
            log=self._folder.log,
            death_signal=self.stop_signal,
            env=server_environment(),
            cwd=self._folder.path,
            credentials=self._credentials(),
        )
        wait_until(lambda: process.poll() is not None or self._ready(process.pid), timeout_s=self.start_timeout_s)
        if process.poll() is None and self._ready(process.pid):
            return None
        end(process, steps=[(signal.SIGQUIT, 3.0)])
        return self._folder.log_since(offset)


def server_environment() -> dict[str, str]:
    """Nothing of the caller's variables and locale; messages in English, because we read them."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}
