"""How an HTTP target may prove who calls: the member `auth`, one object or a list of them. Pure.

What must not be known is named, never written: `{"type": "bearer", "token": {"secret": "API_TOKEN"}}`. At most one of
them may set `Authorization`, one may sign, and one may hold a client certificate.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kernel.errors import FieldError
from kernel.jsonrules import pointer_to
from kernel.secretrules import is_reference, reference_faults, with_stand_ins

MAX_SIGNING_SECRETS = 2
MAX_TEXT_CHARS = 8_192
SCHEMES = ("hmac-sha256", "ed25519")
AUTH_STYLES = ("header", "body")


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of authentication: which members it has, and which of them only a secret may fill."""

    effect: str  # two of the same effect contradict each other
    texts: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


KINDS: Mapping[str, Kind] = {
    "bearer": Kind("authorization", secrets=("token",)),
    "basic": Kind("authorization", texts=("username",), secrets=("password",)),
    "oauth2_client_credentials": Kind(
        "authorization",
        texts=("token_url", "client_id"),
        secrets=("client_secret",),
        optional=("scope", "audience", "auth_style"),
    ),
    "signature": Kind("signature"),
    "mtls": Kind("certificate", texts=("certificate",), secrets=("key",)),
}


def auths_of(auth: Any) -> list[Mapping[str, Any]]:
    """The single authentications of a member `auth` that has no faults."""
    return [] if auth is None else list(auth) if isinstance(auth, list | tuple) else [auth]


def auth_faults(auth: Any, *, headers: Any = None, url: Any = None) -> list[FieldError]:
    """All faults of a member `auth` as a tenant writes it; pointers begin at the target."""
    if auth is None:
        return []
    several = isinstance(auth, list)
    faults: list[FieldError] = []
    seen: set[str] = set()
    for at, one in enumerate(auth if several else [auth]):
        pointer = f"/auth/{at}" if several else "/auth"
        kind = KINDS.get(str(one.get("type"))) if isinstance(one, Mapping) else None
        if kind is None:
            detail = f"must be an object with a type: {', '.join(KINDS)}."
            faults.append(FieldError(f"{pointer}/type" if isinstance(one, Mapping) else pointer, "choice", detail))
            continue
        if kind.effect in seen:
            faults.append(FieldError(pointer, "contradiction", "Only one may do this: the call has one of each."))
        seen.add(kind.effect)
        faults += _faults_of(one, kind, pointer)
    if several and not auth:
        faults.append(FieldError("/auth", "empty", "must name at least one way, or be left out."))
    named = headers.keys() if isinstance(headers, Mapping) else ()
    if "authorization" in seen and any(str(name).lower() == "authorization" for name in named):
        faults.append(FieldError("/auth", "contradiction", "Both auth and a header set Authorization; keep one."))
    if "certificate" in seen and isinstance(url, str) and url.lower().startswith("http:"):
        faults.append(FieldError("/auth", "contradiction", "A client certificate needs a URL with https."))
    return faults


def _faults_of(one: Mapping[str, Any], kind: Kind, pointer: str) -> Iterator[FieldError]:
    known = {"type", *kind.texts, *kind.secrets, *kind.optional}
    if kind.effect == "signature":
        known |= {"scheme", "secrets"}
        yield from _signature_faults(one, pointer)
    for name in kind.texts:
        yield from _text_faults(one.get(name), f"{pointer}/{name}")
    for name in kind.secrets:
        yield from _secret_faults(one.get(name), f"{pointer}/{name}")
    for name in kind.optional:
        if one.get(name) is not None and name != "auth_style":
            yield from _text_faults(one[name], f"{pointer}/{name}")
    if one.get("auth_style", AUTH_STYLES[0]) not in AUTH_STYLES:
        yield FieldError(f"{pointer}/auth_style", "choice", f"must be one of {', '.join(AUTH_STYLES)}.")
    for name in one.keys() - known:
        detail = f"There is no such field. Known: {', '.join(sorted(known))}."
        yield FieldError(pointer_to(pointer, name), "unknown_field", detail)


def _signature_faults(one: Mapping[str, Any], pointer: str) -> Iterator[FieldError]:
    if one.get("scheme") not in SCHEMES:
        yield FieldError(f"{pointer}/scheme", "choice", f"must be one of {', '.join(SCHEMES)}.")
    secrets = one.get("secrets")
    if not isinstance(secrets, list) or not 1 <= len(secrets) <= MAX_SIGNING_SECRETS:
        detail = f"must be a list of 1 or {MAX_SIGNING_SECRETS} secrets, the newest first."
        yield FieldError(f"{pointer}/secrets", "type", detail)
        return
    for at, secret in enumerate(secrets):
        yield from _secret_faults(secret, f"{pointer}/secrets/{at}")


def _text_faults(value: Any, pointer: str) -> Iterator[FieldError]:
    if value is None or value == "":
        yield FieldError(pointer, "required", "This field is required.")
        return
    yield from reference_faults(value, pointer)
    shown = with_stand_ins(value)
    if isinstance(shown, str) and len(shown) > MAX_TEXT_CHARS:
        yield FieldError(pointer, "too_long", f"has {len(shown):,} characters; {MAX_TEXT_CHARS:,} are allowed.")


def _secret_faults(value: Any, pointer: str) -> Iterator[FieldError]:
    if value is None:
        yield FieldError(pointer, "required", 'This field is required: {"secret": "NAME"}.')
    elif isinstance(value, Mapping):
        yield from reference_faults(value, pointer)
    elif not is_reference(value):
        detail = 'must not be written here: create a secret, and name it: {"secret": "NAME"}.'
        yield FieldError(pointer, "secret_required", detail)
