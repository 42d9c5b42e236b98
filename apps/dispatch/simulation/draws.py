"""Random times for synthetic loads: how long runs take, when they arrive. Pure; the same generator gives the same."""

import math
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kernel.backoff import delay_s, with_jitter
from kernel.errors import Faults

Draw = Callable[[random.Random], float]
Z99 = 2.326347874  # the 99th percentile of the standard normal distribution
RETRY = {"max_attempts": 3, "base_s": 2.0, "factor": 2.0, "max_s": 600.0, "jitter": "full"}
MAX_RUN_S = 8 * 3_600.0


def run_time(data: object, faults: Faults, pointer: str) -> Draw:
    """How to draw a run time: a number of seconds, or one of fixed, exponential, lognormal, pareto and sample."""
    if isinstance(data, int | float) and not isinstance(data, bool):
        data = {"fixed": data}
    try:
        if isinstance(data, Mapping):
            ((kind, given),) = data.items()
            return _DRAWS[kind](given)
        raise TypeError
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        faults.add(
            pointer, "bad_run_time",
            'Give seconds, {"fixed": s}, {"exponential": mean}, {"lognormal": {"median": s, "p99": s}},'
            ' {"pareto": {"least": s, "alpha": a, "most": s}} or {"sample": [s, ...]}.',
        )  # fmt: skip
        return lambda rng: 0.0


def poisson(rng: random.Random, *, per_s: float, start_s: float, end_s: float) -> Iterator[float]:
    """Instants of a Poisson process: independent of each other, `per_s` a second on average."""
    at = start_s
    while per_s > 0:
        at += rng.expovariate(per_s)
        if at >= end_s:
            return
        yield at


def tries_of(rng: random.Random, draw: Draw, *, fails: float, retry: Mapping[str, Any]) -> tuple[float, ...]:
    """The attempts of one run, each failing with the same probability: (run, wait, run, ...) under a retry policy."""
    tries = [draw(rng)]
    if not fails:
        return tuple(tries)
    attempt = 1
    while attempt < retry["max_attempts"] and rng.random() < fails:
        plain = delay_s(
            attempt, base_s=retry["base_s"], factor=retry["factor"], max_s=retry["max_s"],
            fixed=retry.get("backoff") == "fixed",
        )  # fmt: skip
        tries += (with_jitter(plain, retry["jitter"], rng), draw(rng))
        attempt += 1
    return tuple(tries)


def _fixed(seconds: float) -> Draw:
    value = _seconds(seconds)
    return lambda rng: value


def _exponential(mean: float) -> Draw:
    rate = 1 / _seconds(mean)
    return lambda rng: min(MAX_RUN_S, rng.expovariate(rate))


def _lognormal(given: Mapping[str, float]) -> Draw:
    mu = math.log(_seconds(given["median"]))
    sigma = (math.log(_seconds(given["p99"])) - mu) / Z99
    if sigma < 0:
        raise ValueError
    return lambda rng: min(MAX_RUN_S, rng.lognormvariate(mu, sigma))


def _pareto(given: Mapping[str, float]) -> Draw:
    least, alpha, most = _seconds(given["least"]), float(given["alpha"]), _seconds(given.get("most", MAX_RUN_S))
    if alpha <= 0:
        raise ValueError
    return lambda rng: min(most, least * rng.paretovariate(alpha))


def _sample(values: list[float]) -> Draw:
    known = [_seconds(value) for value in values]
    if not known:
        raise ValueError
    return lambda rng: known[int(rng.random() * len(known))]


def _seconds(value: float) -> float:
    number = float(value)
    if not 0 <= number <= MAX_RUN_S:
        raise ValueError
    return number


_DRAWS: dict[str, Callable[[Any], Draw]] = {
    "fixed": _fixed, "exponential": _exponential, "lognormal": _lognormal, "pareto": _pareto, "sample": _sample,
}  # fmt: skip
