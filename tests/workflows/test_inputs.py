"""What a step is given: templates over results, conditions, lists to run over."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.workflows.definitions.definition import Approval, Condition, ForEach, Operator, Step
from apps.workflows.definitions.inputs import (
    Allowed,
    BadInput,
    RunFacts,
    StepFacts,
    filled,
    is_whole,
    items_of,
    message_filled,
    reads_of,
    same,
    template_faults,
    unmet_condition,
    values_of,
)

RUN = RunFacts("r1", "nightly", "schedule", datetime(2026, 3, 9, 4, 5, 6, tzinfo=UTC))
STEPS = {
    "extract": StepFacts("succeeded", {"rows": 3, "regions": ["eu", "us"], "big": "x" * 3_000}, None, "e1", 2),
    "late": StepFacts("failed", None, {"class": "timeout"}, "e2", 1),
    "2nd-one": StepFacts("succeeded", [1, 2]),
}
VALUES = values_of(RUN, given={"region": "eu", "day": None}, steps=STEPS, item={"id": 7}, index=0)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text("a {}"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("template", "made"),
    [
        ({"a": ["{{ steps.extract.result.rows }}"]}, {"a": [3]}),
        ("{{ steps.extract.result.regions }}", ["eu", "us"]),
        ("{{ steps.extract.result.regions.1 }}-{{ input.region }}", "us-eu"),
        ('{{ steps["2nd-one"].result.0 }}', 1),
        ("{{ steps.late.state }}/{{ steps.late.error.class }}/{{ steps.extract.attempt }}", "failed/timeout/2"),
        ('{{ steps.late.result.rows | default("none") }}', "none"),
        ("{{ steps.late.result }}", None),
        ("{{ run.nominal_at | date }} {{ run.workflow }} {{ run.trigger }}", "2026-03-09 nightly schedule"),
        ("{{ item.id }}.{{ index }}", "7.0"),
        ({"plain": 1, "text": "{ }"}, {"plain": 1, "text": "{ }"}),
    ],
)
def test_what_comes_out(template: Any, made: Any) -> None:
    assert filled(template, VALUES, max_bytes=1_000) == made


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ steps.late.result.rows }}", "There is no 'steps.late.result.rows'"),
        ("{{ input.day | date }}", "There is no"),
        ("{{ steps.extract.result.big }}", "3,002 bytes; 1,000 are allowed"),
        ({f"{n}": "{{ steps.extract.result.big }}" for n in range(400)}, "Templates put in more than"),
    ],
)
def test_what_can_not_be_made(template: Any, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        filled(template, VALUES, max_bytes=1_000)


def test_what_is_hostile_is_only_text() -> None:
    nested: Any = "{{ input }}"
    for _ in range(60):
        nested = [nested]
    deep: Any = "x"
    for _ in range(10):
        deep = {"a": deep}
    with pytest.raises(BadInput, match="can't be stored"):
        filled(nested, values_of(RUN, given=deep, steps={}), max_bytes=100_000)
    given_ = {"a": "{{ run.id }}", "n": 10**30}
    assert filled("{{ input }}", values_of(RUN, given=given_, steps={}), max_bytes=1_000) == given_


@pytest.mark.parametrize(
    ("value", "operator", "other", "holds"),
    [
        ("{{ steps.extract.result.rows }}", "equals", 3.0, True),
        ("{{ steps.extract.result.rows }}", "not_equals", 3, False),
        ("{{ steps.extract.result.rows }}", "greater_than", 2, True),
        ("{{ steps.extract.result.rows }}", "less_than", 3, False),
        ("{{ input.region }}", "in", ["us", "eu"], True),
        ("{{ input.region }}", "in", ["us"], False),
        ("{{ input.region }}", "less_than", "us", True),
        ("{{ steps.extract.result.regions }}", "equals", ["eu", "us"], True),
        ("{{ input.day }}", "equals", None, True),
        (True, "equals", 1, False),
    ],
)
def test_conditions(value: Any, operator: Operator, other: Any, holds: bool) -> None:
    always = Condition("x", "equals", "x")
    condition = Condition(value, operator, other)
    assert unmet_condition([always, condition], VALUES) == (None if holds else condition)


@pytest.mark.parametrize(("value", "other"), [("{{ input.region }}", 1), (True, 0), (None, "a"), ([1], [0])])
def test_what_has_no_order_is_said(value: Any, other: Any) -> None:
    with pytest.raises(BadInput, match="compares two numbers or two texts"):
        unmet_condition([Condition(value, "greater_than", other)], VALUES)


def test_lists_to_run_over() -> None:
    assert items_of(ForEach("{{ steps.extract.result.regions }}"), VALUES) == ["eu", "us"]
    assert items_of(ForEach([1, "{{ input.region }}"]), VALUES) == [1, "eu"]
    with pytest.raises(BadInput, match="needs a list; this is an object"):
        items_of(ForEach("{{ steps.extract.result }}"), VALUES)
    with pytest.raises(BadInput, match="got 2 items; 1 are allowed"):
        items_of(ForEach("{{ steps.extract.result.regions }}", max_items=1), VALUES)


def test_the_output_of_a_step_is_what_it_brought() -> None:
    http = {"status": 200, "headers": {}, "body": '{"rows": 3}', "base64": False, "truncated": False}
    container = {"exit_code": 0, "output": {"words": 4}, "output_is": "json", "truncated": False, "stdout": ""}
    results = {
        "http": http,
        "text": {**http, "body": "fine"},
        "binary": {**http, "body": "eyJ9", "base64": True},
        "container": container,
        "python": {"status": "ok", "body": "x"},
        "list": [http, None, 7],
        "none": None,
    }
    values = values_of(RUN, given=None, steps={name: StepFacts("succeeded", one) for name, one in results.items()})
    template = {name: f"{{{{ steps.{name}.output }}}}" for name in results}
    assert filled(template, values, max_bytes=1_000) == {
        "http": {"rows": 3},
        "text": "fine",
        "binary": "eyJ9",
        "container": {"words": 4},
        "python": {"status": "ok", "body": "x"},
        "list": [{"rows": 3}, None, 7],
        "none": None,
    }
    assert filled("{{ steps.http.output.rows }}", values, max_bytes=9) == 3
    assert filled("{{ steps.http.result.status }}", values, max_bytes=9) == 200


def test_a_message_is_a_text_of_bounded_length() -> None:
    values = values_of(RUN, given={"n": [1], "long": "x" * 5_000}, steps={})
    assert message_filled("Load {{ input.n }}?", values) == "Load [1]?"
    assert message_filled("{{ input.n }}", values) == "[1]"
    assert len(message_filled("{{ input.long }}", values)) == 2_000
    with pytest.raises(BadInput):
        message_filled("{{ input.none }}", values)


def test_which_results_are_read() -> None:
    step = Step(
        "s",
        "approval",
        input={"a": ["{{ steps.a.result }}", "{{ steps.b.state }} {{ input.x }}"]},
        when=(Condition("{{ steps.c.result.n }}", "equals", 1),),
        for_each=ForEach("{{ steps.d.result }}"),
        approval=Approval(message="Load {{ steps.e.result.n }} rows?"),
    )
    assert reads_of(step) == {"a", "b", "c", "d", "e"}
    assert reads_of(Step("s", "delay", input="{{ steps. }}")) == frozenset()
    assert is_whole("{{ steps.d.result }}") and not is_whole("x{{ steps.d.result }}") and not is_whole("{{ x")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{{ steps.a.result.x }} {{ input }} {{ run.id }} {{ item.x }} {{ index }}", None),
        ("{{ steps.b.result }}", "not_upstream"),
        ("{{ steps.a }}", "bad_template"),
        ("{{ steps.a.rows }}", "bad_template"),
        ("{{ steps.a.state.x }}", "bad_template"),
        ("{{ steps }}", "bad_template"),
        ("{{ run.error }}", "bad_template"),
        ("{{ run.id.x }}", "bad_template"),
        ("{{ payload.x }}", "bad_template"),
        ("{{ input.x | nothing }}", "bad_template"),
        ("{{ input.x ", "bad_template"),
    ],
)
def test_faults_of_templates(text: str, code: str | None) -> None:
    allowed = Allowed(frozenset({"a"}), item=True)
    found = [(pointer, fault) for pointer, fault, _ in template_faults({"k": [text]}, "/steps/0/input", allowed)]
    assert found == ([] if code is None else [("/steps/0/input/k/0", code)])


def test_some_names_are_there_in_places_only() -> None:
    plain, failure = Allowed(frozenset()), Allowed(frozenset(), failure=True)
    assert [one[1] for one in template_faults("{{ item }}{{ index }}", "", plain)] == ["bad_template"] * 2
    assert not list(template_faults("{{ run.error.message }}{{ run.failed_step }}", "", failure))


@given(json_values)
def test_json_without_templates_stays_as_it_is(value: Any) -> None:
    if "{{" not in repr(value):
        assert same(filled(value, VALUES, max_bytes=100_000), value)
    assert same(filled("{{ input }}", values_of(RUN, given=value, steps={}), max_bytes=100_000), value)
