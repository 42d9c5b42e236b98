"""What a provider says of itself, remembered for a while, and the ID tokens that it signs."""

import hmac
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from apps.signin.fetch import ProviderUnusable, check_url, fetch_json
from kernel.errors import ShardbeatError
from kernel.shelf import Shelf

WELL_KNOWN = "/.well-known/openid-configuration"
REMEMBERED_S = 600.0
KEYS_AGAIN_S = 30.0  # an unknown key is looked for at most so often
MOST = 500
LEEWAY_S = 60
MAX_AGE_S = 600  # since the token was issued
MAX_TOKEN_CHARS = 16_384
# Signatures that only the provider can make: never a shared secret, never none.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA")

_about: Shelf[tuple[str, tuple[str, ...]], dict[str, Any]] = Shelf(MOST, REMEMBERED_S)
_keys: Shelf[tuple[str, tuple[str, ...]], dict[str, Any]] = Shelf(MOST, REMEMBERED_S)
_asked: Shelf[tuple[str, tuple[str, ...]], bool] = Shelf(MOST, KEYS_AGAIN_S)


class TokenRefused(ShardbeatError):
    """The ID token is not one that this provider made for us, now, for this login."""

    code = "id_token_refused"
    status = 403


@dataclass(frozen=True, slots=True)
class About:
    """The addresses of a provider."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    basic: bool  # whether the client proves itself in a header, else in the form
    names_itself: bool  # whether answers carry `iss` (RFC 9207)


def forget() -> None:
    """Forgets all providers, so that a change of one counts at once."""
    for shelf in (_about, _keys, _asked):
        shelf.clear()


def discover(issuer: str, *, network: tuple[str, ...]) -> About:
    """What the provider says at its well-known address. ProviderUnusable, also when it calls itself otherwise."""
    key = (issuer, network)
    found = _about.get(key)
    if found is None:
        check_url(issuer, network=network)
        found = fetch_json(issuer.rstrip("/") + WELL_KNOWN, network=network)
        _about.put(key, found)
    if found.get("issuer") != issuer:  # exactly: else one provider could speak for another
        raise ProviderUnusable("The provider's document names another issuer.")
    ways = found.get("token_endpoint_auth_methods_supported")
    return About(
        issuer=issuer,
        authorization_endpoint=check_url(found.get("authorization_endpoint"), network=network),
        token_endpoint=check_url(found.get("token_endpoint"), network=network),
        jwks_uri=check_url(found.get("jwks_uri"), network=network),
        basic=not isinstance(ways, list) or "client_secret_basic" in ways or "client_secret_post" not in ways,
        names_itself=found.get("authorization_response_iss_parameter_supported") is True,
    )


def read_id_token(
    text: Any, *, about: About, client_id: str, nonce: str, access_token: Any, now: datetime, network: tuple[str, ...]
) -> dict[str, Any]:  # fmt: skip
    """The claims of a token that this provider signed for this login. TokenRefused, ProviderUnusable."""
    if not isinstance(text, str) or len(text) > MAX_TOKEN_CHARS:
        raise TokenRefused("The provider sent no ID token.")
    token = _verified(text, about, network)
    claims = CodeIDToken(
        token.claims, token.header,
        {"iss": {"essential": True, "value": about.issuer}, "aud": {"essential": True, "value": client_id}},
        {"client_id": client_id, "nonce": nonce, "access_token": access_token if isinstance(access_token, str) else ""},
    )  # fmt: skip
    seconds = int(now.timestamp())
    try:
        claims.validate(now=seconds, leeway=LEEWAY_S)
    except (JoseError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise TokenRefused(f"The ID token is not good: {type(error).__name__}.") from error
    subject, issued_at, told = claims.get("sub"), claims.get("iat"), claims.get("nonce")
    if (
        not isinstance(subject, str)
        or not 0 < len(subject) <= 255
        or not subject.isascii()
        or not subject.isprintable()
    ):
        raise TokenRefused("The ID token has no subject.")
    if not isinstance(told, str) or not hmac.compare_digest(told.encode(errors="replace"), nonce.encode()):
        raise TokenRefused("The ID token is for another login.")
    if isinstance(issued_at, bool) or not isinstance(issued_at, int | float) or seconds - issued_at > MAX_AGE_S:
        raise TokenRefused("The ID token is old.")
    return dict(claims)


def _verified(text: str, about: About, network: tuple[str, ...]) -> jwt.Token:
    """Tries the keys that are known, and those of now when none fits: providers change them."""
    key = (about.jwks_uri, network)
    known = _keys.get(key)
    try:
        if known is not None:
            return _decoded(text, known)
    except TokenRefused:
        if _asked.get(key):
            raise
    _asked.put(key, True)
    fresh = fetch_json(about.jwks_uri, network=network)
    _keys.put(key, fresh)
    return _decoded(text, fresh)


def _decoded(text: str, keys: dict[str, Any]) -> jwt.Token:
    try:
        return jwt.decode(text, KeySet.import_key_set(_public(keys)), algorithms=list(ALGORITHMS))
    except (JoseError, ValueError, TypeError, KeyError, AttributeError, UnicodeError) as error:
        raise TokenRefused(f"The ID token is not signed by the provider: {type(error).__name__}.") from error


def _public(keys: dict[str, Any]) -> Any:
    """Keys that verify signatures: no shared secrets, none for encryption."""
    listed = keys.get("keys")
    found = [
        one
        for one in (listed if isinstance(listed, list) else [])
        if isinstance(one, dict) and one.get("kty") in ("RSA", "EC", "OKP") and one.get("use", "sig") == "sig"
    ]
    return {"keys": found}
