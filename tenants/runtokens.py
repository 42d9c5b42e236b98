"""The keys of run tokens: SECRET_KEY signs, its fallbacks are still read."""

from uuid import UUID

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from kernel.runtokens import Kind, RunToken, read_token, write_token


def runtoken_make(kind: Kind, *, tenant_id: int, execution_id: UUID, attempt: int, fence: int) -> str | None:
    """A token for this attempt; None in a process without SECRET_KEY."""
    try:
        key = settings.SECRET_KEY
    except ImproperlyConfigured:
        return None
    return write_token(kind, RunToken(tenant_id, execution_id, attempt, fence), key=key)


def runtoken_read(kind: Kind, text: str) -> RunToken | None:
    """What the token names; None when it is none of ours."""
    return read_token(kind, text, keys=[str(key) for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)])
