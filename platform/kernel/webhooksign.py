"""Signatures after Standard Webhooks (github.com/standard-webhooks, version 1). Pure.

What is signed is `id.timestamp.body`. `whsec_` secrets are HMAC-SHA256 keys and give `v1,...`; `whsk_` secrets are
Ed25519 keys, whose receivers hold only the public half (`whpk_`), and give `v1a,...`. While secrets are changed a call
carries one signature of each, separated by blanks.
"""

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Iterable

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

HMAC_PREFIX, ED25519_PREFIX, ED25519_PUBLIC_PREFIX = "whsec_", "whsk_", "whpk_"
HMAC_KEY_BYTES = range(24, 65)  # as the standard says
NEW_HMAC_KEY_BYTES = 32
SEED_BYTES, SEED_AND_PUBLIC_BYTES = 32, 64


class BadSigningSecret(ValueError):
    """The text is no secret of the kind that is expected. Never repeats it."""


def signatures(secrets: Iterable[str], *, message_id: str, timestamp_s: int, body: bytes) -> str:
    """The value of `webhook-signature`: one signature for each secret. BadSigningSecret."""
    signed = f"{message_id}.{timestamp_s}.".encode() + body
    return " ".join(_signature(secret, signed) for secret in secrets)


def hmac_key(secret: str) -> bytes:
    """The key in a `whsec_` secret. BadSigningSecret."""
    key = _decoded(secret, HMAC_PREFIX)
    if len(key) not in HMAC_KEY_BYTES:
        raise BadSigningSecret(f"A signing secret is {HMAC_PREFIX} and 24 to 64 bytes in base64.")
    return key


def ed25519_key(secret: str) -> Ed25519PrivateKey:
    """The key in a `whsk_` secret: its 32-byte seed, alone or followed by the public half. BadSigningSecret."""
    key = _decoded(secret, ED25519_PREFIX)
    if len(key) not in (SEED_BYTES, SEED_AND_PUBLIC_BYTES):
        raise BadSigningSecret(f"An Ed25519 signing secret is {ED25519_PREFIX} and 32 or 64 bytes in base64.")
    return Ed25519PrivateKey.from_private_bytes(key[:SEED_BYTES])


def public_half(secret: str) -> str:
    """What a receiver needs to check the signatures of a `whsk_` secret. BadSigningSecret."""
    return ED25519_PUBLIC_PREFIX + base64.b64encode(ed25519_key(secret).public_key().public_bytes_raw()).decode()


def new_hmac_secret() -> str:
    return HMAC_PREFIX + base64.b64encode(os.urandom(NEW_HMAC_KEY_BYTES)).decode()


def new_ed25519_secret() -> str:
    return ED25519_PREFIX + base64.b64encode(os.urandom(SEED_BYTES)).decode()


def _signature(secret: str, signed: bytes) -> str:
    if secret.startswith(ED25519_PREFIX):
        return "v1a," + base64.b64encode(ed25519_key(secret).sign(signed)).decode()
    return "v1," + base64.b64encode(hmac.digest(hmac_key(secret), signed, hashlib.sha256)).decode()


def _decoded(secret: str, prefix: str) -> bytes:
    if not secret.startswith(prefix):
        raise BadSigningSecret(f"This signing secret begins with {prefix}.")
    try:
        return base64.b64decode(secret.removeprefix(prefix), validate=True)
    except (ValueError, binascii.Error):
        raise BadSigningSecret(f"A signing secret is {prefix} and a key in base64.") from None
