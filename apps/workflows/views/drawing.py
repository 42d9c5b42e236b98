"""A workflow, or one run of it, as a graph: JSON for programs, SVG for people. Pure.

An SVG that stands alone has no script, no style and no link; colours are presentation attributes. One that is part of
a page has classes instead, so that the page's themes colour it, and each step leads to its line in the list. What a
colour means is written as well. All text of tenants is escaped.
"""

from collections.abc import Mapping
from html import escape
from typing import Any, NamedTuple, Protocol

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
_ROUND = 20  # corners of what runs no job
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
    return _drawn(workflow, title=title, states=states, ink=_OnPaper(), links=None)


def graph_on_page(workflow: Workflow, *, title: str, states: Mapping[str, Shown], links: Mapping[str, str]) -> str:
    """The picture as part of a page, which has colours for its classes; a step leads to where `links` says."""
    return _drawn(workflow, title=title, states=states, ink=_OnPage(), links=links)


class _Ink(Protocol):
    """What colours are in a picture: attributes of its parts."""

    head: str
    ground: str
    arrow: str
    edge: str
    word: str

    def box(self, state: str) -> str: ...
    def text(self, state: str) -> str: ...


class _OnPaper:
    """White ground, colours as they are."""

    head = f'xmlns="http://www.w3.org/2000/svg" role="img" {_FONT}'
    ground = '<rect width="100%" height="100%" fill="#ffffff"/>'
    arrow = f'fill="{_EDGE}"'
    edge = f'fill="none" stroke="{_EDGE}"'
    word = f'fill="{_EDGE}" stroke="#ffffff" stroke-width="4" paint-order="stroke"'

    def box(self, state: str) -> str:
        paint = _PAINTS.get(state, _PAINTS[""])
        return f'fill="{paint.fill}" stroke="{paint.line}"'

    def text(self, state: str) -> str:
        return f'fill="{_PAINTS.get(state, _PAINTS[""]).text}"'


class _OnPage:
    """Classes `step-failed` and so on, on whatever ground the page has. Its links are told, so it is no `img`."""

    head = 'class="graph" role="group"'
    ground = ""
    arrow, edge, word = 'class="edge-end"', 'class="edge"', 'class="edge-word"'

    def box(self, state: str) -> str:
        return f'class="step step-{state if state in _PAINTS and state else "other"}"'

    def text(self, state: str) -> str:
        return f'class="step-text step-{state if state in _PAINTS and state else "other"}"'


def _drawn(
    workflow: Workflow, *, title: str, states: Mapping[str, Shown] | None, ink: _Ink, links: Mapping[str, str] | None
) -> str:
    placed = layout(workflow.steps)
    named = f"<title>{_text(title)}</title>" if links is None else ""
    label = "" if links is None else f' aria-label="{_text(title)}"'
    parts = [
        f'<svg {ink.head} viewBox="0 0 {placed.width:.0f} {placed.height:.0f}"'
        f' width="{placed.width:.0f}" height="{placed.height:.0f}" font-size="12"{label}>{named}',
        f'<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" {ink.arrow}/></marker></defs>',
        ink.ground,
    ]
    parts += [_line(line, ink) for line in placed.lines]
    parts += [_condition(line, ink) for line in placed.lines if line.edge.on != "succeeded"]  # above all lines
    for step in workflow.steps:
        state = None if states is None else states.get(step.name, Shown("waiting"))
        parts.append(_node(step, placed.boxes[step.name], state, ink, (links or {}).get(step.name)))
    return "".join([*parts, "</svg>"])


def _state_of(state: Shown | None) -> dict[str, str]:
    return {"state": "waiting", "note": ""} if state is None else {"state": state.state, "note": state.note}


def _node(step: Step, box: Box, state: Shown | None, ink: _Ink, link: str | None) -> str:
    name = state.state if state else ""
    about = f"{step.name} ({_kind(step)})"
    if state is not None:
        about += f": {state.state}{f', {state.note}' if state.note else ''}"
    second = _kind(step) if state is None else state.state
    middle = box.x + box.width / 2
    corner = _ROUND if step.type in ("approval", "delay") else 4
    drawn = (
        f'<g><title>{_text(about)}</title><rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}"'
        f' height="{box.height:.0f}" rx="{corner}" {ink.box(name)} stroke-width="{3 if step.for_each else 1}"/>'
        f'<text x="{middle:.1f}" y="{box.y + 17:.1f}" text-anchor="middle" {ink.text(name)}>'
        f"{_text(shown(step.name))}</text>"
        f'<text x="{middle:.1f}" y="{box.y + 32:.1f}" text-anchor="middle" font-size="10" {ink.text(name)}>'
        f"{_text(second)}</text></g>"
    )
    return drawn if link is None else f'<a href="{_text(link)}" aria-label="{_text(about)}">{drawn}</a>'


def _line(line: Line, ink: _Ink) -> str:
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
    return f'<path d="{path}" {ink.edge}{dashed} marker-end="url(#end)"/>'


def _condition(line: Line, ink: _Ink) -> str:
    """Its word, on a ground of its own: lines that go below it do not strike it out."""
    (x, y), (to_x, to_y) = line.points[-2:]
    return (
        f'<text x="{(x + to_x) / 2:.1f}" y="{(y + to_y) / 2 + 3:.1f}" text-anchor="middle" font-size="10"'
        f" {ink.word}>{line.edge.on}</text>"
    )


def _kind(step: Step) -> str:
    return f"{step.type} for each" if step.for_each else step.type


def _text(text: str) -> str:
    """Escaped, without the characters that XML does not know."""
    return escape("".join(char if char >= " " or char in "\t\n" else "\ufffd" for char in text))
