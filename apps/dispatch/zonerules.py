"""The rules of all zones, kept with the version of the data, and what follows for an entry when they are others."""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import blake2b
from importlib.metadata import version as installed_version
from typing import Any

import orjson
import psycopg

from apps.schedules import timing
from apps.schedules.timing_rezoned import ZONE_SHIFT_MAX, follows_wall, same_wall
from apps.schedules.timing_zones import Offsets, offsets_of, zone_file, zone_names

Conn = psycopg.Connection[Any]
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Change:
    """The data that the entries were computed with: its version and rules, and since when there is other data."""

    version: str | None
    rules: Mapping[str, Mapping[str, str]]
    since: datetime
    now: datetime
    _offsets: dict[str, Offsets] = field(default_factory=dict)

    def concerns(self, zone: str) -> bool:
        """Whether the zone's rules are others, as far as is known."""
        return self.version != installed() and self._digest(zone) != _digest(zone_file(zone))

    def offset_s(self, zone: str, at: datetime) -> int | None:
        """The zone's UTC offset at an instant by the old rules; None when they are not known."""
        digest = self._digest(zone)
        if digest is None:
            return None
        found = self._offsets.get(zone)
        if found is None:
            file = zlib.decompress(b64decode(self.rules["files"][digest]))
            found = self._offsets[zone] = offsets_of(zone, file)
        return found.offsets[found.index(int(at.timestamp()))]

    def old_files(self) -> dict[str, bytes]:
        """The files of the zones whose rules are known to be others now, compressed."""
        return {
            zone: b64decode(self.rules["files"][digest])
            for zone, digest in self.rules.get("zones", {}).items()
            if zone in zone_names() and self.concerns(zone)
        }

    def _digest(self, zone: str) -> str | None:
        return self.rules.get("zones", {}).get(zone)


def change_of(conn: Conn, now: datetime) -> Change:
    """What has changed from the data that is stored to the installed one."""
    row = conn.execute("SELECT version, rules, newer, newer_since FROM due_zonedata").fetchone()
    version, rules, newer, newer_since = row or (None, None, None, None)
    return Change(version, rules or {}, newer_since if newer_since and newer == installed() else now, now)


def installed() -> str:
    """The version of the pinned tzdata package."""
    return installed_version("tzdata")


def right_of(
    spec: timing.Spec, nominal_at: datetime, told_at: datetime, last: datetime | None, change: Change
) -> datetime | None:
    """The next nominal instant of an entry that stands at `nominal_at`, by the rules of now.

    `last` is the newest occurrence that was disposed of, at `told_at`; without one that is the time of its definition.
    """
    if _is_one(spec, nominal_at):
        # What was promised by the old rules may have fired since, and its entry has moved on by the new ones.
        went_on = told_at >= change.since and (last is None or _is_one(spec, last))
        if went_on or not follows_wall(spec):
            return nominal_at
    was = change.offset_s(spec.zone, nominal_at)
    was_last = None if last is None else change.offset_s(spec.zone, last)
    if last is not None and was_last is not None:
        right = timing.next_after(spec, same_wall(spec, last, was_s=was_last))
        if right is None or abs(right - nominal_at) <= ZONE_SHIFT_MAX:
            return right  # else that was not the last one: history is not kept for ever
    if was is None:
        return timing.next_after(spec, change.now)
    return timing.next_after(spec, same_wall(spec, nominal_at, was_s=was) - _MICROSECOND)


def _is_one(spec: timing.Spec, at: datetime) -> bool:
    """Whether an instant is an occurrence by the rules of now."""
    return timing.next_after(spec, at - _MICROSECOND) == at


def rules_text() -> str:
    """The installed rules of all zones, as JSON text."""
    zones = {zone: _digest(zone_file(zone)) for zone in sorted(zone_names())}
    files = {digest: b64encode(zlib.compress(zone_file(zone))).decode() for zone, digest in zones.items()}
    return orjson.dumps({"zones": zones, "files": files}).decode()


def _digest(file: bytes) -> str:
    return blake2b(file, digest_size=12).hexdigest()
