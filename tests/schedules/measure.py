"""Prints what the time code costs, cronsim beside it: `PYTHONPATH=.:platform python -m tests.schedules.measure`."""

import itertools
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from cronsim import CronSim

from apps.schedules.cron_parse import compile_cron
from apps.schedules.policy import decide
from apps.schedules.timing import (
    Cron,
    Spec,
    latest_between,
    load_zone,
    next_after,
    spec_from_api,
    spec_from_json,
    spec_to_json,
)
from apps.schedules.timing_calendar import CronCalendar

ZONE = "America/New_York"
EXPRESSIONS = ["* * * * *", "*/5 * * * *", "0 9 * * 1-5", "30 2 * * *", "0 0 1 */3 *", "15 10 L * *", "0 0 29 2 *"]
START = datetime(2026, 1, 1, tzinfo=UTC)
POINTS = [START + timedelta(seconds=number * 13_007) for number in range(2000)]


def best_us(call: Callable[[], object], times: int) -> float:
    """Microseconds a call, the best of five rounds."""
    rounds = []
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(times):
            call()
        rounds.append((time.perf_counter() - started) / times)
    return min(rounds) * 1e6


def next_times(expression: str) -> None:
    calendar = CronCalendar((expression,), ZONE, "run_after", "first")
    points, local = itertools.cycle(POINTS), itertools.cycle([at.astimezone(load_zone(ZONE)) for at in POINTS])

    def new_and_next(*, forget: bool) -> None:
        if forget:
            compile_cron.cache_clear()
        CronCalendar((expression,), ZONE, "run_after", "first").next_after(next(points))

    search = best_us(lambda: calendar.next_after(next(points)), 5000)
    compiled = best_us(lambda: new_and_next(forget=False), 5000)
    parsed = best_us(lambda: new_and_next(forget=True), 2000)
    cronsim = best_us(lambda: next(CronSim(expression, next(local))), 2000)
    print(f"{expression:14} {search:8.1f} {compiled:12.1f} {parsed:14.1f} {cronsim:9.1f}")


def main() -> None:
    print("us each        search  new + search  parse + search   cronsim")
    for expression in EXPRESSIONS:
        next_times(expression)
    api = {"trigger": {"cron": "*/5 * * * *"}, "timezone": ZONE}
    spec = spec_from_api(api, now=START)
    jittered = spec_from_api({**api, "jitter_s": 30}, now=START)
    text, at = spec_to_json(spec), START + timedelta(minutes=5)
    late, much_later = at + timedelta(milliseconds=300), at + timedelta(days=30)

    def decided(which: Spec, now: datetime) -> Callable[[], object]:
        return lambda: decide(which, key="k", nominal_at=at, due_at=at, now=now)

    def read_anew() -> None:
        spec_from_json.cache_clear()
        spec_from_json(text)

    for name, call, times in (
        ("decide, on time", decided(spec, late), 20_000),
        ("decide, on time, jitter", decided(jittered, late), 20_000),
        ("decide, a month missed", decided(spec, much_later), 200),
        ("next_after, memo", lambda: next_after(spec, at), 50_000),
        ("spec_from_json, memo", lambda: spec_from_json(text), 50_000),
        ("spec_from_json, new", read_anew, 2000),
        ("spec_from_api", lambda: spec_from_api(api, now=START), 2000),
    ):
        print(f"{name:24} {best_us(call, times):8.2f} us")
    far, end = Spec(Cron(("* * * * * *",)), ZONE), datetime(2200, 1, 1, tzinfo=UTC)
    latest_ms = best_us(lambda: latest_between(far, after=START, until=end, limit=1000), 2) / 1000
    print(f"newest 1,000 of 5.5 billion missed, counted {latest_ms:.1f} ms")


if __name__ == "__main__":
    main()
