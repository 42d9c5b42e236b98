"""Fast hashes, and counters that begin at nothing."""

from tests.portal.conftest import forgetful

__all__ = ["forgetful"]
