"""A provider that acme has set up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.portal.conftest import forgetful
from tests.signin.idp import CLIENT, SECRET, Idp, running

if TYPE_CHECKING:
    from tests.fixtures_api import Api

__all__ = ["forgetful"]


@pytest.fixture
def idp() -> Iterator[Idp]:
    from apps.signin.provider import forget

    forget()
    with running() as found:
        yield found
    forget()


@pytest.fixture
def values(idp: Idp) -> dict[str, Any]:
    return {
        "enabled": True, "issuer": idp.issuer, "client_id": CLIENT, "client_secret": SECRET, "domains": ["acme.test"],
    }  # fmt: skip


@pytest.fixture
def provider(api: Api, values: dict[str, Any]) -> dict[str, Any]:
    """Set up over the API."""
    answer = api.put("identity-provider", values, If_Match="*")
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.body
    return found
