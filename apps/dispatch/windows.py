"""Flows of which much may not go now are looked at in parts, one after the other. Pure.

Runs that are past their time or wait for another run of their schedule stay in their flow, before others that may go. A
pass that read all of them would take as long as there are many. So a flow of more than a part whose head may not go, or
that gave less than it was asked for, is read part by part: a pass at its head, the next where the last part ended.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from apps.tickets.values import Flow

HEAD = datetime.min.replace(tzinfo=UTC)
END = datetime.max.replace(tzinfo=UTC)
LOOKED_AT = 5_000  # tickets of all flows of one look
PART_LEAST = 16  # of a flow, however many flows there are
REMEMBERED = 1_000


class Window(NamedTuple):
    """Ranks after the first and up to the second."""

    after: datetime = HEAD
    until: datetime = END


WHOLE = Window()


def part_of(flows: int) -> int:
    """How many tickets of each of so many flows one look reads beyond what it takes."""
    return max(PART_LEAST, LOOKED_AT // max(1, flows))


class _Parts(NamedTuple):
    """Where the part at the head ends, the part that goes on, and which of them is read next."""

    head: datetime
    window: Window
    at_head: bool


@dataclass(slots=True)
class Windows:
    """Of flows that are read in parts: which one is next. Each second one is the head, so that the order is kept."""

    parts: OrderedDict[tuple[int, UUID], _Parts] = field(default_factory=OrderedDict)

    def of(self, flow: Flow) -> Window:
        """What of this flow is to be read."""
        found = self.parts.get((flow.lane, flow.flow))
        if found is None:
            return WHOLE
        return Window(HEAD, found.head) if found.at_head else found.window

    def after(self, behind: Iterable[Flow]) -> list[tuple[Flow, datetime]]:
        """Flows that gave too little, or nothing from their head, with the rank after which their next part begins."""
        asked = []
        for flow in behind:
            found = self.parts.get((flow.lane, flow.flow))
            begins = found is None or found.at_head or found.window.until == END
            asked.append((flow, HEAD if found is None or begins else found.window.until))
        return asked

    def go_on(
        self, asked: Sequence[tuple[Flow, datetime]], ends: Sequence[datetime | None], *, full: Iterable[Flow]
    ) -> None:
        """The parts that begin so end so; None where less than a part is left. `full` gave what was asked for."""
        for (flow, after), until in zip(asked, ends, strict=True):
            key = flow.lane, flow.flow
            found = self.parts.pop(key, None)
            if until is None and after == HEAD:
                continue  # all of it is less than a part
            if found is None:
                self.parts[key] = _Parts(until or END, Window(HEAD, until or END), at_head=False)
            elif found.at_head:
                self.parts[key] = found._replace(head=until or END, at_head=False)
            else:
                self.parts[key] = found._replace(window=Window(after, until or END), at_head=True)
        for flow in full:
            key = flow.lane, flow.flow
            if key in self.parts:
                self.parts[key] = self.parts[key]._replace(at_head=True)
        while len(self.parts) > REMEMBERED:
            self.parts.popitem(last=False)
