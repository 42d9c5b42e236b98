"""An explanation as lines of text."""

from datetime import UTC, datetime
from uuid import UUID

from apps.dispatch.explaining.shape import explanation_text
from apps.dispatch.explaining.values import Explanation, Verdict


def test_names_neither_turn_the_text_round_nor_speak_to_a_terminal() -> None:
    hostile = "n\u00e4chtlich \u202e\x1b[2J\nOK: nothing"
    found = Explanation(
        "execution", UUID(int=7), hostile, "ready", datetime(2026, 11, 30, 9, tzinfo=UTC), Verdict("job_paused", "why")
    )
    first, second = explanation_text(found).splitlines()[:2]
    assert "(n\u00e4chtlich \\u202e\\u001b[2J\\nOK: nothing) is ready" in first
    assert second.startswith("WHY: ")
