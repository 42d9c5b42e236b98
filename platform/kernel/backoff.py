"""Delays between tries: bounded exponential or fixed, with jitter.

The jitter forms are those of "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015): none, full
(uniform in 0..d) and equal (uniform in d/2..d).
"""

import math
import random
from typing import Literal

MIN_DELAY_S = 0.05
Jitter = Literal["none", "full", "equal"]


def delay_s(attempt: int, *, base_s: float, factor: float, max_s: float, fixed: bool = False) -> float:
    """Seconds before the try after `attempt` (from 1), without jitter; in (0, max_s] for every attempt.

    The exponent is compared as a logarithm first, so that attempt 1,000 costs nothing and overflows nothing.
    """
    base = max(base_s, MIN_DELAY_S)
    if base >= max_s:
        return max(max_s, MIN_DELAY_S)
    if fixed or factor <= 1:
        return base
    if (attempt - 1) * math.log(factor) >= math.log(max_s / base):
        return max_s
    return min(max_s, base * factor ** (attempt - 1))


def with_jitter(delay: float, jitter: Jitter, rng: random.Random | None = None) -> float:
    """`delay` seconds spread by the jitter; never below MIN_DELAY_S and never above `delay`."""
    uniform = (rng or random).uniform
    if jitter == "full":
        return max(MIN_DELAY_S, uniform(0, delay))
    if jitter == "equal":
        return max(MIN_DELAY_S, uniform(delay / 2, delay))
    return delay
