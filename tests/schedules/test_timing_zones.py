"""Zones: only the pinned package's, by exact name, and laid out as segments that agree with ZoneInfo everywhere."""

import random
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest

from apps.schedules.timing import TimingInvalid, load_zone, zone_names
from apps.schedules.timing_zones import EPOCH, MAX_S, MIN_S, Offsets, zone_offsets

YEAR_S = 31_556_952


def offset_of(zone: ZoneInfo, at_s: int) -> float:
    offset = (EPOCH + timedelta(seconds=at_s)).astimezone(zone).utcoffset()
    assert offset is not None
    return offset.total_seconds()


@pytest.mark.parametrize("part", range(8))
def test_segments_agree_with_zoneinfo(part: int) -> None:
    dice = random.Random(part)
    for name in sorted(zone_names())[part::8]:
        offsets, zone = zone_offsets(name), load_zone(name)
        offsets.index(180 * YEAR_S)
        instants = [dice.randint(-100 * YEAR_S, 150 * YEAR_S) for _ in range(40)]
        instants += [dice.randint(MIN_S, MAX_S) for _ in range(2)]
        changes = offsets.starts[1:]
        instants += [change + side for change in dice.sample(changes, min(25, len(changes))) for side in (-1, 0)]
        for at_s in instants:
            index = offsets.index(at_s)
            assert offsets.offsets[index] == offset_of(zone, at_s), (name, at_s)
            assert offsets.starts[index] <= at_s < offsets.end(index), (name, at_s)


def test_no_recurring_change_is_stepped_over() -> None:
    """Between two changes each day has the same offset: the sampling of recurring rules misses nothing."""
    for name in (
        "America/New_York",
        "Africa/Casablanca",
        "Asia/Gaza",
        "Antarctica/Troll",
        "America/Nuuk",
        "Asia/Jerusalem",
    ):
        offsets, zone = zone_offsets(name), load_zone(name)
        for day in range(55 * 365, 95 * 365):
            at_s = day * 86_400
            assert offsets.offsets[offsets.index(at_s)] == offset_of(zone, at_s), (name, at_s)


def test_a_zone_without_changes_is_one_segment() -> None:
    utc = zone_offsets("UTC")
    assert utc.steady and utc.end(utc.index(0)) > MAX_S
    assert not zone_offsets("Antarctica/Troll").steady  # its table has no change, its recurring rule has
    assert isinstance(utc, Offsets)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Europe/Berln", "Europe/Berlin"),
        ("EUROPE/PARIS", "Europe/Paris"),
        ("Europe/Iceland", "Iceland"),
        ("KST", "Asia/Seoul"),
        ("Hawaiian Standard Time", "Pacific/Honolulu"),
        ("localtime", "UTC"),
        ("new york", "America/New_York"),
        ("posixrules", "not an IANA time zone name"),
        ("Factory", "not an IANA time zone name"),
        ("../../etc/passwd", "not an IANA time zone name"),
        ("Europe", "not an IANA time zone name"),
        ("", "not an IANA time zone name"),
        ("Europe/Berlin\0", "not an IANA time zone name"),
        ("x" * 100_000, "not an IANA time zone name"),
    ],
)
def test_unknown_names_are_refused_with_a_suggestion(name: str, hint: str) -> None:
    with pytest.raises(TimingInvalid) as caught:
        load_zone(name)
    [error] = caught.value.errors
    assert error.pointer == "/timezone" and hint in error.detail and len(error.detail) < 250


def test_names_are_those_of_the_pinned_package() -> None:
    assert {"UTC", "Europe/Kyiv", "Europe/Kiev", "America/Coyhaique", "EST5EDT"} <= zone_names()
    assert not {"localtime", "posixrules", "Factory", "leapseconds"} & zone_names()
