"""What is started depends on the environment; test runs side by side keep apart."""

from __future__ import annotations

from pathlib import Path

from embedded.folder import Folder
from embedded.services import Services
from tests.services_plugin import broker_of_worker, start_in_free_slot


def test_named_services_are_not_started(tmp_path: Path) -> None:
    services = Services(tmp_path, environment={"DATABASE_URL": "postgresql://elsewhere/db", "BROKER_URL": "redis://a"})
    services.start()
    assert services.embedded == []
    assert services.variables() == {"MIGRATION_DATABASE_URL": "postgresql://elsewhere/db"}
    assert list(tmp_path.iterdir()) == []
    services.stop()


def test_only_the_missing_one_is_started(tmp_path: Path) -> None:
    services = Services(tmp_path, environment={"DATABASE_URL": "postgresql://elsewhere/db"})
    services.start()
    try:
        assert set(services.variables()) == {"MIGRATION_DATABASE_URL", "BROKER_URL"}
    finally:
        services.stop()


def test_a_second_run_takes_another_slot_and_a_broken_one_is_made_anew(tmp_path: Path) -> None:
    environment = {"DATABASE_URL": "postgresql://elsewhere/db"}
    held = Folder(tmp_path / "0" / "valkey")
    held.open(need_bytes=0)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "valkey").write_text("a file where a folder belongs")
    services = start_in_free_slot(tmp_path, environment=environment)
    try:
        assert services.valkey is not None
        assert services.valkey.log == tmp_path / "1" / "valkey" / "server.log"
    finally:
        services.stop()
        held.close()


def test_each_worker_has_its_own_broker_database() -> None:
    assert broker_of_worker("redis://:secret@127.0.0.1:6379/0", worker="gw0") == "redis://:secret@127.0.0.1:6379/1"
    assert broker_of_worker("redis://127.0.0.1:6379", worker="gw3") == "redis://127.0.0.1:6379/4"
    assert broker_of_worker("amqp://host/vhost", worker="gw1") == "amqp://host/vhost"
