"""What the workers of these tests run."""

import time
from collections.abc import Mapping
from typing import Any


def nap(payload: Any, context: Mapping[str, Any]) -> None:
    """Holds a slot for so many seconds."""
    time.sleep(payload["s"])  # lint: allow no-sleep-in-tests: the run's own length is what is measured
