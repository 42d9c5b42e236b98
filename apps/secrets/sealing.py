"""The cryptography: AES-256-GCM, and what each ciphertext is bound to. Values in, values out; no database.

Everything that fails says only that it failed: wrong key, tampered text and swapped row look the same from outside.
"""

from dataclasses import dataclass
from uuid import UUID

import orjson

from kernel.errors import ShardbeatError
from kernel.sealing import KEY_BYTES, NONCE_BYTES, Unreadable, decrypt, encrypt, new_key

__all__ = ["KEY_BYTES", "Place", "Sealed", "SecretUnreadable", "new_key", "seal", "unseal", "unwrap", "wrap"]
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


def seal(key: bytes, value: str, place: Place) -> Sealed:
    """Encrypts a value for its place."""
    both = encrypt(key, value.encode(), place.bound())
    return Sealed(both[:NONCE_BYTES], both[NONCE_BYTES:])


def unseal(key: bytes, sealed: Sealed, place: Place) -> str:
    """The value again. SecretUnreadable."""
    try:
        return decrypt(key, sealed.nonce + sealed.ciphertext, place.bound()).decode()
    except (Unreadable, UnicodeDecodeError):
        raise SecretUnreadable(f"The secret {place.name} can't be decrypted.") from None


def wrap(kek: bytes, key: bytes, *, tenant_id: int, key_id: UUID) -> bytes:
    """A data key, encrypted by a key-encryption key: the nonce, then the ciphertext."""
    return encrypt(kek, key, _key_place(tenant_id, key_id))


def unwrap(kek: bytes, wrapped: bytes, *, tenant_id: int, key_id: UUID) -> bytes:
    """The data key again. SecretUnreadable."""
    try:
        return decrypt(kek, wrapped, _key_place(tenant_id, key_id))
    except Unreadable:
        raise SecretUnreadable("The tenant's data key can't be decrypted.") from None


def _key_place(tenant_id: int, key_id: UUID) -> bytes:
    return orjson.dumps(["shardbeat data key", FORMAT, tenant_id, str(key_id)])
