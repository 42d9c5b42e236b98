"""Reading the environment: every setting that an operator may change has its name and default here or in settings."""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

from kernel.listening import Rules, read_rules


def load_file(path: Path) -> None:
    """Adds the NAME=value lines of a file to the environment; what is set already stays. A missing file is fine.

    A database or broker that the environment names is another installation: then nothing is taken from the file.
    """
    if not path.is_file() or {"DATABASE_URL", "BROKER_URL"} & set(os.environ):
        return
    for line in path.read_text().splitlines():
        name, separator, value = line.partition("=")
        if separator and not name.startswith("#"):
            os.environ.setdefault(name.strip(), value.strip())


def text(name: str, default: str | None = None) -> str:
    """The variable's value; ImproperlyConfigured when it is missing and has no default."""
    value = os.environ.get(name, default)
    if value is None:
        raise ImproperlyConfigured(f"Set {name} in the environment.")
    return value


def patterns(name: str) -> Rules:
    """Which names are wanted and, with "!" before, which are not (`kernel.listening`); empty: all."""
    try:
        return read_rules(listed(name))
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}: {error}") from None


def word(name: str, default: str, *, most: int) -> str:
    """Lower-case letters, digits and dashes, at most `most` of them: fit for names and paths. Empty: the default."""
    value = os.environ.get(name) or default
    if not value:
        return ""
    if not re.fullmatch(rf"[a-z0-9]([a-z0-9-]{{0,{most - 2}}}[a-z0-9])?", value):
        raise ImproperlyConfigured(f"{name}={value!r} must have 1 to {most} lower-case letters, digits and dashes.")
    return value


def choice(name: str, default: str, choices: tuple[str, ...]) -> str:
    """One of the choices, or the default."""
    value = os.environ.get(name, default)
    if value not in (*choices, default):
        raise ImproperlyConfigured(f"{name}={value!r} is none of {', '.join(choices)}.")
    return value


def flag(name: str, default: bool = False) -> bool:
    """1, true, yes, on (any case) are true; 0, false, no, off and empty are false."""
    value = os.environ.get(name)
    if value is None:
        return default
    if value.strip().lower() in {"1", "true", "yes", "on"}:
        return True
    if value.strip().lower() in {"0", "false", "no", "off", ""}:
        return False
    raise ImproperlyConfigured(f"{name}={value!r} is neither true nor false.")


def whole(name: str, default: int, *, least: int = 0) -> int:
    """A whole number of at least `least`."""
    raw = os.environ.get(name)
    if raw is None:
        return default
    try:
        value = int(raw)
    except ValueError:
        raise ImproperlyConfigured(f"{name}={raw!r} is not a whole number.") from None
    if value < least:
        raise ImproperlyConfigured(f"{name}={value} is below {least}.")
    return value


def listed(name: str, default: str = "") -> list[str]:
    """A comma separated list, blanks dropped."""
    return [part.strip() for part in os.environ.get(name, default).split(",") if part.strip()]


def json_object(name: str) -> dict[str, Any]:
    """A JSON object; empty when it is not set."""
    try:
        found = json.loads(os.environ.get(name) or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):  # its value is not repeated: it may hold a password
        raise ImproperlyConfigured(f"{name} is no JSON object.")
    return found


def fingerprint(url: str) -> str:
    """Eight characters that tell databases apart: from where the database is and its name, not from who asks."""
    parts = urlsplit(url)
    where = f"{parts.hostname or ''}:{parts.port or ''}{parts.path}?{parts.query if not parts.hostname else ''}"
    return hashlib.sha256(where.encode()).hexdigest()[:8]


def database(url: str) -> dict[str, Any]:
    """Django's settings of a `postgresql://user:password@host:port/name?option=value` URL."""
    parts = urlsplit(url)
    if parts.scheme not in {"postgres", "postgresql"} or not parts.path.strip("/"):
        raise ImproperlyConfigured("DATABASE_URL must look like postgresql://user:password@host:port/name")
    return {
        "ENGINE": "django_tenants.postgresql_backend",
        "NAME": unquote(parts.path.strip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
        "OPTIONS": dict(parse_qsl(parts.query)),
    }


def mail(url: str) -> dict[str, Any]:
    """Django's settings of an `smtp://user:password@host:port` URL (`smtps`: TLS from the start, `smtp+tls`: STARTTLS).

    Without one no mail leaves: messages stay in this process.
    """
    if not url:
        return {"EMAIL_BACKEND": "django.core.mail.backends.locmem.EmailBackend"}
    parts = urlsplit(url)
    if parts.scheme not in {"smtp", "smtps", "smtp+tls"} or not parts.hostname:
        raise ImproperlyConfigured("EMAIL_URL must look like smtps://user:password@host:465")
    return {
        "EMAIL_BACKEND": "django.core.mail.backends.smtp.EmailBackend",
        "EMAIL_HOST": parts.hostname,
        "EMAIL_PORT": parts.port or {"smtps": 465, "smtp+tls": 587}.get(parts.scheme, 25),
        "EMAIL_HOST_USER": unquote(parts.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
        "EMAIL_USE_SSL": parts.scheme == "smtps",
        "EMAIL_USE_TLS": parts.scheme == "smtp+tls",
        "EMAIL_TIMEOUT": 10,
    }
