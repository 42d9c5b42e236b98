"""New keys for old ones: nothing is lost, whoever stops it where, and nobody waits."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import call_command

from apps.secrets import rotation
from apps.secrets.models import DataKey, Secret
from apps.secrets.signing import signing_rotate
from apps.secrets.store import value_of
from tenants import door
from tenants.models import Tenant
from tests.secrets.hands import NOW, Conn, actor, change, execute, kek, make_secret

OLD, NEW = kek("old"), kek("new")


@pytest.fixture(autouse=True)
def old_key(database: None, settings: Any) -> None:
    settings.SECRETS_KEYS = OLD


def rotate(*options: str) -> tuple[int, dict[str, Any]]:
    """Exit code and answer of the command."""
    out = io.StringIO()
    code = 0
    try:
        call_command("secrets_rotate", "--format", "json", *options, stdout=out)
    except SystemExit as ending:
        code = int(ending.code or 0)
    return code, json.loads(out.getvalue())


def values(tenant: Tenant) -> dict[str, str]:
    with door.inside(tenant):
        rows = Secret.objects.select_related("data_key").filter(purpose="job").order_by("name")
        return {row.name: value_of(row, tenant_id=tenant.pk) for row in rows}


def keys(tenant: Tenant) -> list[tuple[str, bool]]:
    with door.inside(tenant):
        return [(row.kek_id, row.retired_at is None) for row in DataKey.objects.order_by("pk")]


def fill(tenant: Tenant, number: int = 5) -> dict[str, str]:
    for at in range(number):
        make_secret(tenant, f"S{at}", f"{tenant.slug} {at}")
    return values(tenant)


def test_data_keys_are_wrapped_anew_and_values_stay(
    acme: Tenant, globex: Tenant, settings: Any, conn: Conn
) -> None:  # fmt: skip
    before = fill(acme), fill(globex, 2)
    stored = execute(conn, acme, "SELECT id, ciphertext FROM {}.secrets_secret ORDER BY id")
    settings.SECRETS_KEYS = f"{NEW},{OLD}"
    code, dry = rotate("--dry-run")
    assert (code, dry["rewrapped"], dry["reencrypted"], keys(acme)) == (0, 2, 0, [("old", True)])
    code, done = rotate()
    assert (code, done["key"], done["rewrapped"], done["left"]) == (0, "new", 2, 0)
    assert keys(acme) == keys(globex) == [("new", True)]
    assert execute(conn, acme, "SELECT id, ciphertext FROM {}.secrets_secret ORDER BY id") == stored
    settings.SECRETS_KEYS = NEW  # the old one can go
    assert (values(acme), values(globex)) == before
    code, again = rotate()
    assert (code, again["rewrapped"], again["changed"]) == (0, 0, {})
    trail = conn.execute("SELECT tenant_id, after FROM audit_auditevent WHERE action = 'secret.rotate' ORDER BY id")
    assert [(row[0], row[1]["rewrapped"]) for row in trail] == [(acme.pk, 1), (globex.pk, 1)]


def test_values_get_a_new_data_key(acme: Tenant, globex: Tenant, settings: Any) -> None:
    before = fill(acme)
    signing_rotate(tenant=acme, actor=actor(acme), now=NOW)
    fill(globex)
    settings.SECRETS_KEYS = f"{NEW},{OLD}"
    code, dry = rotate("--data-keys", "--dry-run", "--tenant", "acme")
    assert (code, dry["new_data_keys"], dry["reencrypted"]) == (0, 1, 6)
    code, done = rotate("--data-keys", "--tenant", "acme", "--batch", "2")
    assert (code, done["tenants"], done["reencrypted"], done["removed_data_keys"]) == (0, 1, 6, 1)
    assert keys(acme) == [("new", True)] and keys(globex) == [("old", True)]
    assert values(acme) == before


@pytest.mark.parametrize("stops_at", ["_retire", "_reencrypt", "_remove_unused"])
def test_what_was_stopped_is_ended(
    acme: Tenant, settings: Any, monkeypatch: pytest.MonkeyPatch, stops_at: str
) -> None:  # fmt: skip
    before = fill(acme)
    settings.SECRETS_KEYS = f"{NEW},{OLD}"
    real: Callable[..., Any] = getattr(rotation, stops_at)
    calls = [0]

    def stop(*args: Any, **more: Any) -> Any:
        calls[0] += 1
        if calls[0] == (2 if stops_at == "_reencrypt" else 1):
            raise KeyboardInterrupt
        return real(*args, **more)

    monkeypatch.setattr(rotation, stops_at, stop)
    with pytest.raises(KeyboardInterrupt):
        rotate("--data-keys", "--batch", "2")
    assert values(acme) == before
    monkeypatch.undo()
    settings.SECRETS_KEYS = f"{NEW},{OLD}"
    make_secret(acme, "MEANWHILE", "too")
    code, done = rotate("--data-keys", "--batch", "2")
    assert code == 0 and keys(acme) == [("new", True)]
    assert done["new_data_keys"] == (1 if stops_at != "_reencrypt" else 0), "the interrupted rotation is ended"
    assert values(acme) == before | {"MEANWHILE": "too"}


def test_what_can_not_be_read_is_told_and_the_rest_goes_on(acme: Tenant, settings: Any, conn: Conn) -> None:
    fill(acme, 3)
    execute(conn, acme, "UPDATE {}.secrets_secret SET ciphertext = 'broken' WHERE name = 'S1'")
    settings.SECRETS_KEYS = f"{NEW},{OLD}"
    code, done = rotate("--data-keys")
    assert (code, done["reencrypted"], done["unreadable"]) == (1, 2, {"acme": ["S1"]})
    settings.SECRETS_KEYS = kek("third")
    code, done = rotate("--tenant", "acme")
    assert code == 1 and done["left"] == 2 and len(done["unreadable"]["acme"]) == 2


def test_a_value_that_changes_meanwhile_is_the_new_one(
    acme: Tenant, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    fill(acme, 4)
    with door.inside(acme):
        secret = Secret.objects.get(name="S3")
    real = rotation._reencrypt

    def with_change(*args: Any) -> Any:
        if values(acme)["S3"] == "acme 3":
            change(acme, secret, "newer")
        return real(*args)

    monkeypatch.setattr(rotation, "_reencrypt", with_change)
    code, _ = rotate("--data-keys", "--batch", "2")
    assert code == 0 and values(acme)["S3"] == "newer" and keys(acme) == [("old", True)]


def test_bad_input(acme: Tenant, settings: Any) -> None:
    settings.SECRETS_KEYS = ""
    with pytest.raises(SystemExit) as ending:
        call_command("secrets_rotate", stderr=io.StringIO())
    assert ending.value.code == 2
    settings.SECRETS_KEYS = OLD
    for options in (["--tenant", "nobody"], ["--batch", "0"]):
        with pytest.raises(SystemExit) as ending:
            call_command("secrets_rotate", *options, stderr=io.StringIO())
        assert ending.value.code == 2


def test_the_signing_command_prints_once(acme: Tenant) -> None:
    out = io.StringIO()
    call_command("signing_rotate", "--tenant", "acme", stdout=out)
    assert out.getvalue().startswith("whsec_")
    with pytest.raises(SystemExit):
        call_command("signing_rotate", "--tenant", "acme", "--overlap-s", "-1", stderr=io.StringIO())
