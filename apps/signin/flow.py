"""One login with a provider: to it with state, nonce and a PKCE challenge; back with a code that becomes an ID token.

What has to be known when the browser comes back is in a signed cookie of that browser, so that nobody can finish a
login that somebody else began. It is bound to the tenant and to the provider as it was then.
"""

import base64
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from authlib.oauth2.rfc7636 import create_s256_code_challenge
from django.core import signing

from apps.signin.fetch import ProviderUnusable, fetch_json
from apps.signin.models import Provider
from apps.signin.provider import TokenRefused, discover, read_id_token
from apps.signin.setup import client_secret
from tenants.models import Tenant
from tenants.registry import reach_of

COOKIE = "shardbeat_sso"
LIFE_S = 600
SALT = "shardbeat.signin"
MAX_CODE_CHARS = 4_000


@dataclass(frozen=True, slots=True)
class Begun:
    """Where to send the browser, and what it keeps meanwhile."""

    location: str
    cookie: str


@dataclass(frozen=True, slots=True)
class Proved:
    """What the provider says of who came back, and where they wanted to go."""

    claims: Mapping[str, Any]
    back: str


def begin(provider: Provider, *, redirect_uri: str, back: str) -> Begun:
    """The first step. ProviderUnusable."""
    about = discover(provider.issuer, network=reach_of(provider.tenant.network))
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    query = {
        "response_type": "code", "response_mode": "query", "client_id": provider.client_id,
        "redirect_uri": redirect_uri, "scope": "openid email profile", "state": state, "nonce": nonce,
        "code_challenge": create_s256_code_challenge(verifier), "code_challenge_method": "S256",
    }  # fmt: skip
    joint = "&" if "?" in about.authorization_endpoint else "?"
    kept = {"s": state, "n": nonce, "v": verifier, "b": back, "t": provider.tenant_id, "p": _mark(provider)}
    return Begun(f"{about.authorization_endpoint}{joint}{urlencode(query)}", signing.dumps(kept, salt=SALT))


def finish(
    provider: Provider, *, cookie: str, answer: Mapping[str, str], redirect_uri: str, now: datetime
) -> Proved:  # fmt: skip
    """The second step: `answer` is the query that the browser brought. TokenRefused, ProviderUnusable."""
    try:
        kept: Any = signing.loads(cookie, salt=SALT, max_age=LIFE_S)
    except signing.BadSignature:
        raise TokenRefused("This login was not begun in this browser, or is too old.") from None
    state = answer.get("state", "")
    if kept["t"] != provider.tenant_id or kept["p"] != _mark(provider):
        raise TokenRefused("This login was begun elsewhere, or the provider has changed since.")
    if not hmac.compare_digest(state.encode(errors="replace"), kept["s"].encode()):
        raise TokenRefused("This is the answer to another login.")
    network = reach_of(provider.tenant.network)
    about = discover(provider.issuer, network=network)
    told = answer.get("iss")
    if (told is not None or about.names_itself) and told != about.issuer:
        raise TokenRefused("The answer is another provider's.")
    code = answer.get("code", "")
    if answer.get("error") or not 0 < len(code) <= MAX_CODE_CHARS:
        raise TokenRefused("The provider did not let you in.")
    form = {
        "grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri, "client_id": provider.client_id,
        "code_verifier": kept["v"],
    }  # fmt: skip
    tokens = _exchanged(provider, form, basic=about.basic, endpoint=about.token_endpoint, network=network)
    claims = read_id_token(
        tokens.get("id_token"), about=about, client_id=provider.client_id, nonce=kept["n"],
        access_token=tokens.get("access_token"), now=now, network=network,
    )  # fmt: skip
    return Proved(claims, kept["b"])


def provider_of(tenant: Tenant) -> Provider | None:
    """The tenant's provider, when it is switched on."""
    found = Provider.objects.filter(tenant=tenant, enabled=True).first()
    if found is not None:
        found.tenant = tenant
    return found


def _exchanged(
    provider: Provider, form: dict[str, str], *, basic: bool, endpoint: str, network: tuple[str, ...]
) -> dict[str, Any]:  # fmt: skip
    headers: dict[str, str] = {}
    secret = client_secret(provider.tenant)
    if secret and basic:
        pair = f"{quote(provider.client_id, safe='')}:{quote(secret, safe='')}"  # RFC 6749 section 2.3.1
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    elif secret:
        form = {**form, "client_secret": secret}
    try:
        tokens: dict[str, Any] = fetch_json(endpoint, network=network, form=form, headers=headers)
    except ProviderUnusable as error:
        if error.extra.get("answered") in (400, 401, 403):
            raise TokenRefused("The provider did not take the code.") from error
        raise
    return tokens


def _mark(provider: Provider) -> str:
    return f"{provider.pk}.{provider.revision}"
