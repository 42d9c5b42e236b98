"""A line of a Gantt chart stays inside of its picture, and says in words what it shows."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import example, given
from hypothesis import strategies as st

from apps.presenting.gantt import WIDTH, line

seconds = st.floats(0, 1e6, allow_nan=False)


@example([0.0, 0.0, 5e-324], 0.0, True)
@given(st.tuples(seconds, seconds, seconds).map(sorted), seconds, st.booleans())
def test_no_part_leaves_the_picture_and_what_ran_is_seen(times: list[float], more: float, critical: bool) -> None:
    start, begin, end = times
    text = line(
        start_s=start, begin_s=begin, end_s=end, total_s=end + more, tone="ok", critical=critical, label='<"x">'
    )
    root = ElementTree.fromstring(text)
    assert root.get("aria-label") == '<"x">'
    rects = root.findall("rect")
    for one in rects:
        left, wide = float(one.get("x", "")), float(one.get("width", ""))
        assert left >= -0.1 and left + wide <= WIDTH + 0.2
    assert [one.get("class") for one in rects if one.get("class") != "fill-base"] == (
        ["fill-ok", "critical"] if critical else ["fill-ok"]
    )
