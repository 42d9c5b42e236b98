"""A workflow, or one run of it, as a graph: JSON for programs, SVG for people. Pure.

The SVG stands alone: no script, no style, no link; colours are presentation attributes, and what they mean is written
as well. All text of tenants is escaped.
"""

from collections.abc import Mapping
from html import escape
from typing import Any, NamedTuple

from apps.workflows.definitions.definition import Step, Workflow
from apps.workflows.views.layout import Box, Line, layout, shown


class Shown(NamedTuple):
    """The state of a step in a picture of a run; `note` is a short text beside it, such as the reason."""

    state: str
    note: str = ""


class _Paint(NamedTuple):
    fill: str
    line: str
    text: str


# Each pair of fill and text has a contrast of at least 7 to 1.
_PAINTS: Mapping[str, _Paint] = {
    "": _Paint("#f4f5f7", "#5b6470", "#1f2430"),
    "waiting": _Paint("#ffffff", "#5b6470", "#1f2430"),
    "running": _Paint("#dbeafe", "#1d4ed8", "#172554"),
    "succeeded": _Paint("#dcfce7", "#15803d", "#052e16"),
    "failed": _Paint("#fee2e2", "#b91c1c", "#450a0a"),
    "skipped": _Paint("#ececef", "#6b7280", "#27272a"),
    "cancelled": _Paint("#fef3c7", "#b45309", "#451a03"),
}
_EDGE = "#5b6470"
_FONT = 'font-family="ui-monospace, Menlo, Consolas, monospace"'


def graph_json(workflow: Workflow, states: Mapping[str, Shown] | None = None) -> dict[str, Any]:
    """Nodes with their places and edges, in the order of the definition; with `states`, as a run has them."""
    placed = layout(workflow.steps)
    nodes = [
        {
            "step": step.name,
            "type": step.type,
            "join": {"at_least": step.at_least} if step.join == "at_least" else step.join,
            "job": None if step.job is None or step.job.job_id is None else str(step.job.job_id),
            "workflow": None if step.workflow_id is None else str(step.workflow_id),
            "for_each": step.for_each is not None,
            "level": placed.boxes[step.name].level,
            "x": placed.boxes[step.name].x,
            "y": placed.boxes[step.name].y,
            "width": placed.boxes[step.name].width,
            "height": placed.boxes[step.name].height,
            **({} if states is None else _state_of(states.get(step.name))),
        }
        for step in workflow.steps
    ]
    edges = [{"from": line.edge.parent, "to": line.child, "on": line.edge.on} for line in placed.lines]
    return {"width": placed.width, "height": placed.height, "nodes": nodes, "edges": edges}


def graph_svg(workflow: Workflow, *, title: str, states: Mapping[str, Shown] | None = None) -> str:
    """The picture as one SVG document."""
    placed = layout(workflow.steps)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {placed.width:.0f} {placed.height:.0f}"'
        f' width="{placed.width:.0f}" height="{placed.height:.0f}" role="img" {_FONT} font-size="12">',
        f"<title>{_text(title)}</title>",
        f'<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{_EDGE}"/></marker></defs>',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    parts += [_line(line) for line in placed.lines]
    parts += [_condition(line) for line in placed.lines if line.edge.on != "succeeded"]  # above all lines
    for step in workflow.steps:
        state = None if states is None else states.get(step.name, Shown("waiting"))
        parts.append(_node(step, placed.boxes[step.name], state))
    return "".join([*parts, "</svg>"])


def _state_of(state: Shown | None) -> dict[str, str]:
    return {"state": "waiting", "note": ""} if state is None else {"state": state.state, "note": state.note}


def _node(step: Step, box: Box, state: Shown | None) -> str:
    paint = _PAINTS.get(state.state if state else "", _PAINTS[""])
    about = f"{step.name} ({_kind(step)})"
    if state is not None:
        about += f": {state.state}{f', {state.note}' if state.note else ''}"
    second = _kind(step) if state is None else state.state
    middle = box.x + box.width / 2
    corner = 20 if step.type in ("approval", "delay") else 4  # what runs no job is round
    return (
        f'<g><title>{_text(about)}</title><rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}"'
        f' height="{box.height:.0f}" rx="{corner}" fill="{paint.fill}" stroke="{paint.line}"'
        f' stroke-width="{3 if step.for_each else 1}"/>'
        f'<text x="{middle:.1f}" y="{box.y + 17:.1f}" text-anchor="middle" fill="{paint.text}">'
        f"{_text(shown(step.name))}</text>"
        f'<text x="{middle:.1f}" y="{box.y + 32:.1f}" text-anchor="middle" font-size="10" fill="{paint.text}">'
        f"{_text(second)}</text></g>"
    )


def _line(line: Line) -> str:
    """Curves between levels, straight through the ones that are passed; conditions are dashed."""
    path = f"M{line.points[0][0]:.1f} {line.points[0][1]:.1f}"
    for (x, y), (to_x, to_y) in zip(line.points, line.points[1:], strict=False):
        bend = (to_x - x) / 2
        path += (
            f"H{to_x:.1f}"
            if y == to_y
            else f"C{x + bend:.1f} {y:.1f} {to_x - bend:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
        )
    dashed = "" if line.edge.on == "succeeded" else ' stroke-dasharray="5 3"'
    return f'<path d="{path}" fill="none" stroke="{_EDGE}"{dashed} marker-end="url(#end)"/>'


def _condition(line: Line) -> str:
    """Its word, on a ground of its own: lines that go below it do not strike it out."""
    (x, y), (to_x, to_y) = line.points[-2:]
    return (
        f'<text x="{(x + to_x) / 2:.1f}" y="{(y + to_y) / 2 + 3:.1f}" text-anchor="middle" font-size="10"'
        f' fill="{_EDGE}" stroke="#ffffff" stroke-width="4" paint-order="stroke">{line.edge.on}</text>'
    )


def _kind(step: Step) -> str:
    return f"{step.type} for each" if step.for_each else step.type


def _text(text: str) -> str:
    """Escaped, without the characters that XML does not know."""
    return escape("".join(char if char >= " " or char in "\t\n" else "\ufffd" for char in text))
