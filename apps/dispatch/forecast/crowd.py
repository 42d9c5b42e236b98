"""Who is in the fullest minutes: from a look at all due entries, or at a sample of them where there are many."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from apps.due import forecast
from apps.due.forecast import MINUTE, Planned
from apps.schedules.forecasting import Expander, Open, Pattern
from kernel.clock import monotonic_s

Conn = psycopg.Connection[Any]
SAMPLE = 20_000  # entries; no more than so many are looked at, about
PAGE = 500
KEYS_SHOWN = 5  # of a tenant in a full minute
TENANTS_SHOWN = 50  # of such a minute
PATTERNS_KEPT = 1_024


class _Watched(NamedTuple):
    """What of a pattern is in the minutes that are watched, or may be by a schedule's jitter."""

    pattern: Pattern  # as long as this one is here no other has its id
    runs: dict[int, int]
    opens: tuple[Open, ...]


class CrowdLook:
    """Due entries that are being looked at. `watched` are the minutes' numbers in the expander's stretch of time.

    `by_tenant` are the entries of each tenant, also of those that are not served.
    """

    def __init__(
        self, conn: Conn, *, watched: Collection[int], expander: Expander, entries: int, tenants: Collection[int]
    ) -> None:  # fmt: skip
        self.watched, self.entries = frozenset(watched), entries
        self._expander, self._tenants = expander, frozenset(tenants)
        self._whole = entries <= SAMPLE
        with conn.transaction():
            percent = 100.0 if self._whole else 100 * SAMPLE / entries
            self.rows = forecast.some(conn, until=expander.until, percent=percent)
        self.groups = 0
        self.by_tenant: Counter[int] = Counter()
        self._runs: dict[int, Counter[int]] = {index: Counter() for index in self.watched}
        self._keys: dict[tuple[int, int], list[UUID]] = defaultdict(list)
        self._known: dict[int, _Watched] = {}

    def go_on(self, *, for_s: float) -> bool:
        """Goes on for about so many seconds, at least by one page; whether all is done."""
        until = monotonic_s() + for_s
        while page := self.rows.fetch(PAGE):
            for row in page:
                self._add(Planned._make(row))
            if monotonic_s() >= until:
                return False
        self.rows.close()
        return True

    def peaks(self) -> list[dict[str, Any]]:
        """The minutes with runs, the fullest first, each with the tenants that have the most: see `forecast.Total`."""
        looked_at = sum(count for tenant, count in self.by_tenant.items() if tenant in self._tenants)
        entries = looked_at if self._whole else max(self.entries, looked_at)
        times = entries / looked_at if looked_at else 1.0
        found = []
        for index, tenants in self._runs.items():
            if not tenants:
                continue
            most = sorted(tenants.items(), key=lambda one: (-one[1], one[0]))[:TENANTS_SHOWN]
            found.append({
                "at": self._expander.starts_at + index * MINUTE, "runs": round(sum(tenants.values()) * times),
                "of": len(tenants), "looked_at": looked_at, "entries": entries,
                "tenants": [[tenant, round(runs * times), self._keys[index, tenant]] for tenant, runs in most],
            })  # fmt: skip
        return sorted(found, key=lambda one: (-one["runs"], one["at"]))

    def _add(self, entry: Planned) -> None:
        self.groups += 1
        self.by_tenant[entry.tenant_id] += 1
        if entry.tenant_id not in self._tenants:
            return
        for index, runs in self._runs_of(entry):
            self._runs[index][entry.tenant_id] += runs
            keys = self._keys[index, entry.tenant_id]
            if len(keys) < KEYS_SHOWN and entry.key not in keys:
                keys.append(entry.key)

    def _runs_of(self, entry: Planned) -> Iterator[tuple[int, int]]:
        pattern = self._expander.pattern(entry)
        known = self._known.get(id(pattern))
        if known is None:
            if len(self._known) >= PATTERNS_KEPT:
                self._known.clear()
            known = self._known[id(pattern)] = self._of_pattern(pattern)
        yield from known.runs.items()
        for one in known.opens:
            index = self._expander.of_open(one, str(entry.key))
            if index in self._runs:
                yield index, 1

    def _of_pattern(self, pattern: Pattern) -> _Watched:
        begins = [self._expander.starts_at + index * MINUTE for index in self.watched]
        return _Watched(
            pattern,
            {index: count for index, count in pattern.bins if index in self.watched},
            tuple(one for one in pattern.opens if any(_reaches(one, at) for at in begins)),
        )  # fmt: skip


def _reaches(one: Open, minute: datetime) -> bool:
    """Whether an occurrence may be delayed into a minute, or is in it."""
    return one.nominal < minute + MINUTE and minute - one.nominal < one.reach
