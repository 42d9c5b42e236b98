"""How values look in the admin: escaped, bounded, without secrets."""

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from django.contrib import admin
from django.utils.html import format_html
from django.utils.safestring import SafeString

from kernel.masking import MASK, is_credential_name, masked_url
from kernel.printing import LINES, printable
from kernel.secretrules import is_internal, is_reference

SHOWN_CHARS = 4_000
# Of the names of credentials (kernel.masking) those that are ordinary words in JSON: an author, a key, a code.
ORDINARY = re.compile(r"author(?!i[sz])|^(?:key|code)$", re.IGNORECASE)
# In a text, which may be cut: a member of JSON that is no object and no list, and a pair as forms send them.
MEMBER = re.compile(r'("([^"\\]{1,100})"\s*:\s*)("(?:[^"\\]|\\.)+(?:"|\\?\Z)|[^\s",{}\[\]]+)')
PAIR = re.compile(r"(?<![^?&;\s])([\w.-]{1,100})=([^&;\s]+)")


def json_field(name: str, label: str = "") -> Callable[[Any, Any], str]:
    """A read-only form row with a JSON column, for use in a ModelAdmin's class body."""

    @admin.display(description=label or name.replace("_", " "))
    def shown(self: Any, obj: Any) -> str:
        value = getattr(obj, name)
        return "-" if value is None else excerpt(json.dumps(masked(value), indent=1, ensure_ascii=False))

    return shown


def excerpt(text: str) -> SafeString:
    """The beginning of a text, whatever it holds."""
    return format_html('<pre class="excerpt">{}</pre>', beginning(text))


def beginning(text: str) -> str:
    """Its first SHOWN_CHARS, and how much more there is; still to be escaped."""
    rest = len(text) - SHOWN_CHARS
    more = f"\n... {rest:,} more characters" if rest > 0 else ""
    return f"{printable(text[:SHOWN_CHARS], keep=LINES)}{more}"


def masked(value: Any) -> Any:
    """The value with what looks like a secret, by its name or in a URL, left out. A secret's name is none."""
    if is_reference(value):
        return MASK if is_internal(value["secret"]) else value
    if isinstance(value, str):
        return masked_text(value)
    if isinstance(value, dict):
        return {key: MASK if _is_secret(str(key), one) else masked(one) for key, one in value.items()}
    if isinstance(value, list):
        return [masked(one) for one in value]
    return value


def masked_text(text: str) -> str:
    """A text that may hold JSON, a form or a URL, whole or cut, without the values of what has a secret's name."""
    if "://" in text:
        text = masked_url(text)
    if ":" in text:
        text = MEMBER.sub(lambda one: f'{one[1]}"{MASK}"' if _is_secret(one[2], one[3]) else one[0], text)
    return PAIR.sub(lambda one: f"{one[1]}={MASK}" if _is_secret(one[1], one[2]) else one[0], text)


def _is_secret(name: str, value: Any) -> bool:
    if not value or is_reference(value) or (name == "auth" and isinstance(value, dict | list)):
        return False  # what a target's `auth` holds has names of its own
    return is_credential_name(ORDINARY.sub("", name))


def tenant_link(slug: str | None, path: str, text: object) -> str:
    """A link into a tenant's own admin; plain text where the tenant is gone."""
    if not slug:
        return str(text)
    return format_html('<a href="/t/{}/admin/{}">{}</a>', quote(slug), path, text)
