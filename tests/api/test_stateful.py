"""Sequences of calls along the links of the document: what one answer names, the next request uses.

Nothing may answer with a status, a shape or a code that is not documented, and what was deleted is gone.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from apps.api.openapi import openapi_document
from tests.api.world import World, in_body

JSON = "application/json"
BRIEF = (6, 15)  # sequences, steps of each
LONG = (60, 25)


def run(world: World, sequences: int, steps: int) -> Counter[str]:
    """Runs so many sequences; how often each operation succeeded."""
    import schemathesis
    from django.core.handlers.wsgi import WSGIHandler
    from hypothesis import HealthCheck, Phase, settings
    from hypothesis.errors import Flaky
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
        use_after_free,
    )

    checks = [
        not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
        use_after_free,
    ]  # fmt: skip
    examples = examples_of_makers()
    done: Counter[str] = Counter()
    machine: Any = schemathesis.openapi.from_wsgi("/api/v1/schema", app=WSGIHandler()).as_state_machine()

    class Machine(machine):  # made from the document
        def get_call_kwargs(self, case: Any) -> dict[str, Any]:
            return {"headers": {"Authorization": f"Bearer {world.api.key}", "If-Match": "*", "Host": "testserver"}}

        def before_call(self, case: Any) -> None:
            example = examples.get((case.method, case.path))
            if example is not None and len(self.seen) % 4:  # mostly what makes something, so that links lead somewhere
                case.body = in_body(world, example)
            self.seen.append(case)

        def setup(self) -> None:
            self.seen: list[Any] = []

        def validate_response(self, response: Any, case: Any, **kwargs: Any) -> None:
            case.validate_response(response, checks=checks)
            if response.status_code < 400:
                done[f"{case.method} {case.path}"] += 1

    bounded = settings(
        max_examples=2, stateful_step_count=steps, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    for number in range(sequences):  # each on its own: the database remembers, so none can be repeated as it was
        with suppress(Flaky):
            Machine._hypothesis_internal_use_seed = number
            Machine.run(settings=bounded)
    return done


def examples_of_makers() -> dict[tuple[str, str], Any]:
    """(method, path) of what makes a thing -> the document's example of the body."""
    found = {}
    for path, methods in openapi_document()["paths"].items():
        made = methods.get("post", {})
        if any(answer.get("links") for answer in made.get("responses", {}).values()):
            found["POST", path] = made["requestBody"]["content"][JSON]["example"]
    return found


def test_short_sequences(world: World) -> None:
    assert run(world, *BRIEF).total() > 0


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_long_sequences(world: World) -> None:
    done = run(world, *LONG)
    assert any("{" in path for path in done), "no link led anywhere"
