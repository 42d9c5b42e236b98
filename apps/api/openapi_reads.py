"""What every read can do, in the OpenAPI document: `fields` and `If-None-Match` (apps.api.selecting)."""

from collections.abc import Mapping
from typing import Any

from apps.api.lists import SELECTING
from apps.api.openapi_examples import ID, INSTANT
from apps.api.selecting import SELECTED

JSON = "application/json"


def document_reads(found: dict[str, Any]) -> None:
    """Adds to each GET that answers an object its selected form, 304 and the parameters."""
    schemas = found["components"]["schemas"]
    schemas["Selected"] = {"type": "object", "description": "Only the members that `fields` names, and `id`."}
    for path in found["paths"].values():
        if "get" in path:
            _document_read(path["get"], schemas)


def _document_read(one: dict[str, Any], schemas: Mapping[str, Any]) -> None:
    """What every read can do: select members of the answer, and answer only what has changed."""
    content = one["responses"]["200"].get("content", {}).get(JSON, {})
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    members = schemas.get(name, {}).get("properties")
    if not members:
        return
    is_list = set(members) >= {"items", "next_cursor"}
    if is_list:
        members = schemas[members["items"]["items"]["$ref"].rpartition("/")[2]]["properties"]
    selected: dict[str, Any] = {"$ref": "#/components/schemas/Selected"}
    if is_list:
        rest = {key: value for key, value in schemas[name]["properties"].items() if key != "items"}
        selected = {
            "type": "object",
            "properties": {"items": {"type": "array", "items": selected}, **rest},
            "required": ["items", "next_cursor"],
        }
    example: Any = {name: value for name, value in (("id", ID), ("created_at", INSTANT)) if name in members}
    example = {"items": [example], "next_cursor": None} if is_list else example
    one["responses"]["200"]["content"][SELECTED] = {"schema": selected, "examples": {"some": {"value": example}}}
    tag = {"description": "Of this answer, for If-None-Match; of a thing also for If-Match."}
    headers = {"ETag": {**tag, "schema": {"type": "string"}}}
    one["responses"]["200"].setdefault("headers", {}).update(headers)
    one["responses"]["304"] = {"description": "What If-None-Match names is still so.", "headers": headers}
    names = {"type": "string", "enum": sorted(members)}
    one["parameters"] = [
        *one.get("parameters", ()),
        {
            "name": SELECTING, "in": "query", "style": "form", "explode": False,
            "schema": {"type": "array", "items": names, "minItems": 1},
            "description": f"Only these members, with commas; `id` always comes. The answer is {SELECTED}.",
        },
        {
            "name": "If-None-Match", "in": "header", "schema": {"type": "string"},
            "description": "ETag of a former answer; 304 while it would be the same.",
        },
    ]  # fmt: skip
