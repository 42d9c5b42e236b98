"""What the worker reads: the current version, of this tenant, untampered, and not for long from memory."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from apps.secrets.keyring import KeyUnknown
from apps.secrets.sealing import SecretUnreadable
from apps.secrets.signing import signing_rotate
from apps.secrets.vault import USED_STEP, Shelf, Vault
from tenants.models import Tenant
from tenants.registry import Registry
from tests.secrets.hands import NOW, Conn, actor, change, execute, kek, make_secret, tenancy_of

VALUE = "S3CR3T-7f1"
Statements = list[str]


@pytest.fixture
def read(conn: Conn, acme: Tenant, registry: Registry) -> Callable[..., Any]:
    """`read(names...)` is what a new worker finds for acme."""

    def make(*names: str, vault: Vault | None = None) -> Any:
        return (vault or Vault()).values(conn, tenancy_of(registry, acme), names, now=NOW)

    return make


def test_values_by_name(read: Callable[..., Any], acme: Tenant) -> None:
    make_secret(acme, "A", VALUE)
    make_secret(acme, "B", "ü\n" * 100)
    found = read("A", "B", "C")
    assert found.values == {"A": VALUE, "B": "ü\n" * 100} and not found.unreadable
    assert VALUE not in repr(found)


def test_nothing_is_asked_for_nothing(read: Callable[..., Any], statements: Statements) -> None:
    vault = Vault()
    read(vault=vault)
    statements.clear()
    assert read(vault=vault).values == {}
    assert not [one for one in statements if "secrets_secret" in one]


def test_a_new_value_counts_at_once(read: Callable[..., Any], acme: Tenant) -> None:
    vault = Vault()
    secret = make_secret(acme, "A", "old")
    assert read("A", vault=vault).values == {"A": "old"}
    assert change(acme, secret, "new").version == 2
    assert read("A", vault=vault).values == {"A": "new"}


def test_a_secret_made_again_under_its_name_is_another(read: Callable[..., Any], acme: Tenant, conn: Conn) -> None:
    vault = Vault()
    make_secret(acme, "A", "old")
    assert read("A", vault=vault).values == {"A": "old"}
    execute(conn, acme, "DELETE FROM {}.secrets_secret")
    assert read("A", vault=vault).values == {}
    make_secret(acme, "A", "new")
    assert read("A", vault=vault).values == {"A": "new"}


def test_another_tenants_secrets_are_not_seen(read: Callable[..., Any], globex: Tenant) -> None:
    make_secret(globex, "A", VALUE)
    assert read("A").values == {}


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE {0}.secrets_secret SET ciphertext = set_byte(ciphertext, 0, get_byte(ciphertext, 0) # 1)",
        "UPDATE {0}.secrets_secret SET nonce = set_byte(nonce, 0, get_byte(nonce, 0) # 1)",
        "UPDATE {0}.secrets_secret SET version = version + 1",
        "UPDATE {0}.secrets_secret SET ciphertext = ''",
        "UPDATE {0}.secrets_secret s SET ciphertext = o.ciphertext, nonce = o.nonce FROM {0}.secrets_secret o"
        " WHERE o.id <> s.id",
        "UPDATE {0}.secrets_datakey SET wrapped = set_byte(wrapped, 20, get_byte(wrapped, 20) # 1)",
        "UPDATE {0}.secrets_datakey SET wrapped = ''",
    ],
)
def test_what_was_tampered_with_is_not_read(
    read: Callable[..., Any], acme: Tenant, conn: Conn, tampering: str
) -> None:  # fmt: skip
    make_secret(acme, "A", VALUE)
    make_secret(acme, "B", "other")
    execute(conn, acme, tampering)
    found = read("A", "B")
    assert found.values == {} and set(found.unreadable) == {"A", "B"}
    assert all(isinstance(error, SecretUnreadable) for error in found.unreadable.values())


def test_names_can_not_be_swapped(read: Callable[..., Any], acme: Tenant, conn: Conn) -> None:
    make_secret(acme, "A", VALUE)
    execute(conn, acme, "UPDATE {}.secrets_secret SET name = 'B'")
    assert set(read("B").unreadable) == {"B"}


def test_a_row_from_another_tenant_is_not_read(
    read: Callable[..., Any], acme: Tenant, globex: Tenant, conn: Conn
) -> None:  # fmt: skip
    """With its data key and all: both are bound to the tenant."""
    make_secret(globex, "A", VALUE)
    for table in ("secrets_datakey", "secrets_secret"):
        execute(conn, acme, f"INSERT INTO {{}}.{table} SELECT * FROM {globex.schema_name}.{table}")
    assert set(read("A").unreadable) == {"A"}


def test_an_old_version_put_back_is_not_read(read: Callable[..., Any], acme: Tenant, conn: Conn) -> None:
    secret = make_secret(acme, "A", "old")
    ((nonce, ciphertext),) = execute(conn, acme, "SELECT nonce, ciphertext FROM {}.secrets_secret")
    change(acme, secret, "new")
    execute(conn, acme, "UPDATE {}.secrets_secret SET nonce = %s, ciphertext = %s", nonce, ciphertext)
    assert set(read("A").unreadable) == {"A"}


def test_without_its_key_nothing_is_read(read: Callable[..., Any], acme: Tenant, settings: Any) -> None:
    make_secret(acme, "A", VALUE)
    settings.SECRETS_KEYS = kek("another")
    error = read("A").unreadable["A"]
    assert isinstance(error, KeyUnknown) and "'tests'" in str(error)


def test_at_rest_there_is_no_value(acme: Tenant, conn: Conn) -> None:
    make_secret(acme, "A", VALUE)
    ((row,),) = execute(conn, acme, "SELECT s::text || k::text FROM {0}.secrets_secret s, {0}.secrets_datakey k")
    assert VALUE not in row and VALUE.encode().hex() not in row


def test_use_is_noted_to_the_minute_and_never_waited_for(
    acme: Tenant, conn: Conn, second: Conn, registry: Registry
) -> None:  # fmt: skip
    make_secret(acme, "A", VALUE)
    vault, tenancy = Vault(), tenancy_of(registry, acme)

    def used_at(later: timedelta) -> Any:
        vault.values(conn, tenancy, ["A"], now=NOW + later)
        ((at,),) = execute(conn, acme, "SELECT last_used_at FROM {}.secrets_secret")
        return at

    assert used_at(timedelta(0)) == NOW
    assert used_at(USED_STEP / 2) == NOW
    assert used_at(USED_STEP * 2) == NOW + USED_STEP * 2
    with second.transaction():
        execute(second, acme, "SELECT * FROM {}.secrets_secret FOR UPDATE")
        assert used_at(USED_STEP * 9) == NOW + USED_STEP * 2


def test_signing_secrets_are_two_while_they_are_changed(acme: Tenant, conn: Conn, registry: Registry) -> None:
    vault = Vault()

    def signing(later: timedelta = timedelta(0)) -> tuple[str, ...]:
        return vault.signing(conn, tenancy_of(registry, acme), now=NOW + later)

    def rotate(**more: Any) -> str:
        return signing_rotate(tenant=acme, actor=actor(acme), now=NOW, **more).text

    assert signing() == ()
    first = rotate()
    assert signing() == (first,)
    second = rotate(overlap=timedelta(hours=1))
    assert signing() == (second, first)
    assert signing(timedelta(hours=1)) == (second,)
    third = rotate(overlap=timedelta(hours=1))
    assert signing() == (third, second), "never more than two"
    fourth = rotate(overlap=timedelta(0))
    assert signing() == (fourth,)
    assert not vault.values(conn, tenancy_of(registry, acme), [f"@sign.{'0' * 32}"], now=NOW).values


def test_a_shelf_is_bounded_and_forgets() -> None:
    time = [0.0]
    shelf: Shelf[int, str] = Shelf(3, 10.0, lambda: time[0])
    for number in range(5):
        time[0] = float(number)
        shelf.put(number, str(number))
    assert [shelf.get(number) for number in range(5)] == [None, None, "2", "3", "4"]
    time[0] = 13.0
    assert [shelf.get(number) for number in (2, 3, 4)] == [None, None, "4"]
    shelf.prune()
    assert len(shelf) == 1
