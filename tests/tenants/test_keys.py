"""API keys: found by their prefix, proven by their digest; a wrong one tells nobody more than another."""

from __future__ import annotations

import secrets
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import IntegrityError

from tenants import keys
from tenants.keys import ALPHABET, LAST_USED_STEP, apikey_create, apikey_find, apikey_revoke, apikey_touch
from tenants.models import ApiKey, Tenant
from tests.fixtures_flow import NOW, at_once

SECOND = timedelta(seconds=1)


def test_a_key_is_shown_once_and_kept_as_a_hash(acme: Tenant) -> None:
    key, text = apikey_create(tenant=acme, name="deploy", role="editor")
    assert text.startswith(f"sb_{key.prefix}_") and len(text) == 3 + 8 + 1 + 40
    stored = ApiKey.objects.filter(pk=key.pk).values().get()
    assert text not in str(stored) and text.rsplit("_", 1)[1] not in str(stored)
    found = apikey_find(text, now=NOW)
    assert found is not None and (found.pk, found.tenant, found.role) == (key.pk, acme, "editor")


def test_keys_differ(acme: Tenant) -> None:
    made = [apikey_create(tenant=acme, name="many")[1] for _ in range(30)]
    assert len(set(made)) == len({text[3:11] for text in made}) == 30


def test_expiry_is_exclusive(acme: Tenant) -> None:
    _, text = apikey_create(tenant=acme, name="short", expires_at=NOW)
    assert apikey_find(text, now=NOW - SECOND) is not None
    assert apikey_find(text, now=NOW) is None
    assert apikey_find(text, now=NOW + SECOND) is None


def test_revoking_ends_a_key_once(acme: Tenant) -> None:
    key, text = apikey_create(tenant=acme, name="lost")
    assert apikey_revoke(key, now=NOW)
    assert not apikey_revoke(key, now=NOW + SECOND)
    assert apikey_find(text, now=NOW) is None
    assert ApiKey.objects.filter(pk=key.pk).get().revoked_at == NOW


def test_revoking_at_a_barrier_is_told_to_one(acme: Tenant) -> None:
    key, _ = apikey_create(tenant=acme, name="lost")
    assert sorted(at_once(*[partial(apikey_revoke, key, now=NOW)] * 4)) == [False, False, False, True]


@pytest.mark.parametrize(
    "text",
    [
        "", "sb", "sb_", "sb__", "sb___", "sb_x", "sb_x_", "xx_{prefix}_{secret}", "SB_{prefix}_{secret}", "{prefix}",
        "sb_{prefix}", "sb_{prefix}_", "sb_{prefix}_{secret}x", "sb_{prefix}_{secret} ", " sb_{prefix}_{secret}",
        "sb_{prefix}_x{secret}", "sb_{prefix}__{secret}", "sb_{swapped}_{secret}", "sb_\x00_x", "sb_{prefix}_\x00",
        "sb_%_%", "sb_' OR 1=1 --_x", "sb_{prefix}_\ud800", "sb_\ud800_x", "sb_" + "x" * 10_000 + "_y", "ß_ß_ß",
    ],
)  # fmt: skip
def test_nothing_else_is_a_key(acme: Tenant, text: str) -> None:
    key, real = apikey_create(tenant=acme, name="real")
    secret = real.rsplit("_", 1)[1]
    given = text.format(prefix=key.prefix, secret=secret, swapped=key.prefix.swapcase())
    assert given != real
    assert apikey_find(given, now=NOW) is None


def test_a_right_prefix_with_a_wrong_secret_is_no_key(acme: Tenant, globex: Tenant) -> None:
    (mine, text), (_, theirs) = (apikey_create(tenant=tenant, name="k") for tenant in (acme, globex))
    assert apikey_find(f"sb_{mine.prefix}_{theirs.rsplit('_', 1)[1]}", now=NOW) is None
    assert apikey_find(text, now=NOW) is not None


@pytest.mark.parametrize("known", [True, False])
def test_the_comparison_is_made_in_constant_time_whether_or_not_there_is_such_a_key(
    acme: Tenant, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    key, _ = apikey_create(tenant=acme, name="k")
    compared: list[tuple[int, int]] = []
    real = keys.hmac.compare_digest

    def compare(one: Any, other: Any) -> bool:
        compared.append((len(one), len(other)))
        return bool(real(one, other))

    monkeypatch.setattr(keys, "hmac", SimpleNamespace(compare_digest=compare))
    assert apikey_find(f"sb_{key.prefix if known else 'nosuchpr'}_{'x' * 40}", now=NOW) is None
    assert compared == [(64, 64)]


def test_a_prefix_that_is_taken_is_not_used_twice(acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight characters by chance: should they ever repeat, others are drawn."""
    first, _ = apikey_create(tenant=acme, name="first")
    drawn = iter(first.prefix)

    def choice(alphabet: str) -> str:
        return next(drawn, None) or secrets.SystemRandom().choice(alphabet)

    monkeypatch.setattr(keys, "secrets", SimpleNamespace(choice=choice))
    second, text = apikey_create(tenant=acme, name="second")
    assert second.prefix != first.prefix
    found = apikey_find(text, now=NOW)
    assert found is not None and found.pk == second.pk


def test_two_keys_of_one_prefix_can_not_exist(acme: Tenant) -> None:
    key, _ = apikey_create(tenant=acme, name="first")
    with pytest.raises(IntegrityError):
        ApiKey.objects.create(tenant=acme, name="copy", prefix=key.prefix, digest="0" * 64, role="viewer")


def test_a_role_that_is_none_can_not_exist(acme: Tenant) -> None:
    with pytest.raises(IntegrityError):
        apikey_create(tenant=acme, name="k", role="emperor")


def test_the_last_use_is_noted_to_the_minute(acme: Tenant, statements: list[str]) -> None:
    _, text = apikey_create(tenant=acme, name="busy")

    def use(at: Any) -> Any:
        key = apikey_find(text, now=at)
        assert key is not None
        apikey_touch(key, now=at)
        return ApiKey.objects.filter(pk=key.pk).get().last_used_at

    assert use(NOW) == NOW
    statements.clear()
    for second in range(1, 59, 10):
        assert use(NOW + second * SECOND) == NOW
    assert not any(one.startswith("UPDATE") for one in statements), "reads stay reads"
    assert use(NOW + LAST_USED_STEP) == NOW + LAST_USED_STEP


def test_texts_are_made_of_letters_and_digits(acme: Tenant) -> None:
    _, text = apikey_create(tenant=acme, name="k")
    assert set(text) <= set(ALPHABET) | {"_"}
