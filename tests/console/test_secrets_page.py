"""The page of a tenant's secrets: values go in through a password field, and are on no page."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.console.conftest import WHO
from tests.secrets.hands import make_secret

Conn = psycopg.Connection[Any]
LIST = "/t/acme/admin/secrets/secret/"
VALUE = "S3CR3T-7f1"


@pytest.fixture
def secret(acme: Any) -> Any:
    return make_secret(acme, "TOKEN", VALUE, description="of the hooks")


def value_now(acme: Any) -> str:
    from apps.secrets.models import Secret
    from apps.secrets.store import value_of
    from tenants import door

    with door.inside(acme):
        return value_of(Secret.objects.select_related("data_key").get(name="TOKEN"), tenant_id=acme.pk)


def test_pages_show_what_is_known_and_no_value(page: Any, secret: Any) -> None:
    listed = page.get(LIST).content.decode()
    one = page.get(f"{LIST}{secret.pk}/change/").content.decode()
    for text in (listed, one):
        assert "TOKEN" in text and "of the hooks" in text and VALUE not in text
    assert 'type="password"' in one and "ciphertext" not in one


def test_a_value_is_set_and_noted(page: Any, acme: Any, secret: Any, conn: Conn) -> None:
    form = {"description": "of the hooks", "value": "n3w", "seen": 1}
    answer = page.post(f"{LIST}{secret.pk}/change/", form, follow=True)
    assert answer.status_code == 200 and "n3w" not in answer.content.decode()
    assert value_now(acme) == "n3w"
    rows = conn.execute(f"SELECT {WHO}, action, after FROM audit_auditevent ORDER BY id").fetchall()
    assert rows[-1] == ("admin:ada", "secret.update", {"version": 2}) and "n3w" not in repr(rows)


def test_an_empty_field_keeps_the_value(page: Any, acme: Any, secret: Any) -> None:
    page.post(f"{LIST}{secret.pk}/change/", {"description": "else", "value": "", "seen": 1})
    assert value_now(acme) == VALUE


def test_who_looked_at_an_older_version_is_told(page: Any, acme: Any, secret: Any) -> None:
    page.post(f"{LIST}{secret.pk}/change/", {"description": "", "value": "first", "seen": 1})
    late = page.post(f"{LIST}{secret.pk}/change/", {"description": "", "value": "l4te", "seen": 1})
    assert "has changed since" in late.content.decode() and "l4te" not in late.content.decode()
    assert value_now(acme) == "first"


def test_a_secret_is_made(page: Any, acme: Any) -> None:
    refused = page.post(f"{LIST}add/", {"name": "no blanks", "description": "", "value": ""})
    text = refused.content.decode()
    assert "begin with a letter" in text and "A secret has a value." in text
    page.post(f"{LIST}add/", {"name": "TOKEN", "description": "", "value": " v "})
    assert value_now(acme) == " v "
    assert "already a secret" in page.post(f"{LIST}add/", {"name": "TOKEN", "value": "x"}).content.decode()


def test_what_the_platform_keeps_is_on_no_page(page: Any, acme: Any) -> None:
    from apps.secrets.models import Secret
    from apps.secrets.signing import signing_rotate
    from tenants import door
    from tests.secrets.hands import NOW, actor

    signing_rotate(tenant=acme, actor=actor(acme), now=NOW)
    with door.inside(acme):
        (pk,) = Secret.objects.values_list("pk", flat=True)
    assert "@sign" not in page.get(LIST).content.decode()
    assert page.get(f"{LIST}{pk}/change/").status_code == 302
    assert page.post(f"{LIST}{pk}/delete/", {"post": "yes"}).status_code in (302, 403)
