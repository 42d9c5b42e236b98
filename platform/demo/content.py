"""The demo's jobs and schedules, in the API's own form: what people run, and targets that fail in each way.

Everything carries an `external_id`, so that a later run finds what an earlier one made and only mends targets whose
receiver moved to another port.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCHEDULES = Path(__file__).with_name("schedules.jsonl")
FAST_RETRY = {"max_attempts": 2, "backoff": "fixed", "base_s": 1, "jitter": "none"}


@dataclass(frozen=True)
class Item:
    """A job with its schedule. `at_once` asks for one run right away, so that there is something to see."""

    key: str
    job: dict[str, Any]
    schedule: dict[str, Any]
    at_once: bool = False


def items(number: int, *, of: int, receiver: str) -> Iterator[Item]:
    """What tenant `number` of `of` has: its share of the real schedules, and the failing targets."""
    yield from _troubled(receiver)
    lines = SCHEDULES.read_text().splitlines()
    for row in map(json.loads, lines[number::of]):
        trigger = {name: row[name] for name in ("cron", "every_s") if name in row}
        yield _item(row["name"], f"{receiver}/ok/{row['name']}", trigger=trigger, timezone=row.get("timezone", "UTC"))


def _troubled(receiver: str) -> Iterator[Item]:
    minute, now_and_then = {"cron": "* * * * *"}, {"cron": "*/5 * * * *"}
    yield _item("always-fails", f"{receiver}/fail", trigger=minute, retry=FAST_RETRY, at_once=True)
    yield _item("nobody-listens", "http://127.0.0.1:1/", trigger=now_and_then, retry=FAST_RETRY, at_once=True)
    yield _item("is-gone", f"{receiver}/gone", trigger=now_and_then, retry=FAST_RETRY)
    yield _item(
        "too-slow", f"{receiver}/slow?s=30", trigger=now_and_then, retry={"max_attempts": 1}, timeout_s=2,
        at_once=True,
    )  # fmt: skip
    patient = {**FAST_RETRY, "max_attempts": 5}
    yield _item("works-at-the-third-attempt", f"{receiver}/flaky", trigger=minute, retry=patient, at_once=True)


def _item(
    name: str,
    url: str,
    *,
    trigger: dict[str, Any],
    timezone: str = "UTC",
    retry: dict[str, Any] | None = None,
    timeout_s: int = 20,
    at_once: bool = False,
) -> Item:
    key = f"demo:{name}"
    job: dict[str, Any] = {
        "name": name,
        "kind": "http",
        "target": {"url": url, "method": "POST"},
        "payload": {"task": name},
        "timeout_s": timeout_s,
        "labels": {"source": "demo"},
        "external_id": key,
    }
    if retry is not None:
        job["retry"] = retry
    schedule = {
        "name": name, "trigger": trigger, "timezone": timezone, "labels": {"source": "demo"}, "external_id": key,
    }  # fmt: skip
    return Item(key=key, job=job, schedule=schedule, at_once=at_once)
