"""What a release loop holds back, since when and why, in bounded memory: from it the delays of late runs. Pure.

Each pass notes a cause for a tenant that gets nothing, and for a flow of a tenant that gets something. A cause lasts
from its first note to its last; what nobody notes any more has ended. A run that was late is told of what lasted
between its instant and its release, for its tenant or its flow: where both did, of what began later.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from uuid import UUID

import orjson

from apps.tickets.values import HoldRow

KEYS_MAX = 20_000
SPANS_MAX = 8  # of one tenant or flow; older ones are forgotten
GAP = timedelta(seconds=15)  # within it the same cause goes on: not every pass looks at each flow
GRACE = timedelta(seconds=1)  # after the last note, for that nobody looked since
LATE = timedelta(seconds=1)  # a run that is less late needs no reason
DELAYS_MAX = 8
TOLD_FROM_S = 0.05

Key = tuple[int, UUID | None]  # tenant, flow


@dataclass(slots=True)
class _Span:
    code: str
    since: datetime
    seen: datetime
    limit: int | None = None
    use: int | None = None


@dataclass(slots=True)
class Causes:
    """Of one pool."""

    spans: OrderedDict[Key, list[_Span]] = field(default_factory=OrderedDict)
    looked_at: datetime | None = None  # the last pass that noted anything

    def note(
        self, tenant_id: int, flow: UUID | None, code: str, *, now: datetime, limit: float | None, use: float | None
    ) -> None:
        """This holds the tenant, or the flow, back now."""
        self.looked_at = now
        key = (tenant_id, flow)
        spans = self.spans.get(key)
        if spans is None:
            spans = self.spans[key] = []
            if len(self.spans) > KEYS_MAX:
                self.spans.popitem(last=False)
        else:
            self.spans.move_to_end(key)
        last = spans[-1] if spans else None
        if last is None or last.code != code or now - last.seen > GAP:
            last = _Span(code, now, now)
            spans.append(last)
            del spans[:-SPANS_MAX]
        last.seen, last.limit, last.use = now, _whole(limit), _whole(use)

    def go_on(self, now: datetime) -> None:
        """Nobody looked, because there was room for nothing: what the last pass noted lasts."""
        if self.looked_at is None:
            return
        for spans in self.spans.values():
            if spans[-1].seen == self.looked_at:
                spans[-1].seen = now
        self.looked_at = now

    def delays(self, tenant_id: int, flow: UUID, *, since: datetime, now: datetime) -> str | None:
        """What held back a run that could have gone at `since`, as JSON, the longest first; None when it isn't late."""
        if now - since <= LATE:
            return None
        spans = sorted(
            (span for key in ((tenant_id, None), (tenant_id, flow)) for span in self.spans.get(key, ())),
            key=lambda span: span.since,
        )
        seconds: dict[str, float] = defaultdict(float)
        for code, start, end in _last_begun(spans, since, now):
            seconds[code] += (end - start).total_seconds()
        longest = sorted(seconds.items(), key=lambda item: -item[1])[:DELAYS_MAX]
        told = [{"code": code, "s": round(s, 3)} for code, s in longest if s >= TOLD_FROM_S]
        return orjson.dumps(told).decode() if told else None

    def lasting(self, now: datetime) -> Iterator[HoldRow]:
        """All causes that last."""
        for (tenant_id, flow), spans in self.spans.items():
            last = spans[-1]
            if now - last.seen <= GAP:
                yield HoldRow(tenant_id, flow, last.code, last.since, last.seen, last.limit, last.use)

    def remember(self, held: list[HoldRow]) -> None:
        """What another loop noted before this one took over."""
        self.spans.clear()
        for one in sorted(held, key=lambda one: one.since):
            span = _Span(one.code, one.since, one.seen_at, one.limit, one.use)
            self.spans.setdefault((one.tenant_id, one.flow), []).append(span)


def _last_begun(spans: list[_Span], since: datetime, now: datetime) -> Iterator[tuple[str, datetime, datetime]]:
    """Of spans in order of their begin: at each moment the one that began last."""
    ends = [min(now, span.seen + GRACE) for span in spans]
    edges = sorted({since, now, *(span.since for span in spans), *ends})
    for start, end in pairwise(edges):
        if start < since or end > now:
            continue
        for span, until in zip(reversed(spans), reversed(ends), strict=True):
            if span.since <= start and end <= until:
                yield span.code, start, end
                break


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)
