"""Links (OpenAPI 3): from the answer that makes a thing to all operations on it.

They follow from the paths: what `POST /jobs` answers has the id of `/jobs/{job_id}` and of all below it.
"""

from typing import Any

MADE = ("201", "202")


def add_links(found: dict[str, Any]) -> None:
    """Adds links to every answer with an id that a path of the same collection takes."""
    schemas = found["components"]["schemas"]
    for path, methods in found["paths"].items():
        for status in MADE:
            answer = methods.get("post", {}).get("responses", {}).get(status)
            if answer is None or not _has_id(answer, schemas):
                continue
            links = _links(found["paths"], path)
            if links:
                answer["links"] = links


def _links(paths: dict[str, Any], collection: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path, methods in paths.items():
        rest = path.removeprefix(f"{collection}/").split("/")
        if path == collection or not path.startswith(f"{collection}/{{") or "{" in "".join(rest[1:]):
            continue
        for one in methods.values():
            found[one["operationId"]] = {
                "operationId": one["operationId"],
                "parameters": {rest[0].strip("{}"): "$response.body#/id"},
            }
    return found


def _has_id(answer: dict[str, Any], schemas: dict[str, Any]) -> bool:
    schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
    name = schema.get("$ref", "").rsplit("/", 1)[-1]
    return "id" in schemas.get(name, {}).get("properties", {})
