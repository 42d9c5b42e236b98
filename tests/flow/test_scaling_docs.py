"""docs/scaling.md and deploy/: what they name is there, and what is there is named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from apps.dispatch.pressure.scaling import Demand, Policy, Share, slots_wanted

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "scaling.md").read_text()
EXAMPLES = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))


def exported() -> set[str]:
    from apps.api.metric_families import Families
    from apps.dispatch.pressure.gauging import PoolFigures
    from apps.dispatch.pressure.pool_figures import Seen
    from apps.usage.archives import Totals
    from apps.usage.pressure import Pressure
    from kernel.clock import utc_now

    spread = {"times": 1, "p50_s": 0.1, "p95_s": 0.1, "p99_s": 0.1}
    pool = {"pool": "http", "group": "", "slots_each": 2, "wanted_workers": 1}
    measured = Pressure(utc_now(), 0.0, 2.0, 1, 1.0, {"pools": [pool], "dispatch": spread})
    assert PoolFigures(**pool).wanted_workers == 1  # type: ignore[arg-type]  # a dict of both kinds
    found = Families(Seen(utc_now(), 0.0, 1, 1, measured, Totals(1, 1, 1, 0, 0.0, 0.0))).collect()
    return {f"{one.name}_total" if one.type == "counter" else one.name for one in found}


def test_every_metric_is_in_the_table_and_nothing_else() -> None:
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    table = PAGE[PAGE.index("| metric (") : PAGE.index("`/metrics/pools` is for")]
    named = {
        f"shardbeat_{name}"
        for line in table.splitlines()[2:]
        if line.startswith("| `")
        for name in re.findall(r"`([a-z_]+)`", line.split("|")[1])
    }
    assert named == exported() and rows


def test_the_example_is_what_the_formula_says() -> None:
    found = slots_wanted(Demand(10, 1, [Share(600, 0)]), Policy())
    assert (found.steady, found.backlog, found.slots) == (12.5, 10, 23)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_ask_for_what_there_is(path: Path) -> None:
    text = path.read_text()
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    assert {"apiVersion", "kind", "metadata"} <= set.intersection(*(set(one) for one in documents))
    assert set(re.findall(r"shardbeat_[a-z_]+", text)) <= exported()
    for trigger in documents[-1]["spec"].get("triggers", ()):
        assert trigger["metadata"]["url"].endswith("/metrics/pools?pool=http")
        assert trigger["metadata"]["valueLocation"] == "pools.0.wanted_slots"
