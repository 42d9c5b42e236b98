"""Pictures of graphs: where things stand, what is written, and that hostile text is only text."""

import json
from typing import Any
from xml.etree import ElementTree

from hypothesis import given

from apps.workflows.definitions.definition import Edge, Step, Workflow
from apps.workflows.views.drawing import _PAINTS, Shown, graph_json, graph_on_page, graph_svg
from apps.workflows.views.layout import MAX_CHARS, layout, shown
from tests.workflows.making import JOB, faults, random_steps, step, workflow

SVG = "{http://www.w3.org/2000/svg}"
ALLOWED = {
    "svg": {"viewBox", "width", "height", "role", "font-family", "font-size"},
    "title": set(),
    "defs": set(),
    "g": set(),
    "marker": {"id", "viewBox", "refX", "refY", "markerWidth", "markerHeight", "orient"},
    "path": {"d", "fill", "stroke", "stroke-dasharray", "marker-end"},
    "rect": {"x", "y", "width", "height", "rx", "fill", "stroke", "stroke-width"},
    "text": {"x", "y", "text-anchor", "font-size", "fill", "stroke", "stroke-width", "paint-order"},
}


@given(random_steps())
def test_nothing_overlaps_and_edges_go_from_left_to_right(steps: list[dict[str, Any]]) -> None:
    if faults(*steps):
        return
    made = workflow(*steps)
    placed = layout(made.steps)
    boxes = list(placed.boxes.values())
    for at, one in enumerate(boxes):
        assert one.x >= 0 and one.y >= 0 and one.x + one.width <= placed.width and one.y + one.height <= placed.height
        for other in boxes[at + 1 :]:
            apart = one.x + one.width < other.x or other.x + other.width < one.x
            assert apart or one.y + one.height < other.y or other.y + other.height < one.y
    assert len(placed.lines) == sum(len(one.needs) for one in made.steps)
    for line in placed.lines:
        xs = [x for x, _ in line.points]
        assert xs == sorted(xs)
        parent, child = placed.boxes[line.edge.parent], placed.boxes[line.child]
        assert parent.level < child.level
        # Where an edge passes a level, it passes between the steps of that level.
        for x, y in line.points[1:-1]:
            assert not any(box.x <= x <= box.x + box.width and box.y <= y <= box.y + box.height for box in boxes)
    assert layout(made.steps) == placed
    ElementTree.fromstring(graph_svg(made, title="x"))


def test_the_picture_says_states_in_words_and_holds_nothing_that_runs() -> None:
    hostile = '</title><script>alert("x")</script>\x00&'
    made = workflow(
        step("extract"),
        step("ask", "extract", approval={}),
        step("each", "ask", "extract:failed", for_each={"items": [1]}, join="any"),
    )
    states = {"extract": Shown("failed", hostile), "ask": Shown("skipped", "upstream_failed")}
    text = graph_svg(made, title=hostile, states=states)
    root = ElementTree.fromstring(text)
    for one in root.iter():
        name = one.tag.removeprefix(SVG)
        assert one.attrib.keys() <= ALLOWED[name], name
    assert "<script" not in text and "\x00" not in text
    titles = [one.text for one in root.iter(f"{SVG}title")]
    assert titles[1:] == [
        f"extract (job): failed, {hostile.replace(chr(0), chr(0xFFFD))}",
        "ask (approval): skipped, upstream_failed",
        "each (job for each): waiting",
    ]
    words = [one.text for one in root.iter(f"{SVG}text")]
    assert words == ["failed", "extract", "failed", "ask", "skipped", "each", "waiting"]  # the first is of an edge
    plain = [one.text for one in ElementTree.fromstring(graph_svg(made, title="x")).iter(f"{SVG}text")]
    assert plain == ["failed", "extract", "job", "ask", "approval", "each", "job for each"]


def test_on_a_page_the_page_gives_the_colours_and_steps_lead_to_their_lines() -> None:
    hostile = '"><script>alert("x")</script>'
    made = workflow(step("extract"), step("ask", "extract:failed", approval={}))
    states = {"extract": Shown("failed", hostile), "ask": Shown("nobody knows")}
    text = graph_on_page(made, title=hostile, states=states, links={"extract": "#step-1", "ask": '"#2'})
    root = ElementTree.fromstring(text)
    for one in root.iter():
        assert not one.attrib.keys() & {"fill", "stroke", "style"}, one.tag
    assert [one.get("href") for one in root.iter("a")] == ["#step-1", '"#2']
    assert next(one.get("aria-label") for one in root.iter("a")) == f"extract (job): failed, {hostile}"
    classes = {one.get("class") for one in root.iter("rect")}
    assert classes == {"step step-failed", "step step-other"} and "<script" not in text


def test_the_graph_as_json() -> None:
    made = workflow(step("a"), step("b", "a:finished", delay_s=1), step("c", "a", "b", join={"at_least": 1}))
    data = json.loads(json.dumps(graph_json(made, {"a": Shown("succeeded"), "b": Shown("running", "until 12:00")})))
    assert [(node["step"], node["type"], node["level"], node["state"], node["note"]) for node in data["nodes"]] == [
        ("a", "job", 0, "succeeded", ""),
        ("b", "delay", 1, "running", "until 12:00"),
        ("c", "job", 2, "waiting", ""),
    ]
    assert data["nodes"][0]["job"] == str(JOB) and data["nodes"][2]["join"] == {"at_least": 1}
    assert data["edges"] == [
        {"from": "a", "to": "b", "on": "finished"},
        {"from": "a", "to": "c", "on": "succeeded"},
        {"from": "b", "to": "c", "on": "succeeded"},
    ]
    assert "state" not in graph_json(made)["nodes"][0]


def test_long_names_and_large_graphs() -> None:
    assert len(shown("x" * 50)) == MAX_CHARS and shown("x" * MAX_CHARS) == "x" * MAX_CHARS
    chain = tuple(
        Step(
            f"s{at}",
            "delay",
            delay_s=0,
            needs=(Edge(f"s{at - 1}"), Edge("s0", "finished")) if at > 1 else (Edge("s0"),) if at else (),
        )
        for at in range(500)
    )  # each passes all levels above it: far more places than there may be
    root = ElementTree.fromstring(graph_svg(Workflow(chain), title="x"))
    assert len(root.findall(f"{SVG}g")) == 500 and len(root.findall(f"{SVG}path")) == 997


def test_text_can_be_read_on_its_ground() -> None:
    for paint in _PAINTS.values():
        assert contrast(paint.fill, paint.text) >= 7
        assert contrast(paint.fill, paint.line) >= 3 and contrast("#ffffff", paint.line) >= 3


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
