"""Ciphertexts can be read with their key in their place, and nowhere else. Keys are read as operators write them."""

import base64
import os
from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.secrets import sealing
from apps.secrets.sealing import Place, Sealed, SecretUnreadable
from kernel import keyring
from kernel.keyring import KeyringInvalid, KeyUnknown
from tests.secrets.hands import kek

PLACE = Place(tenant_id=7, purpose="job", name="TOKEN", version=3)
VALUE = "S3CR3T-7f1"
KEY = os.urandom(32)


@given(st.text(st.characters(codec="utf-8"), max_size=500))
def test_a_value_comes_back(value: str) -> None:
    assert sealing.unseal(KEY, sealing.seal(KEY, value, PLACE), PLACE) == value


def test_equal_values_have_different_ciphertexts() -> None:
    first, second = sealing.seal(KEY, VALUE, PLACE), sealing.seal(KEY, VALUE, PLACE)
    assert first.nonce != second.nonce and first.ciphertext != second.ciphertext
    assert VALUE.encode() not in first.ciphertext


@pytest.mark.parametrize(
    "moved",
    [
        replace(PLACE, tenant_id=8), replace(PLACE, purpose="signing"), replace(PLACE, name="TOKEN2"),
        replace(PLACE, version=2),
    ],
)  # fmt: skip
def test_a_value_can_be_read_only_in_its_place(moved: Place) -> None:
    with pytest.raises(SecretUnreadable, match="can't be decrypted"):
        sealing.unseal(KEY, sealing.seal(KEY, VALUE, PLACE), moved)


@pytest.mark.parametrize(
    "broken",
    [
        lambda one: replace(one, ciphertext=bytes([one.ciphertext[0] ^ 1]) + one.ciphertext[1:]),
        lambda one: replace(one, ciphertext=one.ciphertext[:-1]),
        lambda one: replace(one, ciphertext=b""),
        lambda one: replace(one, nonce=os.urandom(12)),
        lambda one: replace(one, nonce=b""),
    ],
)
def test_a_changed_ciphertext_is_refused(broken: Callable[[Sealed], Sealed]) -> None:
    with pytest.raises(SecretUnreadable) as caught:
        sealing.unseal(KEY, broken(sealing.seal(KEY, VALUE, PLACE)), PLACE)
    assert VALUE not in str(caught.value) and caught.value.__cause__ is None


def test_a_data_key_belongs_to_its_tenant_and_id() -> None:
    kek_bytes, key, key_id = os.urandom(32), sealing.new_key(), uuid4()
    wrapped = sealing.wrap(kek_bytes, key, tenant_id=1, key_id=key_id)
    assert sealing.unwrap(kek_bytes, wrapped, tenant_id=1, key_id=key_id) == key
    for tenant_id, other_id, other_kek in ((2, key_id, kek_bytes), (1, uuid4(), kek_bytes), (1, key_id, KEY)):
        with pytest.raises(SecretUnreadable):
            sealing.unwrap(other_kek, wrapped, tenant_id=tenant_id, key_id=other_id)


def test_the_first_key_is_the_current_one() -> None:
    text = f"{kek('k2')}, {kek('k1')},"
    keys = keyring.parse(text)
    assert keys.current == "k2" and set(keys.keys) == {"k1", "k2"}
    assert all(len(key) == 32 for key in keys.keys.values())
    assert "b'" not in repr(keys)
    with pytest.raises(KeyUnknown, match="'k0'"):
        keys.key("k0")


def test_keys_may_be_written_in_either_base64() -> None:
    key = bytes([0xFB, 0xFF] * 16)
    plain, urlsafe = base64.b64encode(key).decode(), base64.urlsafe_b64encode(key).decode().rstrip("=")
    assert keyring.parse(f"a:{plain}").keys["a"] == keyring.parse(f"a:{urlsafe}").keys["a"] == key


@pytest.mark.parametrize(
    "text",
    [
        "", " , ", "no-colon", ":abc", "a b:abc", "k1:short", "k1:" + "A" * 42, "k1:!" + "A" * 42,
        f"k1:{'A' * 43}=,k1:{'B' * 43}=",
    ],
)  # fmt: skip
def test_malformed_keys_are_refused_without_repeating_them(text: str) -> None:
    with pytest.raises(KeyringInvalid) as caught:
        keyring.parse(text)
    assert "A" * 42 not in str(caught.value)
