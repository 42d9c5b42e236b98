"""An example of the body and of the answer of every operation, made from the schemas.

A serializer says in `EXAMPLE` what its members look like; what it leaves out is taken from `USUAL` by the member's
name, or follows from the schema (the first of the choices, the lowest number, null where an answer may have it). A body
shows the members that it must have and those of its `EXAMPLE`. A text of which nothing is known is an error in the
tests: `unknown` lists it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from rest_framework import serializers

ID = "0190a6f4-7c3e-7b21-9d55-3c1f0a6b8e42"
INSTANT = "2027-03-01T08:00:00Z"
UNKNOWN = "?"

# Members that mean the same wherever they are.
USUAL: Mapping[str, Any] = {
    "name": "nightly report",
    "description": "for the nightly report",
    "reason": "maintenance",
    "note": "fixed by the supplier",
    "key": "sb_...",
    "timezone": "Europe/Berlin",
    "labels": {"team": "billing"},
    "payload": {"format": "pdf"},
    "result": None,
    "run_key": "8c3f2a7b5d1e4f60a9b8c7d6e5f40312",
    "fired_by": "dispatcher-1",
    "worker": "worker-1",
    "token": "sbl_...",
    "error": None,
    "message": "the printer is out of paper",
    "detail": "There is already one of this name.",
    "code": "name_taken",
    "email": "ada@example.com",
    "url": "https://example.com/hooks/shardbeat",
    "created_by": "ada@example.com",
    "prefix": "sb_Vh3k",
    "pointer": "/name",
}


class Examples:
    """Makes examples of the schemas of one document."""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self._schemas = schemas
        self._declared = declared()
        self.unknown: list[str] = []

    def of(self, schema: Mapping[str, Any], *, body: bool, at: str = "") -> Any:
        """An example of a schema; `body`: one that is sent, so without what need not be sent."""
        if "$ref" in schema:
            name = schema["$ref"].rsplit("/", 1)[1]
            return self._named(name, body=body)
        if "default" in schema:
            return schema["default"]
        if "enum" in schema:
            return next((one for one in schema["enum"] if one not in (None, "")), None)
        parts = schema.get("oneOf") or schema.get("anyOf") or schema.get("allOf")
        if parts:
            return self.of(parts[0], body=body, at=at)
        return self._plain(schema, body=body, at=at)

    def _named(self, name: str, *, body: bool) -> Any:
        schema = self._schemas[name]
        if schema.get("type") != "object" or "properties" not in schema:
            return self.of(schema, body=body, at=name)
        own = self._declared.get(name, {})
        members = schema["properties"]
        shown = [one for one in members if one in own or not body or one in schema.get("required", ())]
        return {
            one: own[one] if one in own else self._member(one, members[one], body=body, at=f"{name}.{one}")
            for one in shown
        }

    def _member(self, name: str, schema: Mapping[str, Any], *, body: bool, at: str) -> Any:
        if name in USUAL and not schema.keys() & {"enum", "$ref", "format", "items"}:
            return USUAL[name]
        if not body and _may_be_null(schema):
            return None
        return self.of(schema, body=body, at=at)

    def _plain(self, schema: Mapping[str, Any], *, body: bool, at: str) -> Any:
        kind = schema.get("type")
        kind = kind[0] if isinstance(kind, list) else kind
        if kind == "array":
            return [self.of(schema.get("items", {}), body=body, at=at)]
        if kind == "object":
            members = schema.get("properties", {})
            if not members:
                self.unknown.append(at)
            return {name: self._member(name, one, body=body, at=f"{at}.{name}") for name, one in members.items()}
        if kind in ("integer", "number"):
            return schema.get("minimum", 1)
        if kind == "boolean":
            return False
        if kind == "string":
            return self._text(schema.get("format"), at)
        return None

    def _text(self, form: str | None, at: str) -> str:
        known = {"uuid": ID, "date-time": INSTANT, "date": INSTANT[:10], "uri": USUAL["url"], "email": USUAL["email"]}
        known["json-lines"] = '{"id": "' + ID + '", "action": "job.update"}\n'
        known["svg"] = '<svg xmlns="http://www.w3.org/2000/svg"></svg>'
        if form in known:
            return str(known[form])
        self.unknown.append(at)
        return UNKNOWN


def add_examples(found: dict[str, Any]) -> list[str]:
    """Writes an example into every body and every answer of a document; the members of which nothing is known."""
    examples = Examples(found["components"]["schemas"])
    for one in (one for path in found["paths"].values() for one in path.values()):
        contents = [(True, one.get("requestBody", {}).get("content", {}))]
        contents += [(False, answer.get("content", {})) for answer in one["responses"].values()]
        for body, content in contents:
            for media in content.values():
                if "schema" in media and not media.keys() & {"example", "examples"}:
                    media["example"] = examples.of(media["schema"], body=body)
    return sorted(set(examples.unknown))


def declared() -> dict[str, Mapping[str, Any]]:
    """What serializers say, by the name that their component has."""
    return {one.__name__: one.EXAMPLE for one in serializers_all() if hasattr(one, "EXAMPLE")}


def serializers_all(base: type[Any] = serializers.Serializer) -> Iterator[type[Any]]:
    """All serializers that were imported."""
    for one in base.__subclasses__():
        yield one
        yield from serializers_all(one)


def _may_be_null(schema: Mapping[str, Any]) -> bool:
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    parts = [*schema.get("oneOf", ()), *schema.get("anyOf", ())]
    return "null" in kinds or None in schema.get("enum", ()) or any(_may_be_null(one) for one in parts)
