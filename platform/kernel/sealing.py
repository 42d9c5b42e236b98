"""AES-256-GCM over bytes: what is encrypted is bound to where it belongs. Values in, values out.

Everything that fails says only that it failed: wrong key, tampered text and swapped row look the same from outside.
"""

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 12  # NIST SP 800-38D; random, so a key must be replaced before 2^32 values


class Unreadable(ValueError):
    """The ciphertext does not belong where it is, or was changed. Holds neither key nor value."""


def new_key() -> bytes:
    return os.urandom(KEY_BYTES)


def encrypt(key: bytes, value: bytes, bound: bytes) -> bytes:
    """The nonce, then the ciphertext; `bound` is where it belongs (the associated data)."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, value, bound)


def decrypt(key: bytes, sealed: bytes, bound: bytes) -> bytes:
    """The value again. Unreadable."""
    try:
        return AESGCM(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], bound)
    except (InvalidTag, ValueError):
        raise Unreadable("It can't be decrypted.") from None
