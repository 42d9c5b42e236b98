"""The request that a run of an HTTP job sends, without its secrets, and the same as a command line. Pure.

All of it is a tenant's text. The command is made to be pasted into a terminal: everything is quoted, the shell expands
nothing, curl reads no file, and no character that speaks to a terminal is left in it. A secret stands as <NAME>.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from apps.console.shown import masked, masked_text
from kernel.httprules import DEFAULT_METHOD
from kernel.httptemplates import filled_target, told
from kernel.masking import MASK, masked_target
from kernel.printing import printable
from kernel.secretrules import fill, is_reference, secret_names
from kernel.templates import BadTemplate

BODY_CHARS = 4_000  # of the command's own; a longer body goes into a file
WITHOUT_PAYLOAD = ("GET", "HEAD", "OPTIONS")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
_HTTP = re.compile(r"https?://", re.IGNORECASE)


class Sent(NamedTuple):
    """What goes out. `command` is empty where there is no URL to call."""

    method: str
    url: str
    headers: list[tuple[str, str]]
    body: str | None
    notes: list[str]
    command: str


def request_of(target: Mapping[str, Any], payload: Any, values: Mapping[str, Any], *, run_key: str) -> Sent:
    """The request to a stored target with a payload; `values` are those of its templates (kernel.templates)."""
    notes: list[str] = []
    shown, payload = masked_target(target), masked(payload)
    try:
        made = filled_target(shown, {**values, "payload": payload}, _stand_ins(shown))
    except (BadTemplate, ArithmeticError, TypeError, ValueError) as error:
        made = fill(shown, _stand_ins(shown))
        why = told(error) if isinstance(error, BadTemplate) else "They could not be filled in."
        notes.append(f"Its templates stand as they are written. {why}")
    made = masked_target(made)  # what a template has put in, too
    method = str(made.get("method") or DEFAULT_METHOD).upper()
    headers, body = _headers(made), _body(made, payload, method)
    if (
        body is not None
        and not isinstance(made.get("body"), str)
        and "content-type" not in {n.lower() for n, _ in headers}
    ):
        headers.append(("Content-Type", "application/json"))
    headers += _authorization(shown.get("auth"), notes)
    headers.append(("Idempotency-Key", run_key))
    if secret_names(target) or MASK in json.dumps([made.get("url"), headers, body], default=str):
        notes.append(f"Put the secrets in where <NAME> or {MASK} stands.")
    notes.append("Signatures and the headers of one attempt are not in it.")
    url = str(made.get("url", ""))
    return Sent(method, url, headers, body, notes, _command(method, url, headers, body) if _HTTP.match(url) else "")


def _stand_ins(target: Mapping[str, Any]) -> dict[str, str]:
    return {name: f"<{name}>" for name in secret_names(target)}


def _headers(made: Mapping[str, Any]) -> list[tuple[str, str]]:
    given = made.get("headers")
    if not isinstance(given, Mapping):
        return []
    return [(str(name), str(value)) for name, value in given.items() if _TOKEN.fullmatch(str(name))]


def _body(made: Mapping[str, Any], payload: Any, method: str) -> str | None:
    body = made.get("body")
    if isinstance(body, str):
        return masked_text(body)
    if body is None and (payload is None or method in WITHOUT_PAYLOAD):
        return None
    return json.dumps(masked(payload if body is None else body), ensure_ascii=False)


def _authorization(auth: Any, notes: list[str]) -> list[tuple[str, str]]:
    """What a target's `auth` adds, with a place to put the secret in; other kinds are told."""
    found = []
    for one in auth if isinstance(auth, list) else [auth]:
        if not isinstance(one, Mapping):
            continue
        if one.get("type") == "bearer":
            token: Any = one.get("token")
            name = token["secret"] if is_reference(token) else "token"
            found.append(("Authorization", f"Bearer <{name}>"))
        else:
            notes.append(f"It proves who it is by {one.get('type')}, which is not in it.")
    return found


def _command(method: str, url: str, headers: list[tuple[str, str]], body: str | None) -> str:
    """One curl. `--data-raw` reads no file, `--globoff` leaves the URL as it is."""
    parts = [f"curl --globoff --proto =http,https --request {_quoted(method)} --url {_quoted(url)}"]
    parts += [f"--header {_quoted(f'{name}: {value}')}" for name, value in headers]
    if body is not None:
        short = len(body) <= BODY_CHARS
        parts.append(f"--data-raw {_quoted(body)}" if short else "--data-binary @body  # save the body in this file")
    return " \\\n  ".join(parts)


def _quoted(text: str) -> str:
    """Safe between two quotes, and in a terminal that it is pasted into: one line, whatever it holds."""
    return shlex.quote(printable(text))
