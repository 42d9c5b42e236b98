"""How many causes are told apart: what a tenant invents must not grow the tables of all. Pure."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from apps.usage.figures import CAUSES_MOST, OTHERS

HOUR_MOST = 200  # causes of one tenant in an hour; a minute has CAUSES_MOST
PLATFORM_MINUTE_MOST = 300  # of all tenants
PLATFORM_HOUR_MOST = 1_000
MOST = {60: CAUSES_MOST, 3_600: HOUR_MOST}
PLATFORM_MOST = {60: PLATFORM_MINUTE_MOST, 3_600: PLATFORM_HOUR_MOST}
TENANTS_MOST = 50  # that a platform row names


class Failed(NamedTuple):
    """Attempts that failed and dead letters that were made."""

    attempts: int = 0
    letters: int = 0

    def plus(self, other: "Failed") -> "Failed":
        return Failed(self.attempts + other.attempts, self.letters + other.letters)


def admitted(wanted: Mapping[str, Failed], *, known: Collection[str], most: int) -> set[str]:
    """The fingerprints that keep a row of their own beside those that have one, the frequent ones first."""
    named = set(known) - {OTHERS}
    new = sorted((one for one in wanted if one not in named and one != OTHERS), key=lambda one: _order(wanted, one))
    return {one for one in wanted if one in named} | set(new[: max(0, most - len(named))])


def folded(wanted: Mapping[str, Failed], kept: Collection[str]) -> dict[str, Failed]:
    """The same counts; those of causes that are not kept are together under OTHERS."""
    found: dict[str, Failed] = {}
    for fingerprint, failed in wanted.items():
        at = fingerprint if fingerprint in kept else OTHERS
        found[at] = found.get(at, Failed()).plus(failed)
    return found


def _order(wanted: Mapping[str, Failed], one: str) -> tuple[int, int, str]:
    return -wanted[one].letters, -wanted[one].attempts, one
