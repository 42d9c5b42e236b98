"""One line of a Gantt chart: when a step waited and when it ran, against the whole of its run. Pure.

Each line stands in the row of a list that says the same in words, so the picture needs no text of its own.
"""

from __future__ import annotations

from html import escape

WIDTH, HEIGHT = 400, 16
LEAST_WIDTH = 3.0
LEAST_S = 1e-6  # what the database tells apart


def line(*, start_s: float, begin_s: float, end_s: float, total_s: float, tone: str, critical: bool, label: str) -> str:
    """From `start_s` to `begin_s` it waited, until `end_s` it ran; what made the run as long as it is has a foot."""
    scale = WIDTH / max(total_s, LEAST_S)
    waited = _part(start_s * scale, begin_s * scale, "fill-base", least=0.0)
    ran = _part(begin_s * scale, end_s * scale, f"fill-{tone}", least=LEAST_WIDTH)
    foot = _part(start_s * scale, end_s * scale, "critical", least=LEAST_WIDTH, top=HEIGHT - 2, high=2)
    return (
        f'<svg class="gantt" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img"'
        f' aria-label="{escape(label)}"><title>{escape(label)}</title>{waited}{ran}{foot if critical else ""}</svg>'
    )


def _part(left: float, right: float, name: str, *, least: float, top: float = 1, high: float = HEIGHT - 5) -> str:
    wide = max(least, right - left)
    if wide < 0.1:
        return ""
    left = min(left, WIDTH - wide)
    return f'<rect class="{name}" x="{left:.1f}" y="{top}" width="{wide:.1f}" height="{high}"/>'
