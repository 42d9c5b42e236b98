"""What steps that are to start are told of their run and of the steps before them, read in a few statements."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import orjson
import psycopg

from apps.workflows.definitions.inputs import RunFacts, StepFacts, values_of
from apps.workflows.runs import store
from apps.workflows.runs.values import RunNow

Conn = psycopg.Connection[Any]
Key = tuple[UUID, str]  # run and step


class Above(NamedTuple):
    """A step above one that is to start."""

    facts: StepFacts
    attempt: int | None


class Upstream(NamedTuple):
    """What is known of the steps above, and the inputs of the runs where they were asked for."""

    steps: Mapping[Key, Above]
    inputs: Mapping[UUID, Any]

    def values(
        self, run: RunNow, names: Sequence[str], *, failure: Mapping[str, Any] | None = None, **more: Any
    ) -> dict[str, Any]:
        """The values for templates of this run that name these steps. `failure` is its error, once it has failed."""
        facts = RunFacts(str(run.id), run.name, run.trigger, run.nominal_at)
        if failure is not None:
            facts = facts._replace(error=failure, failed_step=failure.get("step"))
        steps = {name: self.steps[run.id, name].facts for name in names if (run.id, name) in self.steps}
        return values_of(facts, given=self.inputs.get(run.id), steps=steps, **more)

    def used(self, run: RunNow, names: Sequence[str]) -> str | None:
        """{step: attempt} of those that have run, as JSON; None when none has."""
        found = {name: self.steps[run.id, name].attempt for name in names if (run.id, name) in self.steps}
        tried = {name: attempt for name, attempt in found.items() if attempt}
        return orjson.dumps(tried).decode() if tried else None


def read(conn: Conn, schema: str, *, whole: set[Key], brief: set[Key], inputs: set[UUID]) -> Upstream:
    """Steps with their results (`whole`) or without (`brief`), and the inputs of these runs."""
    wanted = sorted(whole | brief)
    found = {}
    if wanted:
        for row in store.above(conn, schema, [(run_id, step, (run_id, step) in whole) for run_id, step in wanted]):
            run_id, step, state, result, error, execution_id, attempt, items = row
            if items is not None and (run_id, step) in whole:
                result = store.results_of_items(conn, schema, run_id, step)
            facts = StepFacts(
                state, _read(result), _read(error), None if execution_id is None else str(execution_id), attempt
            )
            found[run_id, step] = Above(facts, attempt)
    given = {run_id: _read(text) for run_id, text in store.inputs_of(conn, schema, inputs)} if inputs else {}
    return Upstream(found, given)


def _read(text: str | None) -> Any:
    return None if text is None else orjson.loads(text)
