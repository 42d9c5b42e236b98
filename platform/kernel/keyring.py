"""The operator's key-encryption keys, from SECRETS_KEYS: `id:base64, id:base64`, the current one first.

Each key is 32 random bytes (`openssl rand -base64 32`). Keys after the first only decrypt; once `secrets_rotate` says
that nothing is left under one of them it can be removed.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from kernel.errors import ShardbeatError
from kernel.sealing import KEY_BYTES

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


class KeyringInvalid(ShardbeatError):
    """SECRETS_KEYS is missing or malformed."""

    code = "secrets_key_unknown"
    status = 503


class KeyUnknown(ShardbeatError):
    """A data key is wrapped by a key that this process was not given: its operator's fault, not the tenant's."""

    code = "secrets_key_unknown"
    status = 503


@dataclass(frozen=True, slots=True)
class Keyring:
    """Keys by id, and which of them wraps what is new."""

    current: str
    keys: Mapping[str, bytes] = field(repr=False)

    def key(self, kek_id: str) -> bytes:
        """KeyUnknown when SECRETS_KEYS lacks it."""
        if kek_id not in self.keys:
            raise KeyUnknown(f"SECRETS_KEYS lacks the key {kek_id!r}, which secrets are still encrypted under.")
        return self.keys[kek_id]


@lru_cache(maxsize=4)
def parse(text: str) -> Keyring:
    """Reads SECRETS_KEYS. KeyringInvalid; messages name ids, never keys."""
    keys: dict[str, bytes] = {}
    for number, entry in enumerate(one.strip() for one in text.split(",") if one.strip()):
        kek_id, colon, encoded = entry.partition(":")
        if not colon or not _ID.fullmatch(kek_id):
            raise KeyringInvalid(f"SECRETS_KEYS: entry {number + 1} does not look like id:base64.")
        if kek_id in keys:
            raise KeyringInvalid(f"SECRETS_KEYS has the id {kek_id!r} twice.")
        keys[kek_id] = _decoded(kek_id, encoded)
    if not keys:
        raise KeyringInvalid(
            "Set SECRETS_KEYS, the keys that encrypt tenants' secrets, such as k1:$(openssl rand -base64 32)."
        )
    return Keyring(next(iter(keys)), keys)


def _decoded(kek_id: str, encoded: str) -> bytes:
    try:
        key = base64.b64decode(encoded.translate(str.maketrans("-_", "+/")) + "=" * (-len(encoded) % 4), validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if len(key) != KEY_BYTES:
        raise KeyringInvalid(f"SECRETS_KEYS: the key {kek_id!r} is not {KEY_BYTES} bytes in base64.")
    return key
