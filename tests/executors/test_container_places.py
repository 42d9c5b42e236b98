"""Ending a container's directory: by several at once, and never the next attempt's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fixtures_flow import at_once
from workers.executors.container_places import CONFIG, META, Places


@pytest.fixture
def places(tmp_path: Path) -> Places:
    made = Places(tmp_path, "test")
    made.make()
    return made


def box(places: Places, container: str) -> Path:
    path = places.boxes / "execution"
    path.mkdir()
    (path / META).write_text(json.dumps({"container": container}))
    (path / CONFIG).write_text("{}")
    return path


def test_an_ended_container_leaves_nothing(places: Places) -> None:
    path = box(places, "a-1")
    places.end(path, "a-1")
    places.end(path, "a-1")
    assert list(places.boxes.iterdir()) == []


def test_the_next_attempts_container_stays_whoever_still_ends_the_last_one(places: Places) -> None:
    path = box(places, "a-2")
    at_once(*[lambda: places.end(path, "a-1") for _ in range(4)])
    assert places.one("execution") == (path, {"container": "a-2"})
    assert (path / CONFIG).exists()


def test_many_end_one_at_once(places: Places) -> None:
    for _ in range(10):
        path = box(places, "a-1")
        at_once(*[lambda at=path: places.end(at, "a-1") for _ in range(8)])
        assert list(places.boxes.iterdir()) == []


def test_what_nothing_is_written_about_is_removed(places: Places) -> None:
    path = box(places, "a-1")
    (path / META).unlink()
    places.end(path, "a-1")
    assert not path.exists()
