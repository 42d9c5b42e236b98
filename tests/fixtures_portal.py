"""Browsers of members on their tenant's host; each page they get is held against the strict policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tenants.models import Tenant

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202e&\"'"


class Console:
    """One member's browser. `get` and `post` answer the response, whose page was looked at."""

    def __init__(self, tenant: Tenant, role: str) -> None:
        from tests.fixtures_people import member_of, signed_in

        self.member = member_of(tenant, role)
        self.client = signed_in(self.member)

    def get(self, path: str, *, status: int = 200, **headers: str) -> Any:
        return self._looked_at(self.client.get(path, headers=headers), path, status)

    def post(self, path: str, data: dict[str, Any] | None = None, *, status: int = 303, **headers: str) -> Any:
        """As the page's own form would; the token is checked in a real browser."""
        return self._looked_at(self.client.post(path, data or {}, headers=headers), path, status)

    def text(self, path: str, *, status: int = 200) -> str:
        return str(self.get(path, status=status).content.decode())

    def _looked_at(self, response: Any, path: str, status: int) -> Any:
        from django.db import connection

        from tests.console.conftest import Strict

        assert response.status_code == status, f"{path}: {response.status_code} {response.content[:2000].decode()}"
        assert connection.schema_name == "public"  # type: ignore[attr-defined]  # django-tenants' own
        if "text/html" in response.headers.get("Content-Type", ""):
            policy = response.headers["Content-Security-Policy"]
            assert "script-src 'self'" in policy and "style-src 'self'" in policy and "default-src 'self'" in policy
            assert response.headers["Cache-Control"] == "no-store"
            strict = Strict()
            strict.feed(response.content.decode())
            assert not strict.found, f"{path}: {strict.found}"
        return response


@pytest.fixture
def console_of(database: None) -> Iterator[Callable[..., Console]]:
    """`console_of(acme, "viewer")`: a browser of a new member."""
    yield lambda tenant, role="admin": Console(tenant, role)
