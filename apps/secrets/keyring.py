"""The operator's key-encryption keys as this process was given them."""

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from kernel.keyring import Keyring, KeyringInvalid, KeyUnknown, parse

__all__ = ["KeyUnknown", "Keyring", "keyring"]


def keyring() -> Keyring:
    """The keys of this process. ImproperlyConfigured when there is none or one is malformed."""
    try:
        return parse(settings.SECRETS_KEYS)
    except KeyringInvalid as error:
        raise ImproperlyConfigured(error.detail) from None
