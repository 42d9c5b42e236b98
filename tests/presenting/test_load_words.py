"""What is said of a full minute."""

from __future__ import annotations

from datetime import UTC, datetime

from apps.presenting.load_words import load_words
from apps.schedules.load_hints import Hint, Quieter

AT = datetime(2027, 3, 1, 9, 0, tzinfo=UTC)


def test_a_full_minute_is_said_with_what_is_quieter() -> None:
    quieter, jitter = Quieter({"trigger": {"cron": "7 9 * * *"}}, AT, 0.5), Quieter({"jitter_s": 300}, AT, 1.0)
    assert load_words(Hint(AT, "busy", 2.5, quieter, jitter)) == [
        "Busy: at 2027-03-01 09:00 UTC 2.5 times as many runs as usual are expected on the platform.",
        'Quieter would be trigger {"cron": "7 9 * * *"} (0.5 times as usual).',
        "Spread out, with jitter_s 300 (1 times as usual).",
    ]
    assert load_words(Hint(AT, "calm", 1.0, None, None)) == load_words(None) == []
