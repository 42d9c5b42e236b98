"""The embedded Valkey as a real process."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from embedded.folder import HOST, FolderInUse
from embedded.process import ServiceError
from embedded.valkey import Valkey

WaitFor = Callable[..., object]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Valkey]:
    server = Valkey(tmp_path / "valkey folder")  # a blank in the path must not break its settings
    yield server
    server.stop()


def client(server: Valkey) -> redis.Redis:
    return redis.Redis.from_url(server.url)


def test_restart_keeps_the_address_and_begins_empty(server: Valkey) -> None:
    server.start()
    url = server.url
    with client(server) as link:
        link.set("key", "value")
    server.stop()
    server.start()
    assert server.url == url
    with client(server) as link:
        assert link.dbsize() == 0


def test_settings_are_the_promised_ones(server: Valkey) -> None:
    server.start()
    wanted = {"appendonly": "no", "save": "", "maxmemory-policy": "noeviction", "bind": HOST, "databases": "64"}
    with client(server) as link:
        assert {name: link.config_get(name)[name] for name in wanted} == wanted


def test_without_the_password_it_answers_nothing(server: Valkey) -> None:
    server.start()
    with redis.Redis(host=HOST, port=server.port) as link, pytest.raises(redis.AuthenticationError):
        link.ping()


def test_kill_9_is_noticed(server: Valkey, wait_for: WaitFor) -> None:
    server.start()
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    wait_for(lambda: not server.alive(), "the killed server to be noticed")
    server.start()
    with client(server) as link:
        assert link.ping()


def test_a_remembered_port_that_is_taken_is_chosen_anew(server: Valkey) -> None:
    server.start()
    port = server.port
    server.stop()
    with socket.create_server((HOST, port)):
        server.start()
    assert server.port != port


def test_a_wanted_port_that_is_taken_is_an_error(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ServiceError, match=f"port {port} on 127.0.0.1 is in use"):
            Valkey(tmp_path / "valkey", port=port).start()


def test_a_folder_has_one_manager(server: Valkey) -> None:
    server.start()
    with pytest.raises(FolderInUse):
        Valkey(server.log.parent).start()
