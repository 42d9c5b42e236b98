"""A task that takes some time and no CPU, so that a flood fills the slots of workers and not the machine."""

import time
from collections.abc import Mapping
from typing import Any

NAP_S = 0.2


def nap(payload: Any, context: Mapping[str, Any]) -> None:
    """Holds its slot for NAP_S."""
    time.sleep(NAP_S)
