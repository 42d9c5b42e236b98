"""How often a trigger runs on its busiest day: found by looking at fields and days, not at runs."""

from collections import Counter
from datetime import datetime

from apps.schedules.cron import Expression
from apps.schedules.cron_kinds import FIRST_YEAR, LAST_YEAR
from apps.schedules.cron_parse import compile_cron
from apps.schedules.recurrence_parse import Parts, parse_rrule
from apps.schedules.timing_calendar import most_on_a_day
from apps.schedules.timing_triggers import At, Cron, Every, Interval, Recurrence, Trigger, instant_of
from apps.schedules.timing_zones import DAY_S

CYCLE_YEARS = 28  # after which weekdays fall on the same dates again


def most_a_day(trigger: Trigger, now: datetime) -> int:
    """Runs on the busiest day from `now` on, as the wall clock has it; clock changes may add an hour's."""
    if isinstance(trigger, At | Every):
        return 1
    if isinstance(trigger, Interval):
        return max(1, DAY_S // trigger.every_s)
    if isinstance(trigger, Cron):
        return _of_cron([compile_cron(text) for text in trigger.exprs], now)
    return _of_rule(trigger)


def _of_cron(expressions: list[Expression], now: datetime) -> int:
    years = set(range(now.year, now.year + CYCLE_YEARS))
    for each in expressions:
        named = [year for year in range(max(now.year, FIRST_YEAR), LAST_YEAR + 1) if each.in_year(year)]
        years |= set(named[:CYCLE_YEARS])
    return most_on_a_day(tuple(expressions), sorted(years))


def _of_rule(trigger: Recurrence) -> int:
    parts = parse_rrule(trigger.rrule, lambda *_: None) or Parts()
    extra = Counter(instant_of(text).date() for text in trigger.rdate)
    most_extra = max(extra.values(), default=0)
    if not parts.sub_daily:
        times = parts.rule(datetime.fromisoformat(trigger.dtstart).replace(tzinfo=None)).times()
        return len(times) + most_extra
    hours = len(parts.lists.get("BYHOUR", range(24)))
    return max(1, min(DAY_S // parts.step_s, hours * -(-3600 // parts.step_s))) + most_extra
