"""Fast hashes, and counters that begin at nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def forgetful(settings: Any) -> Iterator[None]:
    """Nothing was counted before this test, and a hash costs next to nothing."""
    from tenants import guard
    from tenants.rates import rates

    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    counted = rates()
    counted.forget_all()
    guard.forget_all()
    yield
    counted.forget_all()
