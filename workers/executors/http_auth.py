"""How a call proves who makes it, from a target's `auth` with its secrets filled in."""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import aiohttp
from multidict import istr

from kernel.httpauthrules import auths_of
from kernel.httprules import TargetRefused, header_faults
from kernel.masking import Echoes, is_credential_name
from kernel.webhooksign import ED25519_PREFIX, HMAC_PREFIX
from workers.executors.address import NOBODY, Calling, calling
from workers.executors.base import Work
from workers.executors.http_redirects import Request
from workers.executors.http_request import COMPLETION, sign
from workers.executors.http_sessions import ClientCertificate
from workers.executors.http_tokens import Tokens

AUTHORIZATION = istr("Authorization")
PREFIX_OF_SCHEME = {"hmac-sha256": HMAC_PREFIX, "ed25519": ED25519_PREFIX}
PIECE_MIN_CHARS = 6  # of a part of a header that is masked by itself
OWN_HEADERS = ("webhook-",)  # look like credentials, and prove nothing to who reads them later


@dataclass(frozen=True, slots=True, repr=False)
class Proof:
    """What a target's `auth` asks for."""

    authorization: str | None = None
    oauth2: Mapping[str, Any] | None = None
    signing: tuple[str, ...] = ()
    certificate: ClientCertificate | None = None


def proof_of(auth: Any) -> Proof:
    """Read a member `auth` whose secrets are filled in. TargetRefused."""
    proof = Proof()
    for one in auths_of(auth):
        try:
            proof = _with(proof, one)
        except (KeyError, TypeError, AttributeError):
            raise TargetRefused("/auth", "invalid", "The target's auth is incomplete.") from None
    return proof


def signed(request: Request, proof: Proof, work: Work, now: datetime) -> Request:
    """The request with what can be said at once: a fixed Authorization, the target's own signatures. TargetRefused."""
    if proof.authorization is None and not proof.signing:
        return request
    headers = request.headers.copy()
    if proof.authorization is not None:
        headers[AUTHORIZATION] = proof.authorization
    if proof.signing:  # instead of the tenant's own
        sign(headers, proof.signing, work=work, body=request.body, now=now)
    return replace(request, headers=headers)


async def authorized(
    request: Request, proof: Proof, work: Work, *, tokens: Tokens, session: aiohttp.ClientSession, refused: bool = False
) -> tuple[Request, bool]:
    """The request with a token, and whether another may help when it is refused. TokenFailed, TargetRefused.

    `refused` says that the target did not take the token that the request has.
    """
    if proof.oauth2 is None:
        return request, False
    former = request.headers.get(AUTHORIZATION, "").removeprefix("Bearer ") if refused else ""
    current = calling.get(NOBODY)
    before = calling.set(Calling(work.tenant_id))  # the target itself has not been called yet
    current.proving = True  # and it stays so when time runs out in here
    try:
        text, is_new = await tokens.get(
            proof.oauth2, tenant_id=work.tenant_id, network=work.network, session=session, instead_of=former
        )
    finally:
        calling.reset(before)
    current.proving = False
    headers = request.headers.copy()
    headers[AUTHORIZATION] = f"Bearer {text}"
    return replace(request, headers=headers), not is_new


def echoes_of(request: Request, work: Work) -> Echoes:
    """What of this request must not be kept when it comes back in an answer."""
    return Echoes({*work.secrets.values(), *_credentials(request)})


def _with(proof: Proof, one: Mapping[str, Any]) -> Proof:
    match one["type"]:
        case "bearer":
            return replace(proof, authorization=_header_text(f"Bearer {one['token']}"))
        case "basic":
            if ":" in one["username"]:
                raise TargetRefused("/auth/username", "invalid", "A user name for basic has no colon.")
            pair = base64.b64encode(f"{one['username']}:{one['password']}".encode()).decode()
            return replace(proof, authorization=f"Basic {pair}")
        case "oauth2_client_credentials":
            return replace(proof, oauth2=one)
        case "signature":
            prefix = PREFIX_OF_SCHEME[one["scheme"]]
            if not all(secret.startswith(prefix) for secret in one["secrets"]):
                raise TargetRefused("/auth/secrets", "bad_secret", f"A secret of this scheme begins with {prefix}.")
            return replace(proof, signing=tuple(one["secrets"]))
        case "mtls":
            return replace(proof, certificate=ClientCertificate(str(one["certificate"]), str(one["key"])))
    raise TargetRefused("/auth/type", "choice", "There is no such way to authenticate.")


def _header_text(text: str) -> str:
    if header_faults({"Authorization": text}):
        raise TargetRefused("/auth/token", "invalid_value", "The token can't be sent in a header.")
    return text


def _credentials(request: Request) -> Iterator[str]:
    """Credentials in headers and query, whole and in the parts that an answer may repeat alone."""
    for name, value in request.headers.items():
        if name == COMPLETION:  # who has it can end the run
            yield value
        elif is_credential_name(str(name)) and not name.lower().startswith(OWN_HEADERS):
            yield value
            pieces = value.replace(";", " ").replace(",", " ").split()
            pieces += [piece.partition("=")[2] for piece in pieces if "=" in piece.rstrip("=")]
            yield from (piece for piece in pieces if len(piece) >= PIECE_MIN_CHARS)
            if value.startswith("Basic "):
                yield from _decoded_pair(value)
    for name, value in request.wire_url.query.items() if "?" in request.url.path else ():
        if is_credential_name(name):
            yield value


def _decoded_pair(value: str) -> Iterator[str]:
    try:
        pair = base64.b64decode(value.removeprefix("Basic "), validate=True).decode()
    except ValueError:
        return
    yield from (pair, pair.partition(":")[2])
