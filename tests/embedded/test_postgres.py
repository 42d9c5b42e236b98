"""The embedded PostgreSQL as real processes: life, death, and each way in which it can refuse to start."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from embedded.account import can_reach
from embedded.cluster import binaries
from embedded.folder import HOST, FolderInUse
from embedded.postgres import APP_ROLE, OWNER_ROLE, Postgres
from embedded.process import ServiceError

Python = Callable[..., "subprocess.Popen[str]"]
WaitFor = Callable[..., object]

HOLD = """
import sys, time
from pathlib import Path
from embedded.postgres import Postgres
server = Postgres(Path(sys.argv[1] if len(sys.argv) > 1 else {folder!r}), durable=False)
server.start()
print(server.pid, server.owner_url, flush=True)
{then}
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Postgres]:
    server = Postgres(tmp_path / "pg", durable=False)
    yield server
    server.stop()


def ask(url: str, query: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
        return row[0] if row else None


def gone(pid: int) -> bool:
    """Whether a process ended; a zombie that nobody has waited for has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def write_mark(server: Postgres) -> None:
    with psycopg.connect(server.owner_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE mark (id int)")
        connection.execute("INSERT INTO mark VALUES (1)")


def test_restart_keeps_data_port_and_passwords(server: Postgres) -> None:
    server.start()
    write_mark(server)
    before = server.url, server.owner_url
    server.stop()
    assert not server.alive()
    server.start()
    assert (server.url, server.owner_url) == before
    assert ask(server.owner_url, "SELECT count(*) FROM mark") == 1


def test_start_and_stop_twice_is_harmless(server: Postgres) -> None:
    server.start()
    pid = server.pid
    server.start()
    assert server.pid == pid
    server.stop()
    server.stop()


def test_settings_are_the_promised_ones(tmp_path: Path) -> None:
    server = Postgres(tmp_path / "durable")
    server.start()
    try:
        wanted = {
            "fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "wal_compression": "off", "jit": "off",
            "max_connections": "300", "max_locks_per_transaction": "256", "shared_buffers": "512MB",
            "max_wal_size": "4GB", "checkpoint_timeout": "15min", "listen_addresses": HOST,
            "password_encryption": "scram-sha-256", "TimeZone": "UTC",
            "server_encoding": "UTF8",
        }  # fmt: skip
        assert {name: ask(server.url, f"SHOW {name}") for name in wanted} == wanted
    finally:
        server.stop()


def test_roles_have_no_more_rights_than_they_need(server: Postgres) -> None:
    server.start()
    rights = "SELECT array[rolsuper, rolcreatedb, rolcreaterole, rolbypassrls] FROM pg_roles WHERE rolname = '{}'"
    assert ask(server.url, rights.format(APP_ROLE)) == [False, False, False, False]
    assert ask(server.url, rights.format(OWNER_ROLE)) == [False, True, False, False]
    assert ask(server.url, "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'shardbeat'") == OWNER_ROLE
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        ask(server.url, "CREATE TABLE public.mine (id int)")


def test_the_application_may_end_its_own_backends(server: Postgres) -> None:
    server.start()
    with psycopg.connect(server.url) as frozen:
        assert ask(server.url, f"SELECT pg_terminate_backend({frozen.info.backend_pid}, 5000)") is True


def test_a_wrong_password_is_refused(server: Postgres) -> None:
    server.start()
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(server.url, password="guess", autocommit=True)


def test_kill_9_of_the_server_is_noticed_and_loses_nothing(server: Postgres, wait_for: WaitFor) -> None:
    server.start()
    write_mark(server)
    busy = psycopg.connect(server.owner_url, autocommit=True)  # its backend outlives the server for a moment
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    wait_for(lambda: not server.alive(), "the killed server to be noticed")
    assert "ready" in (server.log.parent / "data" / "postmaster.pid").read_text(), "the old pid file still lies"
    server.start()
    assert ask(server.owner_url, "SELECT count(*) FROM mark") == 1
    busy.close()


def test_the_server_ends_with_a_killed_manager(tmp_path: Path, python: Python, wait_for: WaitFor) -> None:
    folder = tmp_path / "pg"
    manager = python(HOLD.format(folder=str(folder), then="time.sleep(600)"))
    assert manager.stdout is not None
    line = manager.stdout.readline()
    pid = int(line.split()[0])
    manager.kill()
    manager.communicate()
    successor = Postgres(folder, durable=False)
    successor.start()  # waits for the orphan
    try:
        assert gone(pid)
        assert ask(successor.url, "SELECT 1") == 1
    finally:
        successor.stop()
    wait_for(lambda: gone(pid), "the orphan to end")


def test_a_stale_pid_file_that_names_a_living_process_is_cleared(server: Postgres) -> None:
    server.start()
    pid_file = server.log.parent / "data" / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    server.stop()
    pid_file.write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")
    server.start()
    assert ask(server.url, "SELECT 1") == 1


def test_an_interrupted_first_start_heals(server: Postgres) -> None:
    for name in ("data.new", "data"):
        (server.log.parent / name).mkdir(parents=True)
        (server.log.parent / name / "half").write_text("made")
    server.start()
    assert ask(server.url, "SELECT 1") == 1


def test_a_remembered_port_that_is_taken_is_chosen_anew(server: Postgres) -> None:
    server.start()
    port = server.port
    server.stop()
    with socket.create_server((HOST, port)):
        server.start()
        assert server.port != port
        assert ask(server.url, "SELECT 1") == 1


def test_a_wanted_port_that_is_taken_is_an_error(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ServiceError, match=f"port {port} on 127.0.0.1 is in use"):
            Postgres(tmp_path / "pg", durable=False, port=port).start()


def test_a_folder_has_one_manager(server: Postgres) -> None:
    server.start()
    with pytest.raises(FolderInUse, match=f"in use by process {os.getpid()}"):
        Postgres(server.log.parent, durable=False).start()
    assert ask(server.url, "SELECT 1") == 1, "the refused one must not stop the other"


def test_data_of_another_version_is_an_error(server: Postgres) -> None:
    server.start()
    server.stop()
    (server.log.parent / "data" / "PG_VERSION").write_text("12\n")
    with pytest.raises(ServiceError, match="was written by PostgreSQL 12, this is 18"):
        server.start()


def test_data_without_its_passwords_is_an_error_and_kept(server: Postgres) -> None:
    server.start()
    server.stop()
    (server.log.parent / "service.json").unlink()
    with pytest.raises(ServiceError, match=r"lost its service\.json"):
        server.start()
    assert (server.log.parent / "data" / "PG_VERSION").exists()


def test_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "pg").write_text("")
    with pytest.raises(ServiceError, match="a file is in its way"):
        Postgres(tmp_path / "pg").start()


def test_a_full_disk_is_an_error(small_disk: Callable[[int], Path]) -> None:
    with pytest.raises(ServiceError, match=r"the disk of .* is full"):
        Postgres(small_disk(40) / "pg", durable=False).start()


def test_a_disk_that_filled_up_is_an_error(small_disk: Callable[[int], Path]) -> None:
    disk = small_disk(400)
    server = Postgres(disk / "pg", durable=False)
    server.start()
    server.stop()
    with (disk / "filler").open("wb") as filler, pytest.raises(OSError, match="No space left"):
        while True:
            filler.write(b"\0" * 2**20)
            filler.flush()
    with pytest.raises(ServiceError, match=r"the disk of .* is full") as refused:
        server.start()
    assert "\n" not in str(refused.value)


def test_a_read_only_file_system_is_an_error(small_disk: Callable[[int], Path]) -> None:
    disk = small_disk(10)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with pytest.raises(ServiceError, match="read-only file system"):
        Postgres(disk / "pg").start()


def test_root_uses_another_account(open_folder: Path, wait_for: WaitFor) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root needs another account")
    if not can_reach((open_folder, binaries()), uid=65534, gid=65534):
        pytest.skip("this checkout is below a folder that only root may enter")
    server = Postgres(open_folder / "pg", durable=False)
    server.start()
    try:
        assert Path(f"/proc/{server.pid}").stat().st_uid != 0
        assert (open_folder / "pg" / "data").stat().st_uid != 0
        assert (open_folder / "pg" / "service.json").stat().st_mode & 0o077 == 0
    finally:
        server.stop()


def test_root_below_a_folder_that_only_root_may_enter(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root needs another account")
    (tmp_path / "private").mkdir(mode=0o700)
    server = Postgres(tmp_path / "private" / "pg", durable=False)
    server.start()
    try:
        assert ask(server.url, "SELECT 1") == 1
    finally:
        server.stop()


def test_an_ordinary_user_runs_it(open_folder: Path, python: Python) -> None:
    then = "import os; print(os.geteuid()); server.stop(); server.start(); server.stop(); print('ended')"
    run = python(HOLD.format(folder=str(open_folder / "pg"), then=then), ordinary=True)
    output = run.communicate(timeout=60)[0].split()
    assert run.returncode == 0, output
    assert output[2] != "0"
    assert output[-1] == "ended"


def test_an_ordinary_user_without_rights_gets_one_line(open_folder: Path, python: Python) -> None:
    closed = open_folder / "closed"
    closed.mkdir(mode=0o500)
    code = HOLD.format(folder=str(closed / "pg"), then="")
    run = python(code, ordinary=True)
    output = run.communicate(timeout=60)[0]
    assert run.returncode != 0
    assert "cannot be written by this user" in output.splitlines()[-1]
