"""What operators ask of workflows on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest

from tests.workflows.engine import Engine, make_workflow, step


def test_previews_graphs_runs_and_explanations(
    engine: Engine, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from django.core.management import call_command

    slug = engine.tenant.slug

    def say(command: str, *arguments: str) -> str:
        call_command(command, "--tenant", slug, *arguments)
        return capsys.readouterr().out.strip()

    each = step("b", "a", for_each={"items": [1], "max_in_flight": 2}, when=[{"value": "{{ input.day }}", "equals": 1}])
    workflow = str(make_workflow(engine.tenant, [step("a"), each, step("ask", approval={"role": "admin"})]))
    shown = say("workflow_preview", "--workflow", workflow)
    assert shown.splitlines()[0] == "3 steps, 2 deep, up to 2 steps at once"
    assert "1  b: job for each of up to 1,000 items, 2 at once, when a has succeeded, if its condition holds" in shown
    written = tmp_path / "workflow.json"
    written.write_text('{"name": "new", "steps": [{"name": "wait", "delay_s": 5}]}')
    assert json.loads(say("workflow_preview", "--file", str(written), "--format", "json"))["levels"] == [["wait"]]
    assert "  b" in say("workflow_graph", "--workflow", workflow).splitlines()

    assert say("workflow_run", "--workflow", workflow, "--dry-run") == "It could be run."
    run = say("workflow_run", "--workflow", workflow, "--input", '{"day": 1}')
    assert "is ready" in say("explain", "--workflow-run", run), "it has not begun"
    engine.look()
    assert engine.of_run(UUID(run))["input"] == {"day": 1}
    lines = say("workflow_graph", "--run", run).splitlines()
    assert lines[0].endswith(": running") and lines[1:] == ["a: running", "  b: waiting", "ask: running"]
    assert say("workflow_graph", "--run", run, "--svg").startswith("<svg ")
    nodes = json.loads(say("workflow_graph", "--run", run, "--format", "json"))["nodes"]
    assert [one["state"] for one in nodes] == ["running", "waiting", "running"]
    assert "[waits_for_steps]" in say("explain", "--workflow-run", run, "--step", "b")
    with pytest.raises(SystemExit, match="1"):
        say("explain", "--workflow-run", run, "--step", "ask")
    assert "[awaits_approval]" in capsys.readouterr().out

    written.write_text('{"name": "new", "steps": [{"name": "a", "delay_s": 5, "needs": ["b"]}]}')
    bad = [
        ("workflow_preview", "--file", str(written)), ("workflow_preview", "--file", "nowhere"),
        ("workflow_graph", "--run", workflow), ("workflow_graph", "--workflow", "x"),
        ("workflow_run", "--workflow", workflow, "--input", "{"), ("workflow_run", "--workflow", run),
        ("explain", "--workflow-run", run, "--step", "nobody"), ("explain", "--workflow-run", run, "--item", "1"),
    ]  # fmt: skip
    for command, *arguments in bad:
        with pytest.raises(SystemExit, match="2"):
            say(command, *arguments)
    assert "/steps/0/needs/0" in capsys.readouterr().err
