"""Moments and numbers as pages for operators tell them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from apps.console.reading import CAP
from apps.console.templatetags.when import many, when

AT = datetime(2026, 11, 30, 14, 5, 6, 789_000, tzinfo=UTC)


@pytest.mark.parametrize(
    "at", [AT, AT.astimezone(timezone(timedelta(hours=5, minutes=45))), AT.isoformat(), AT.replace(tzinfo=None)]
)
def test_a_moment_is_exact_without_script(at: Any) -> None:
    assert when(at) == (
        '<time class="when" datetime="2026-11-30T14:05:06.789Z" title="2026-11-30 14:05:06 UTC">'
        "2026-11-30 14:05:06</time>"
    )


def test_a_zone_is_text_of_a_tenant() -> None:
    assert 'data-zone="Europe/Berlin"' in when(AT, "Europe/Berlin") and "data-zone" not in when(AT, "UTC")
    assert "<script>" not in when(AT, '"><script>')
    assert when(None) == when("") == when("soon") == "-"


@pytest.mark.parametrize(
    ("count", "cap", "text"),
    [
        (0, None, "0"), (1_204, None, "1,204"), (3_000_000, None, "3,000,000"), (-1_500, None, "-1,500"),
        (12.345, None, "12.3"), (12.0, None, "12"), ("77", None, "77"), (None, None, "-"), ("", "capped", "-"),
        (CAP, "capped", "10,000"), (CAP + 1, "capped", "10,000+"), (501, 500, "500+"), (500, 500, "500"),
    ],
)  # fmt: skip
def test_numbers(count: Any, cap: Any, text: str) -> None:
    assert many(count, cap) == text
