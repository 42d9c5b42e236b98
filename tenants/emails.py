"""E-mail addresses as names of accounts: one spelling each, and nothing that only looks like another one."""

from django.core.exceptions import ValidationError
from django.core.validators import EmailValidator

from kernel.errors import FieldError, InvalidInput

MAX_EMAIL_CHARS = 254  # RFC 5321 section 4.5.3.1.3
_valid = EmailValidator()


def plain_email(text: str) -> str:
    """The address in lower case. InvalidInput; only ASCII, since letters of other scripts look like other letters."""
    email = text.strip().lower()
    try:
        if len(email) > MAX_EMAIL_CHARS or not email.isascii():
            raise ValidationError("no")
        _valid(email)
    except ValidationError:
        detail = "must be an e-mail address in ASCII (domains of other scripts as xn--...)."
        raise InvalidInput([FieldError("/email", "invalid_email", detail)], detail) from None
    return email


def typed_email(text: str) -> str:
    """What somebody typed to sign in, as accounts are looked up; empty when it can be nobody's."""
    email = text.strip().lower()
    return email if len(email) <= MAX_EMAIL_CHARS and email.isascii() and email.isprintable() else ""
