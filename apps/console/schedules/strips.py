"""The newest results of a schedule as a picture, and in words. Values in, text out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from apps.console.schedules.results import Result
from apps.presenting.charts import strip
from apps.presenting.shown import look_of, moment


class Strip(NamedTuple):
    """Oldest first; both are empty where nothing has run."""

    picture: str
    tally: str


def strip_of(results: Sequence[Result]) -> Strip:
    """What went wrong stands out by height as well as by colour; who does not see it is told the numbers."""
    if not results:
        return Strip("", "")
    counted = Counter(look_of(one.state).word for one in results)
    tally = ", ".join(f"{number} {word}" for word, number in counted.most_common())
    bars = [(look_of(one.state).tone, _title(one)) for one in results]
    return Strip(strip(bars, meaning=f"The last {len(results)}, oldest first: {tally}"), tally)


def _title(one: Result) -> str:
    stands_for = f", {one.occurrences:,} occurrences" if one.occurrences > 1 else ""
    return f"{moment(one.at)} UTC {look_of(one.state).word}{stands_for}"
