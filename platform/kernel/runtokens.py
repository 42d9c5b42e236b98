"""Tokens for one attempt: who has it may say how the attempt ended, and nothing else. Pure.

A token names tenant, execution, attempt and fence, and is signed: nothing is stored. It ends with its fence, so that it
needs no expiry of its own. The kinds can't stand in for each other.
"""

import base64
import binascii
import hashlib
import hmac
import struct
from collections.abc import Sequence
from typing import Literal, NamedTuple
from uuid import UUID

Kind = Literal["lease", "completion"]
PREFIXES: dict[Kind, str] = {"lease": "sbl_", "completion": "sbc_"}
_BODY = struct.Struct(">I16sIQ")
_MAC_BYTES = 16
_LENGTH = (_BODY.size + _MAC_BYTES) * 4 // 3  # 48 bytes: no padding


class RunToken(NamedTuple):
    """One attempt of an execution."""

    tenant_id: int
    execution_id: UUID
    attempt: int
    fence: int


def write_token(kind: Kind, token: RunToken, *, key: str) -> str:
    """The token's text: URL-safe ASCII."""
    body = _BODY.pack(token.tenant_id, token.execution_id.bytes, token.attempt, token.fence)
    return PREFIXES[kind] + base64.urlsafe_b64encode(body + _mac(kind, body, key)).decode()


def read_token(kind: Kind, text: str, *, keys: Sequence[str]) -> RunToken | None:
    """What a text names; None when it is none of ours. `keys`: the present one first, then those before it."""
    prefix = PREFIXES[kind]
    if not text.startswith(prefix) or len(text) != len(prefix) + _LENGTH or not text.isascii():
        return None
    try:
        data = base64.urlsafe_b64decode(text[len(prefix) :])
    except (ValueError, binascii.Error):
        return None
    if len(data) != _BODY.size + _MAC_BYTES:
        return None
    body, mac = data[: _BODY.size], data[_BODY.size :]
    if not any(hmac.compare_digest(mac, _mac(kind, body, key)) for key in keys):
        return None
    tenant_id, execution, attempt, fence = _BODY.unpack(body)
    return RunToken(tenant_id, UUID(bytes=execution), attempt, fence)


def _mac(kind: Kind, body: bytes, key: str) -> bytes:
    secret = hashlib.sha256(f"shardbeat {kind} token\n{key}".encode()).digest()
    return hmac.digest(secret, body, "sha256")[:_MAC_BYTES]
