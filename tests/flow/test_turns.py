"""Turns that are granted ahead are those that would come one after another: never another decision, only less time."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.dispatch import fairness
from apps.dispatch.fairness import FairShare
from apps.dispatch.slottime import Claim

GROUPS = ("", "gpu")


@st.composite
def a_claim(draw: st.DrawFn) -> Claim:
    group = draw(st.sampled_from(GROUPS))
    return Claim(
        weight=draw(st.integers(1, 20)), wants=draw(st.sampled_from((0, 1, 3, 40, 1_000))),
        held=draw(st.integers(0, 60)), reserved=draw(st.sampled_from((0, 0, 0, 5, 30))),
        maximum=draw(st.sampled_from((None, None, None, 20, 70))),
        queue=f"{draw(st.integers(0, 5))}@{group}", group=group,
    )  # fmt: skip


a_pass = st.tuples(
    st.dictionaries(st.integers(1, 12), a_claim(), max_size=10),
    st.fixed_dictionaries({group: st.integers(0, 400) for group in GROUPS}),
    st.lists(st.integers(0, 400), min_size=12, max_size=12),
    st.sampled_from((0.02, 0.1, 1.0, 30.0)), st.sampled_from((0.0, 0.3, 1.0)),
)  # fmt: skip


@given(st.lists(a_pass, min_size=1, max_size=5))
def test_turns_granted_ahead_are_those_that_come_one_by_one(passes: list[Any]) -> None:
    ahead, one_by_one = FairShare(salt=3), FairShare(salt=3)
    for claims, total, rooms, elapsed_s, used_part in passes:
        room = {f"{number}@{group}": rooms[number + 6 * (group == "gpu")] for number in range(6) for group in GROUPS}
        found = []
        for share, least in ((ahead, fairness.AHEAD_LEAST), (one_by_one, math.inf)):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(fairness, "AHEAD_LEAST", least)
                grants = share.grant(claims, total=total, room=room, elapsed_s=elapsed_s)
            used = {tenant: math.ceil(count * used_part) for tenant, count in grants.items()}
            share.charge(used, grants)
            found.append((grants, share.time, share._reached))
        assert found[0] == found[1]
