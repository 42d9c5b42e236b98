"""Shares of slot time under the round simulator: what docs/fairness.md promises."""

from __future__ import annotations

from tests.flow.rounds import Rounds, Tenant


def test_long_and_short_runs_share_slot_time_by_weight() -> None:
    """1,000 tenants that always wait, weights 1 to 20, runs of half a second to four: within 5 %."""
    lengths = (0.5, 1.0, 4.0)
    tenants = {n: Tenant(weight=1 + n % 20, run_s=lengths[n // 20 % 3]) for n in range(1_000)}
    rounds = Rounds(tenants, {"": 2_000}).go(300)
    used = sum(rounds.slot_s.values())
    assert used == 2_000 * 300
    weights = sum(one.weight for one in tenants.values())
    for number, one in tenants.items():
        part = used * one.weight / weights
        assert abs(rounds.slot_s[number] - part) <= 0.05 * part + 2 * one.run_s
