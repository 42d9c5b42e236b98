"""The numbers of the example in docs/fairness.md are those that the code gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.flow.rounds import ALWAYS, Rounds, Tenant

PAGE = Path(__file__).parents[2] / "docs" / "fairness.md"
EVENTS: dict[int, tuple[str, Callable[[dict[int, Tenant]], None]]] = {
    0: ("acme has a backlog, nobody else", lambda tenants: setattr(tenants[1], "waiting", ALWAYS)),
    10: ("globex comes", lambda tenants: setattr(tenants[2], "waiting", ALWAYS)),
    120: ("initech comes", lambda tenants: setattr(tenants[3], "waiting", ALWAYS)),
    180: ("hooli comes", lambda tenants: setattr(tenants[4], "waiting", ALWAYS)),
    300: ("initech has no more to run", lambda tenants: setattr(tenants[3], "waiting", 0)),
}


def table() -> str:
    """Slots held, just before and some time after each event."""
    tenants = {
        1: Tenant(weight=1, run_s=0.5, waiting=0),
        2: Tenant(weight=3, run_s=20.0, waiting=0),
        3: Tenant(weight=1, run_s=2.0, waiting=0, reserved=16),
        4: Tenant(weight=2, run_s=1.0, waiting=0, maximum=4),
    }
    rounds = Rounds(tenants, {"": 40})
    lines, seen = ["| second | what happened | acme | globex | initech | hooli |", "|---|---|---|---|---|---|"], 0
    for second in (0, 1, 10, 11, 12, 60, 120, 121, 130, 150, 180, 182, 240, 300, 303, 360):
        while seen < second:
            seen += 1
            rounds.go(1.0)
            if seen in EVENTS and seen != second:
                raise AssertionError("an event is a line of the table")
        held = " | ".join(str(one.held) for one in tenants.values())
        what, do = EVENTS.get(second, ("", lambda _: None))
        lines.append(f"| {second} | {what} | {held} |")
        do(tenants)
    return "\n".join(lines)


def test_the_example_is_what_happens() -> None:
    assert table() in PAGE.read_text()
