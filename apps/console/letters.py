"""What the pages of dead letters share: the time that is looked at, causes as they are shown, and addresses."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django.http import HttpRequest

from apps.console.chips import Chip, chips
from apps.presenting import charts
from apps.usage.failures import Group
from apps.usage.figures import start_of
from apps.usage.reading import STEP_S
from tenants.models import Tenant

FINGERPRINT_CHARS = 64


class Window(NamedTuple):
    """A stretch of time up to now, the sums that it is read from, and how many bars show it."""

    name: str
    label: str
    length: timedelta
    step: str
    bars: int

    @property
    def words(self) -> str:
        """In a sentence: "the last 24 hours"."""
        return f"the {self.label if self.label.startswith('last') else f'last {self.label}'}"


WINDOWS = (
    Window("5m", "5 minutes", timedelta(minutes=5), "minute", 5),
    Window("1h", "last hour", timedelta(hours=1), "minute", 30),
    Window("24h", "24 hours", timedelta(hours=24), "hour", 24),
    Window("7d", "7 days", timedelta(days=7), "hour", 28),
    Window("31d", "31 days", timedelta(days=31), "hour", 31),
)
USUAL = next(one for one in WINDOWS if one.name == "24h")


def window_of(request: HttpRequest) -> Window:
    """The one that is asked for; nonsense is the usual one."""
    name = request.GET.get("window", "")
    return next((one for one in WINDOWS if one.name == name), USUAL)


def window_chips(request: HttpRequest, chosen: Window) -> list[Chip]:
    """A chip for each."""
    return chips(request, "window", [(one.name, one.label) for one in WINDOWS], chosen=chosen.name)


def since(window: Window, now: datetime) -> datetime:
    """When it begins: at a whole minute or hour, as the sums do."""
    return start_of(now - window.length, STEP_S[window.step])


def bars(
    series: Sequence[tuple[datetime, int, int]], *, start: datetime, end: datetime, count: int
) -> list[tuple[datetime, int, int]]:
    """The sums of `count` equal stretches of the time: when each begins, attempts, letters. Pure."""
    length, first = (end - start) / count, start.timestamp()
    of_attempts, of_letters, seconds = [0] * count, [0] * count, length.total_seconds()
    for at, attempts, letters in series:
        number = min(count - 1, max(0, int((at.timestamp() - first) / seconds)))
        of_attempts[number] += attempts
        of_letters[number] += letters
    return [(start + number * length, of_attempts[number], of_letters[number]) for number in range(count)]


def spark(group: Group, *, window: Window, now: datetime, letters: bool) -> str:
    """Its shape over the time, of dead letters or of failed attempts."""
    shape = bars(group.series, start=since(window, now), end=now, count=window.bars)
    values = [one[2] if letters else one[1] for one in shape]
    return charts.spark(values, meaning=f"{sum(values):,} in {window.words}, most at once {max(values):,}")


def chart(group: Group, *, window: Window, now: datetime) -> str:
    """The same as a large picture: dead letters below, other failed attempts on top of them."""
    shape = bars(group.series, start=since(window, now), end=now, count=window.bars)
    words = "%H:%M" if window.length <= timedelta(days=1) else "%d %b %H:%M"
    columns = [
        charts.Column(f"{at:{words}}", [("bad", letters), ("warn", max(0, attempts - letters))])
        for at, attempts, letters in shape
    ]
    return charts.columns(columns, meaning=f"Dead letters and other failed attempts in {window.words}, times in UTC")


def fingerprint_of(text: str) -> str:
    """What may be one: letters and digits as a digest has them; empty of anything else."""
    return text if len(text) == FINGERPRINT_CHARS and not set(text) - set("0123456789abcdef") else ""


def cause_url(tenant: Tenant, fingerprint: str) -> str:
    """The address of a cause's page in a tenant."""
    return f"/t/{tenant.slug}/admin/dead-letters/causes/{fingerprint}/"


def letter_url(tenant: Tenant, letter_id: object) -> str:
    """The address of a dead letter's page."""
    return f"/t/{tenant.slug}/admin/dead-letters/{letter_id}/"
