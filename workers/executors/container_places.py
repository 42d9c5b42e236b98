"""Where runc's containers of this machine are, and how one is ended: shared by the worker and its keeper.

    <root>/<installation>/owners/<id>.lock   held by a worker while it lives: the kernel lets go when it dies
    <root>/<installation>/boxes/<execution>  one directory an execution, so that two containers of it can't be
    <root>/<installation>/state              runc's own

Only the standard library: the keeper starts with nothing else.
"""

import ctypes
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

META, CONFIG, PID, LOG, IO, SCRATCH = "meta.json", "config.json", "pid", "runc.log", "io", "scratch"
UNFINISHED_S = 60.0  # a directory that is being made for longer was left behind
DELETE_S = 15.0
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MNT_DETACH = 2, 4, 8, 2
_libc = ctypes.CDLL(None, use_errno=True)


class Places:
    """The directories of one installation."""

    def __init__(self, root: Path, installation: str, runc: str = "runc") -> None:
        self.base = root / installation
        self.boxes, self.owners, self.state = self.base / "boxes", self.base / "owners", self.base / "state"
        self._runc = runc

    def make(self) -> None:
        for path in (self.base, self.boxes, self.owners, self.state):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def command(self, *arguments: str) -> list[str]:
        return [self._runc, "--root", str(self.state), *arguments]

    def all(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """All boxes with what is written about them; what nobody finished to make is cleared away."""
        for path in sorted(self.boxes.iterdir()):
            with suppress(OSError, ValueError):
                if path.name.startswith("."):
                    if time.time() - path.stat().st_mtime > UNFINISHED_S:
                        shutil.rmtree(path, ignore_errors=True)
                    continue
                yield path, json.loads((path / META).read_bytes())

    def one(self, name: str) -> tuple[Path, dict[str, Any]] | None:
        path = self.boxes / name
        try:
            return path, json.loads((path / META).read_bytes())
        except (OSError, ValueError):
            return None

    def owner_lives(self, owner: str) -> bool:
        """Whether a worker still holds its lock."""
        try:
            fd = os.open(self.owners / f"{owner}.lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def hold_lock(self, owner: str) -> int:
        """A file descriptor that must stay open while the owner lives; not inherited by its children."""
        fd = os.open(self.owners / f"{owner}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        return fd

    def end(self, path: Path, container: str) -> None:
        """Kills the container if it runs, and removes it with its directory. Fine when all of that is gone.

        Raises OSError or subprocess.SubprocessError when it could not be.
        """
        for force in ((), ("--force",)):  # which waits a tenth of a second also when there is nothing to kill
            if (self.state / container).exists():
                done = subprocess.run(
                    self.command("delete", *force, container), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE, timeout=DELETE_S, check=False,
                )  # fmt: skip
        if (self.state / container).exists():
            raise OSError(f"runc could not delete {container}: {done.stderr.decode(errors='replace')[-300:]}")
        self._clear(path, container)

    def _clear(self, path: Path, container: str) -> None:
        """Removes the directory, unless it is another container's by now: several may be ending one at once."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            kept = self.one(path.name)
            if not _is_at(fd, path) or (kept is not None and kept[1].get("container") != container):
                return
            unmount(path / IO)
            unmount(path / SCRATCH)
            away = path.with_name(f".{container}-{os.getpid()}-{time.monotonic_ns()}")
            path.rename(away)  # from here on the name is free for the next attempt
        finally:
            os.close(fd)
        shutil.rmtree(away, ignore_errors=True)

    def end_all_of(self, owner: str) -> int:
        """Ends everything that a worker has; how many there were."""
        ended = 0
        for path, meta in self.all():
            if meta.get("owner") == owner:
                with suppress(OSError, subprocess.SubprocessError):
                    self.end(path, meta["container"])
                    ended += 1
        return ended

    def forget(self, owner: str) -> None:
        """A worker that is gone needs its lock no more."""
        with suppress(OSError):
            (self.owners / f"{owner}.lock").unlink()


def _is_at(fd: int, path: Path) -> bool:
    """Whether an open directory still has this name."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(fd), path.stat())
    return False


def mount_tmpfs(path: Path, *, kib: int, inodes: int, mode: int, execute: bool = False) -> None:
    """A small file system in memory: what a container writes there is bounded. Raises OSError."""
    options = f"size={kib}k,nr_inodes={inodes},mode={mode:o}".encode()
    flags = _MS_NOSUID | _MS_NODEV | (0 if execute else _MS_NOEXEC)
    if _libc.mount(b"shardbeat", bytes(path), b"tmpfs", flags, options):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))


def unmount(path: Path) -> None:
    """Fine when nothing is mounted there."""
    _libc.umount2(bytes(path), _MNT_DETACH)
