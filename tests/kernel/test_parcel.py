"""A tenant's file that is damaged, changed or made to harm: told in a sentence, not read beyond what it may hold."""

from __future__ import annotations

import hashlib
import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel import parcel_reading
from kernel.parcel import Damaged, PassphraseWrong
from kernel.parcel_reading import Reader
from kernel.parcel_writing import Writer

PASSPHRASE = "correct horse battery"
ROWS = [("1", None, "tab\t line\n äöü \u202e"), ("2", "", "\\N")]


def written(path: Path, rows: Any = ROWS, *, passphrase: str = PASSPHRASE) -> Path:
    with Writer(path, passphrase=passphrase) as writer:
        writer.table("things", ["id", "note", "text"], rows)
        if passphrase:
            writer.table("secrets", ["name", "value"], [("a", "s3cret"), ("b", "other")], sealed=True)
        writer.finish({"slug": "acme"})
    return path


def rebuilt(path: Path, change: Callable[[dict[str, bytes]], None], *, sums: bool = True) -> Path:
    """The file again with other entries; with `sums` the manifest's checksum fits, as an attacker would make it."""
    with zipfile.ZipFile(path) as old:
        entries = {one.filename: old.read(one) for one in old.infolist()}
    change(entries)
    if sums:
        told = json.loads(entries["manifest.sum"])
        told["sha256"] = hashlib.sha256(entries["manifest.json"]).hexdigest()
        entries["manifest.sum"] = json.dumps(told).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name, text in entries.items():
            new.writestr(name, text)
    return path


def manifest(**changes: Any) -> Callable[[dict[str, bytes]], None]:
    def change(entries: dict[str, bytes]) -> None:
        told = json.loads(entries["manifest.json"]) | changes
        entries["manifest.json"] = json.dumps(told).encode()

    return change


def table(**changes: Any) -> Callable[[dict[str, bytes]], None]:
    """Another word about the first table."""

    def change(entries: dict[str, bytes]) -> None:
        told = json.loads(entries["manifest.json"])
        told["tables"][0] |= changes
        entries["manifest.json"] = json.dumps(told).encode()

    return change


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "a.zip")
    with Reader(path, passphrase=PASSPHRASE) as file:
        file.verify()
        assert list(file.rows("things")) == ROWS
        assert list(file.rows("secrets")) == [("a", "s3cret"), ("b", "other")]
        assert file.manifest.trusted and file.manifest.about == {"slug": "acme"}
    with Reader(path) as file:
        file.verify()
        assert not file.opens and not file.manifest.trusted
        with pytest.raises(PassphraseWrong):
            list(file.rows("secrets"))
    assert [one.name for one in tmp_path.iterdir()] == ["a.zip"]
    for wrong in ("short", "another passphrase"):
        with pytest.raises(PassphraseWrong):
            Reader(path, passphrase=wrong)


@settings(max_examples=40)
@given(st.lists(st.tuples(*[st.none() | st.text(st.characters(exclude_characters="\x00", codec="utf-8"))] * 3)))
def test_any_text_comes_back(tmp_path_factory: pytest.TempPathFactory, rows: list[Any]) -> None:
    path = written(tmp_path_factory.getbasetemp() / "any.zip", rows, passphrase="")
    with Reader(path) as file:
        assert list(file.rows("things")) == rows


def test_one_bit_that_is_another_is_found(tmp_path: Path) -> None:
    """Wherever it is: what is read is what was written, or it is refused."""
    path = written(tmp_path / "a.zip", passphrase="")  # a key takes a while to make, which is what it is for
    whole, chance = path.read_bytes(), random.Random(7)
    refused = 0
    for _ in range(300):
        place = chance.randrange(len(whole))
        path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << chance.randrange(8))]) + whole[place + 1 :])
        try:
            with Reader(path) as file:
                file.verify()
                assert list(file.rows("things")) == ROWS
        except Damaged:
            refused += 1
    assert refused > 200
    for size in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(Damaged):
            Reader(path)


