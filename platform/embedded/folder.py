"""The folder of one service: who may use it, what is remembered in it, and which port it serves."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import random
import secrets
import shutil
import socket
from pathlib import Path
from typing import IO, Any

from embedded.process import ServiceError

HOST = "127.0.0.1"
# Below the range from which the kernel takes ports for outgoing connections, so that a port is still free at a restart.
PORTS = range(20_000, 32_000)
PORT_TRIES = 100
LOG_KEEP_BYTES = 10_000_000


class FolderInUse(ServiceError):
    """Another process manages the service of this folder."""


class Folder:
    """One service's folder, locked by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.log = self.path / "server.log"
        self._state = self.path / "service.json"
        self._lock: IO[str] | None = None

    def open(self, *, need_bytes: int) -> None:
        """Create the folder and lock it. Raises ServiceError when it cannot be written, is full or is in use."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = self._take_lock()
            rotate(self.log)
        except OSError as error:
            self.close()
            raise ServiceError(explain(error, path=self.path)) from error
        free = shutil.disk_usage(self.path).free
        if free < need_bytes:
            self.close()
            raise ServiceError(
                f"the disk of {self.path} is full: {free // 10**6} MB free, {need_bytes // 10**6} MB needed"
            )

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()  # closing gives the lock back
            self._lock = None

    def read_state(self) -> dict[str, Any]:
        """What was remembered: {} when there is none or a crash left it unreadable."""
        try:
            state = json.loads(self._state.read_text())
        except (OSError, ValueError):
            return {}
        return state if isinstance(state, dict) else {}

    def write_state(self, state: dict[str, Any]) -> None:
        """Replace the remembered state in one step; it holds passwords, so only its owner may read it."""
        temporary = self._state.with_suffix(".tmp")
        try:
            temporary.unlink(missing_ok=True)
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as file:
                json.dump(state, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._state)
        except OSError as error:
            raise ServiceError(explain(error, path=self.path)) from error

    def append_log(self, text: str) -> None:
        with contextlib.suppress(OSError), self.log.open("a") as file:
            file.write(text)

    def log_size(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0

    def log_since(self, offset: int) -> str:
        """What the service has written to its log after that many bytes."""
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            file.seek(offset)
            return file.read().decode(errors="replace")
        return ""

    def _take_lock(self) -> IO[str]:
        lock = (self.path / "lock").open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            holder = lock.read().strip() or "?"
            lock.close()
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise FolderInUse(f"{self.path} is in use by process {holder}; stop that one first") from error
        lock.seek(0)
        lock.truncate()
        lock.write(str(os.getpid()))
        lock.flush()
        return lock


def rotate(log: Path) -> None:
    """Keep at most the last long log beside the new one."""
    if log.exists() and log.stat().st_size > LOG_KEEP_BYTES:
        log.replace(log.with_name(log.name + ".1"))


def explain(error: OSError, *, path: Path) -> str:
    """One line that says what to do about a folder that cannot be used."""
    if error.errno == errno.EROFS:
        return f"{path} is on a read-only file system; choose a folder that can be written"
    if error.errno in (errno.EACCES, errno.EPERM):
        owner = _owner(path)
        return f"{path} cannot be written by this user{owner}; run as its owner or remove it (make clean)"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk of {path} is full"
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return f"{path} cannot be a folder: a file is in its way"
    return f"{path} cannot be used: {error.strerror or error}"


def port_free(port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def choose_port(*, remembered: int | None) -> int:
    """The remembered port while it is free, else another one."""
    if remembered and port_free(remembered):
        return remembered
    for _ in range(PORT_TRIES):
        port = random.SystemRandom().choice(PORTS)
        if port_free(port):
            return port
    raise ServiceError(f"no free port between {PORTS.start} and {PORTS.stop - 1} on {HOST}")


def new_password() -> str:
    return secrets.token_urlsafe(24)


def _owner(path: Path) -> str:
    for place in (path, *path.parents):
        with contextlib.suppress(OSError):
            return f" (owner of {place}: uid {place.stat().st_uid})"
    return ""
