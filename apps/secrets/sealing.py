"""The cryptography: AES-256-GCM, and what each ciphertext is bound to. Values in, values out; no database.

Everything that fails says only that it failed: wrong key, tampered text and swapped row look the same from outside.
"""

import os
from dataclasses import dataclass
from uuid import UUID

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kernel.errors import ShardbeatError

KEY_BYTES = 32
NONCE_BYTES = 12  # NIST SP 800-38D; random, so a data key must be replaced before 2^32 values
FORMAT = 1


class SecretUnreadable(ShardbeatError):
    """The ciphertext does not belong where it is, or was changed. Holds neither key nor value."""

    code = "secret_unreadable"
    status = 500


@dataclass(frozen=True, slots=True)
class Sealed:
    """A value that is encrypted."""

    nonce: bytes
    ciphertext: bytes


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value belongs; it can be decrypted nowhere else."""

    tenant_id: int
    purpose: str
    name: str
    version: int

    def bound(self) -> bytes:
        """The associated data. JSON, so that no two places have the same."""
        return orjson.dumps(["shardbeat secret", FORMAT, self.tenant_id, self.purpose, self.name, self.version])


def new_key() -> bytes:
    return os.urandom(KEY_BYTES)


def seal(key: bytes, value: str, place: Place) -> Sealed:
    """Encrypts a value for its place."""
    nonce = os.urandom(NONCE_BYTES)
    return Sealed(nonce, AESGCM(key).encrypt(nonce, value.encode(), place.bound()))


def unseal(key: bytes, sealed: Sealed, place: Place) -> str:
    """The value again. SecretUnreadable."""
    try:
        return AESGCM(key).decrypt(sealed.nonce, sealed.ciphertext, place.bound()).decode()
    except (InvalidTag, ValueError):
        raise SecretUnreadable(f"The secret {place.name} can't be decrypted.") from None


def wrap(kek: bytes, key: bytes, *, tenant_id: int, key_id: UUID) -> bytes:
    """A data key, encrypted by a key-encryption key: the nonce, then the ciphertext."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(kek).encrypt(nonce, key, _key_place(tenant_id, key_id))


def unwrap(kek: bytes, wrapped: bytes, *, tenant_id: int, key_id: UUID) -> bytes:
    """The data key again. SecretUnreadable."""
    try:
        return AESGCM(kek).decrypt(wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], _key_place(tenant_id, key_id))
    except (InvalidTag, ValueError):
        raise SecretUnreadable("The tenant's data key can't be decrypted.") from None


def _key_place(tenant_id: int, key_id: UUID) -> bytes:
    return orjson.dumps(["shardbeat data key", FORMAT, tenant_id, str(key_id)])
