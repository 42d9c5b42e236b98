"""Every operation of the document says enough: examples that fit their schemas, parameters and codes in words."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from apps.api.codes import ALWAYS, CODES, ELSEWHERE, OF_A_BODY, OF_A_CHANGE, OF_A_PATH, OF_IDEMPOTENCY, OF_IF_MATCH
from apps.api.openapi import openapi_document
from apps.api.openapi_examples import add_examples, serializers_all
from apps.api.openapi_problems import CODES_OF_ANSWER

COMPONENTS = openapi_document()["components"]


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    """(operationId, what the document says of it)."""
    for path in openapi_document()["paths"].values():
        for one in path.values():
            yield one["operationId"], one


def contents() -> Iterator[tuple[str, dict[str, Any]]]:
    """(where, media type with a schema) of all bodies and all answers."""
    for name, one in operations():
        for kind, media in one.get("requestBody", {}).get("content", {}).items():
            yield f"{name} body {kind}", media
        for status, answer in one["responses"].items():
            for media in answer.get("content", {}).values():
                yield f"{name} answer {status}", media
    for name, answer in COMPONENTS["responses"].items():
        for media in answer["content"].values():
            yield f"problem {name}", media


@pytest.mark.parametrize(
    ("where", "media"), list(contents()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_body_and_answer_has_an_example_that_fits(where: str, media: dict[str, Any]) -> None:
    from openapi_schema_validator import OAS31Validator, oas31_format_checker

    schema = {**media["schema"], "components": COMPONENTS}
    validator = OAS31Validator(schema, format_checker=oas31_format_checker)
    found = [media["example"]] if "example" in media else [one["value"] for one in media["examples"].values()]
    assert found
    for example in found:
        faults = [f"{'/'.join(map(str, fault.path))}: {fault.message}" for fault in validator.iter_errors(example)]
        assert faults == []


def test_nothing_in_the_examples_had_to_be_guessed() -> None:
    """A text or an object of which the schema says nothing needs a value in its serializer's EXAMPLE."""
    bare = copy.deepcopy(openapi_document())
    for one in (one for path in bare["paths"].values() for one in path.values()):
        for content in [one.get("requestBody", {}), *one["responses"].values()]:
            for media in content.get("content", {}).values():
                media.pop("example", None)
    assert add_examples(bare) == []


def test_examples_name_only_members_that_there_are() -> None:
    for one in serializers_all():
        if "EXAMPLE" in vars(one):
            assert set(one.EXAMPLE) <= set(one().get_fields()), one


def test_every_parameter_is_described() -> None:
    bare = [
        f"{name}: {parameter['name']}"
        for name, one in operations()
        for parameter in one.get("parameters", ())
        if not parameter.get("description")
    ]
    assert bare == []


def test_every_schema_says_what_it_is() -> None:
    bare = [
        name
        for name, schema in COMPONENTS["schemas"].items()
        if "properties" in schema and not schema.get("description")
    ]
    assert bare == []


def test_every_code_is_used_and_described() -> None:
    used = {code for answer in COMPONENTS["responses"].values() for code in answer[CODES_OF_ANSWER]}
    general = {*ALWAYS, *OF_A_BODY, *OF_A_CHANGE, *OF_A_PATH, *OF_IDEMPOTENCY, *OF_IF_MATCH}
    assert general <= set(CODES)
    assert set(CODES) - used == set(ELSEWHERE)
    for answer in COMPONENTS["responses"].values():
        for code in answer[CODES_OF_ANSWER]:
            assert f"`{code}`: " in answer["description"]


def test_an_unknown_code_is_found_at_once() -> None:
    from apps.api.openapi import operation

    with pytest.raises(ValueError, match=r"no_such_code must be in apps\.api\.codes"):
        operation("x", "X", tag="x", problems=("no_such_code",))


def test_what_makes_a_thing_links_to_what_can_be_done_with_it() -> None:
    made = openapi_document()["paths"]["/api/v1/jobs"]["post"]["responses"]["201"]
    assert {"jobs_read", "jobs_patch", "jobs_delete", "jobs_pause"} <= set(made["links"])
    assert made["links"]["jobs_read"]["parameters"] == {"job_id": "$response.body#/id"}
    assert "executions_cancel" in openapi_document()["paths"]["/api/v1/executions"]["post"]["responses"]["202"]["links"]