def _drop(name: str) -> Callable[[dict[str, bytes]], None]:
    return lambda entries: entries.pop(name, None)  # type: ignore[return-value]  # nobody looks at it


def _put(name: str, text: bytes) -> Callable[[dict[str, bytes]], None]:
    return lambda entries: entries.update({name: text})


LINE = json.dumps(["1", None, "x"]).encode() + b"\n"


@pytest.mark.parametrize(
    "change",
    [
        manifest(format="something else"), manifest(version=2), manifest(version=None), manifest(tables=None),
        manifest(tables=[{}]), manifest(about=[]), manifest(tables=[{"name": "x"}] * 201),
        table(name="../../etc/passwd"), table(name="things/../x"), table(columns=[]), table(columns=["id"]),
        table(columns=["id; DROP TABLE x", "note", "text"]), table(rows=-1), table(rows=True), table(bytes=10**15),
        table(rows=1), table(bytes=3), table(rows=10**9), table(sha256="0" * 64),
        _drop("tables/things.ndjson"), _drop("manifest.json"), _drop("manifest.sum"),
        _put("tables/more.ndjson", b""), _put("../evil", b"x"), _put("/etc/cron.d/evil", b"x"),
        _put("tables/things.ndjson", b""), _put("tables/things.ndjson", LINE * 3), _put("manifest.json", b"[]"),
        _put("manifest.json", b"{" * 100_000), _put("manifest.sum", b"[]"),
    ],
)  # fmt: skip
def test_what_was_made_by_somebody_else_is_refused(tmp_path: Path, change: Any) -> None:
    path = rebuilt(written(tmp_path / "a.zip", passphrase=""), lambda entries: change(entries), sums=False)
    _refused(path)
    fresh = written(tmp_path / "b.zip", passphrase="")
    with zipfile.ZipFile(fresh) as old:
        entries = {one.filename: old.read(one) for one in old.infolist()}
    change(entries)
    if {"manifest.json", "manifest.sum"} <= entries.keys() and entries["manifest.sum"] != b"[]":
        _refused(rebuilt(fresh, change))


def _refused(path: Path) -> None:
    with pytest.raises(Damaged) as told, Reader(path) as file:
        file.verify()
    assert len(told.value.detail) < 300


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither when the manifest admits it, nor when it lies; no line is read without bound."""
    path = written(tmp_path / "a.zip", [("1", None, "x" * 20_000_000)], passphrase="")
    assert path.stat().st_size < 200_000
    monkeypatch.setattr(parcel_reading, "RATIO_MAX", 100)
    with pytest.raises(Damaged, match="can't be"):
        Reader(path)
    monkeypatch.setattr(parcel_reading, "SMALL", 10**9)
    monkeypatch.setattr(parcel_reading, "LINE_MAX", 10**6)
    with Reader(path) as file, pytest.raises(Damaged, match="more in it"):
        file.verify()
    rebuilt(path, table(bytes=100, rows=1))
    with Reader(path) as file, pytest.raises(Damaged, match="more in it"):
        file.verify()


def test_with_a_passphrase_nobody_else_can_change_it(tmp_path: Path) -> None:
    """Rows that are sealed stay in their place: of this file, this table, this line."""
    path = rebuilt(written(tmp_path / "a.zip"), manifest(about={"slug": "globex"}))
    with Reader(path) as file:
        file.verify()  # who has no passphrase can't tell
    with pytest.raises(PassphraseWrong):
        Reader(path, passphrase=PASSPHRASE)

    def swapped(entries: dict[str, bytes]) -> None:
        lines = entries["tables/secrets.ndjson"].splitlines(keepends=True)[::-1]
        entries["tables/secrets.ndjson"] = b"".join(lines)

    path = rebuilt(written(tmp_path / "b.zip"), swapped)
    with Reader(path, passphrase=PASSPHRASE) as file, pytest.raises(Damaged):
        file.verify()


def test_a_writer_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(b"before")
    with pytest.raises(ZeroDivisionError), Writer(path) as writer:
        writer.table("things", ["id"], ([str(1 // number)] for number in (1, 0)))
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"before"]
