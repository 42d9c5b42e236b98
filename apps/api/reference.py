"""The generated parts of docs/reference, from the API's own description of itself.

A generated part stands between two lines, `<!-- generated: NAME -->` and `<!-- end -->`; what is around it is written
by people. `manage.py api_reference` writes the parts, and a test finds those that are not as they should be.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any

from apps.api.codes import CODES
from apps.api.openapi import openapi_document
from apps.api.openapi_problems import CODES_OF_ANSWER, general_codes
from apps.api.openapi_roles import ACTION, ALSO, ROLE
from tenants.permissions import LEAST_ROLE

PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->\n)", re.DOTALL)
PAGING = ("page_size", "cursor")
FORMATS = {"date-time": "time", "uuid": "id", "date": "date"}
TYPES = {"string": "text", "integer": "whole number", "boolean": "`true`, `false`"}
MARKS = {"If-Match": "`If-Match`", "Idempotency-Key": "`Idempotency-Key`", "validate_only": "`validate_only`"}


def problem_codes() -> str:
    """The table of all codes by status."""
    rows = ["| status | code | meaning | what to do |", "|---|---|---|---|"]
    found = [(status, at, name) for at, (name, code) in enumerate(CODES.items()) for status in code.statuses]
    for status, _, name in sorted(found):
        code = CODES[name]
        rows.append(f"| {status} | `{name}` | {code.meaning} | {code.remedy} |")
    return _text(rows)


def operations() -> str:
    """A table of operations for each tag, in the order of their paths."""
    rows: list[str] = []
    for tag, found in groupby(sorted(_operations(), key=lambda one: one[3]["tags"]), key=lambda one: one[3]["tags"][0]):
        rows += ["", f"## {tag[:1].upper()}{tag[1:]}", ""]
        rows += ["| operation | what it does | needs | success | takes | own codes |", "|---|---|---|---|---|---|"]
        for _, method, path, one in found:
            success = [status for status in one["responses"] if status < "300"]
            names = [parameter["name"] for parameter in one.get("parameters", ())]
            takes = [mark for name, mark in MARKS.items() if name in names]
            gone = " (deprecated)" if one.get("deprecated") else ""
            rows.append(
                f"| `{method} {path}` | {_cell(one['summary'])}{gone} | {_needs(one)} | {', '.join(success)} |"
                f" {', '.join(takes)} | {', '.join(f'`{code}`' for code in _own_codes(method, path, one))} |"
            )
    return _text(rows)


def filters() -> str:
    """The query parameters of each list."""
    rows: list[str] = []
    for _, method, path, one in _operations():
        found = [parameter for parameter in one.get("parameters", ()) if parameter["in"] == "query"]
        if method != "GET" or not found:
            continue
        own = [parameter for parameter in found if parameter["name"] not in PAGING]
        rows += ["", f"## `{path}`", "", f"{_cell(one['summary'])}."]
        if len(found) > len(own):
            rows[-1] += " Pages with `page_size` and `cursor`."
        if own:
            rows += ["", "| parameter | values | meaning |", "|---|---|---|"]
            rows += [f"| `{one['name']}` | {_values(one['schema'])} | {_cell(one['description'])} |" for one in own]
    return _text(rows)


def scopes() -> str:
    """The actions of each object with the least role that may."""
    rows = ["| object | actions |", "|---|---|"]
    for thing, found in groupby(sorted(LEAST_ROLE.items()), key=lambda one: one[0].partition(".")[0]):
        actions = [f"`{action}` {role}" for action, role in found]
        rows.append(f"| `{thing}.*` | {', '.join(actions)} |")
    return _text(rows)


# Name of a part -> its text.
PARTS: Mapping[str, Callable[[], str]] = {
    "problem_codes": problem_codes, "operations": operations, "filters": filters, "scopes": scopes
}  # fmt: skip
FILES = ("docs/reference/errors.md", "docs/reference/operations.md", "docs/reference/filters.md", "docs/people.md")


def refreshed(text: str) -> str:
    """The text of a page with its generated parts as they should be. KeyError for a part that nobody makes."""
    return PART.sub(lambda found: f"{found[1]}\n{PARTS[found[2]]()}\n{found[3]}", text)


def _operations() -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """(path in the document, method, path below the version, what is said of it)"""
    for path, methods in openapi_document()["paths"].items():
        for method, one in methods.items():
            yield path, method.upper(), "/" + path.split("/", 3)[3], one


def _needs(one: Mapping[str, Any]) -> str:
    if ROLE not in one:
        return ""
    also = [f" or {role}" for role in one[ALSO]]
    return f"{one[ROLE]}{''.join(also)} (`{one[ACTION]}`)"


def _own_codes(method: str, path: str, one: Mapping[str, Any]) -> list[str]:
    """Codes beside those that follow from the form of the operation."""
    responses = openapi_document()["components"]["responses"]
    named = [answer["$ref"].rsplit("/", 1)[1] for answer in one["responses"].values() if "$ref" in answer]
    found = [code for name in named for code in responses[name][CODES_OF_ANSWER]]
    return [code for code in dict.fromkeys(found) if code not in general_codes(method, path, one)]


def _values(schema: Mapping[str, Any]) -> str:
    items = schema.get("items", schema)
    if "$ref" in items:
        items = openapi_document()["components"]["schemas"][items["$ref"].rsplit("/", 1)[1]]
    if "enum" in items:
        return ", ".join(f"`{one}`" for one in items["enum"])
    return FORMATS.get(items.get("format", "")) or TYPES.get(items.get("type", ""), "")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _text(rows: list[str]) -> str:
    return "\n".join(rows).strip("\n").replace("|  |", "| |").replace("|  |", "| |") + "\n"
