"""Hints: where a schedule's runs fall on what is expected, and that what is suggested is really quieter."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apps.schedules.load_hints import Minutes, hint, nominals_in, quietest, shifted, spread
from apps.schedules.timing import actual_at, spec_from_api

NOW = datetime(2027, 3, 1, 8, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def minutes(full: dict[int, int], *, usual: int = 10) -> Minutes:
    """A day from NOW on: `usual` runs in each minute, and others in some, by their number."""
    return Minutes([(NOW + number * MINUTE, full.get(number, usual)) for number in range(1_440)])


@pytest.mark.parametrize(
    ("data", "level", "changes", "jitter_s"),
    [
        ({"trigger": {"cron": "0 9 * * *"}}, "crowded", {"trigger": {"cron": "1 9 * * *"}}, 300),
        ({"trigger": {"cron": "0 * * * *"}}, "crowded", {"trigger": {"cron": "1 * * * *"}}, 300),
        ({"trigger": {"cron": "30 9 * * *"}}, "calm", None, None),
        ({"trigger": {"cron": ["0 9 * * *", "0 10 * * *"]}}, "crowded", None, 300),
        ({"trigger": {"cron": "0,30 9 * * *"}}, "crowded", None, 300),
        ({"trigger": {"every_s": 60}}, "crowded", None, None),
        ({"trigger": {"cron": "0 9 * * *"}, "jitter_s": 1}, "crowded", {"trigger": {"cron": "1 9 * * *"}}, 300),
    ],
)
def test_a_full_minute_is_told_with_a_way_out(
    data: dict[str, Any], level: str, changes: Any, jitter_s: int | None
) -> None:
    known = minutes({60: 100})
    found = hint(spec_from_api(data, now=NOW), key="k", minutes=known, after=NOW)
    assert found is not None and found.level == level
    assert (found.quieter and found.quieter.changes) == changes
    assert (found.jitter and found.jitter.changes) == (None if jitter_s is None else {"jitter_s": jitter_s})
    if changes is not None and found.quieter is not None:
        moved = spec_from_api({**data, **changes}, now=NOW)
        again = hint(moved, key="k", minutes=known, after=NOW)
        assert again is not None and again.level == "calm"


def test_what_is_not_known_or_too_small_to_notice() -> None:
    spec = spec_from_api({"trigger": {"cron": "0 9 * * *"}}, now=NOW)
    assert hint(spec, key="k", minutes=Minutes([]), after=NOW) is None
    assert (
        hint(
            spec_from_api({"trigger": {"at": "2028-01-01T00:00:00Z"}}, now=NOW), key="k", minutes=minutes({}), after=NOW
        )
        is None
    )
    few = hint(spec, key="k", minutes=minutes({60: 9}, usual=0), after=NOW)
    assert few is not None and few.level == "calm"
    everywhere = hint(spec, key="k", minutes=minutes({}, usual=1_000), after=NOW)
    assert everywhere is not None and (everywhere.level, everywhere.times_usual) == ("calm", 1.0)


def test_a_dry_run_moves_each_run_to_where_its_jitter_has_it() -> None:
    spec = spec_from_api({"trigger": {"cron": "0 9 * * *"}, "jitter_s": 30}, now=NOW)
    full = NOW + 60 * MINUTE
    runs = [(spec, str(key), at) for key in range(50) for at in nominals_in(spec, str(key), full, first=NOW)]
    assert len(runs) == 50 and not nominals_in(spec, "k", full, first=full + MINUTE)
    moved = spread(runs, 600)
    later = spec_from_api({"trigger": {"cron": "0 9 * * *"}, "jitter_s": 600}, now=NOW)
    assert sorted(moved.elements()) == sorted(actual_at(later, key, at).replace(second=0) for _, key, at in runs)
    assert shifted({full: -50, full + MINUTE: 3}, minutes=minutes({60: 40})) == [(full, 0), (full + MINUTE, 13)]
    assert quietest(minutes({61: 1, 55: 1, 70: 0}), full) == [full + 10 * MINUTE, full + MINUTE, full - 5 * MINUTE]
