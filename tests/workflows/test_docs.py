"""The workflows of docs/workflows.md are read as they stand there, and the page names all that there is."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from apps.schedules.job_input import JobRules
from apps.workflows.definitions.definition import OPERATORS
from apps.workflows.definitions.inputs import FAILURE_MEMBERS, RUN_MEMBERS, STEP_MEMBERS
from apps.workflows.definitions.reading import Known, read_workflow
from apps.workflows.definitions.reading_steps import _COMMON, _OF_TYPE, ON
from kernel.addressrules import USUAL

PAGE = (Path(__file__).parents[2] / "docs" / "workflows.md").read_text()
EXAMPLES = [one for one in map(json.loads, re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)) if "steps" in one]


@pytest.mark.parametrize("body", EXAMPLES, ids=[str(one["name"]) for one in EXAMPLES])
def test_an_example_is_a_workflow(body: Any) -> None:
    form = read_workflow(body, rules=JobRules(USUAL, 262_144, ()), known=Known())
    assert [step.name for step in form.workflow.steps] == [step["name"] for step in body["steps"]]
    assert all(ref.inline for _, ref in form.workflow.jobs())


def test_all_that_there_is_is_named() -> None:
    names = {*_COMMON, *(name for names in _OF_TYPE.values() for name in names), *ON, *OPERATORS, *STEP_MEMBERS}
    for name in (names | {*RUN_MEMBERS, *FAILURE_MEMBERS}) - {"name"}:
        assert f"`{name}`" in PAGE or f".{name}`" in PAGE or f'"{name}"' in PAGE, name
