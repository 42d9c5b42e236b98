"""Zones: only the pinned package's, by exact name, and laid out as segments that agree with ZoneInfo everywhere."""

import random
from datetime import timedelta
from functools import partial
from zoneinfo import ZoneInfo

import pytest

from apps.schedules.timing import TimingInvalid, load_zone, zone_names
from apps.schedules.timing_zones import EPOCH, MAX_S, MIN_S, Offsets, _read_tzif, zone_file, zone_offsets
from tests.schedules.steps import counted

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


def test_the_rules_of_a_zone_say_what_sampling_finds() -> None:
    """One zone of each footer, to the end of the calendar."""
    zones = {_read_tzif(zone_file(name))[1]: name for name in sorted(zone_names())}
    recurring = {footer: name for footer, name in zones.items() if "," in footer}
    assert len(recurring) > 20
    for footer, name in recurring.items():
        by_rules, sampled = (Offsets(load_zone(name), zone_file(name)) for _ in range(2))
        assert by_rules._rules, footer
        sampled._rules = []
        for each in (by_rules, sampled):
            each.index(2200 * YEAR_S // 10)
        assert (by_rules.starts, by_rules.offsets) == (sampled.starts, sampled.offsets), name


def test_a_zone_is_laid_out_to_the_end_at_once() -> None:
    """Some thousand changes of a recurring rule: a schedule that is looked for up to 2499 does not wait for them."""
    for name in ("America/Santiago", "Europe/Dublin", "Antarctica/Troll"):
        made = Offsets(load_zone(name), zone_file(name))
        _, lines = counted(partial(made.index, MAX_S))
        assert lines < 50_000 and len(made.starts) > 800


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
