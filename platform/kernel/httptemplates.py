"""Templates in an HTTP target: where they may stand, and the request that they make of a run's values. Pure.

They may stand in the path and the query of the URL, in the values of headers and in the body; never in scheme, host or
port, so a value can't choose who is called. What comes out is checked again like a target without templates.

A body that is a JSON value keeps the types of what is put in: {"n": "{{ payload.n }}"} becomes {"n": 3}. In a body that
is text a value is written for the Content-Type: JSON, form, XML, or plain.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from kernel.secretrules import fill, is_reference, secret_names
from kernel.templates import (
    MAX_EXPRESSIONS,
    BadTemplate,
    Budget,
    Template,
    Write,
    has_template,
    json_text,
    json_writes,
    read_template,
    value_of,
    write_text,
    write_url_part,
    write_xml,
)

Values = Mapping[str, Any]
PLACEHOLDER = "x"  # stands for a value where only the fixed part is looked at


def fixed_url(url: str) -> str:
    """The URL with a placeholder for each template, for the checks that a URL without templates gets.

    Raises BadTemplate, also for a template before the path.
    """
    template = read_template(url)
    first = template.texts[0]
    _, scheme_ends, rest = first.partition("://")
    if template.expressions and (not scheme_ends or not any(mark in rest for mark in "/?#")):
        raise BadTemplate("A template may stand in path and query only: who is called is fixed.", len(first))
    return PLACEHOLDER.join(template.texts)


def is_fixed(target: Mapping[str, Any]) -> bool:
    """Whether the target has no template and names no secret: it is the same for every run."""
    return not any(has_template(text) for _, text in templates_of(target)) and not secret_names(target)


def filled_target(target: Mapping[str, Any], values: Values, secrets: Mapping[str, str]) -> dict[str, Any]:
    """The target with a run's values in the place of its templates, and its secrets. BadTemplate, SecretMissing.

    Both are put in at once, and what comes out is never read again for either: a payload may look like the name of a
    secret, and a secret like a template.
    """
    budget = Budget()
    headers = target.get("headers")
    made: dict[str, Any] = {}
    for name, part in target.items():
        if is_reference(part):
            made[name] = fill(part, secrets)
        elif name == "url" and isinstance(part, str):
            made[name] = url_of(part, values, budget)
        elif name == "headers" and isinstance(part, Mapping):
            made[name] = {key: _header(one, values, secrets, budget) for key, one in part.items()}
        elif name == "body":
            kinds = [one for key, one in (headers or {}).items() if key.lower() == "content-type"]
            made[name] = body_of(part, str(kinds[0]) if kinds else "", values, secrets, budget)
        else:
            made[name] = fill(part, secrets)
    return made


def url_of(url: str, values: Values, budget: Budget) -> str:
    """The URL to call. Raises BadTemplate."""
    template = read_template(url)
    made = template.render(values, write_url_part, budget)
    path = made.partition("://")[2].partition("?")[0]
    fixed_path = PLACEHOLDER.join(template.texts).partition("://")[2].partition("?")[0]
    # Receivers and proxies take these for another path than the one that the owner wrote.
    if _dots(path) > _dots(fixed_path):
        raise BadTemplate("A value must not make '.' or '..' of a part of the path.")
    return made


def body_of(body: Any, content_type: str, values: Values, secrets: Mapping[str, str], budget: Budget) -> Any:
    """The body: of the same JSON type when it is no text. Raises BadTemplate, SecretMissing."""
    if not isinstance(body, str):
        return _filled(body, values, secrets, budget)
    template = read_template(body)
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        return template.render_with(values, json_writes(template), budget)
    return template.render(values, _write_for(kind), budget)


def templates_of(target: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """All texts of a target that may hold templates, each with its JSON pointer."""
    if isinstance(target.get("url"), str):
        yield "/url", target["url"]
    headers = target.get("headers")
    if isinstance(headers, Mapping):
        for name, value in headers.items():
            if isinstance(value, str):
                yield f"/headers/{_step(name)}", value
    waiting = [("/body", target.get("body"))]
    while waiting:
        where, value = waiting.pop()
        if isinstance(value, str):
            yield where, value
        elif is_reference(value):
            continue
        elif isinstance(value, Mapping):
            waiting.extend((f"{where}/{_step(name)}", inner) for name, inner in reversed(list(value.items())))
        elif isinstance(value, list):
            waiting.extend((f"{where}/{at}", inner) for at, inner in reversed(list(enumerate(value))))


def names_in(target: Mapping[str, Any]) -> frozenset[str]:
    """The first names of all templates of a target: what of the run has to be known. Unreadable ones have none."""
    found: set[str] = set()
    for _, text in templates_of(target):
        if has_template(text):
            with suppress(BadTemplate):
                found |= read_template(text).names
    return frozenset(found)


def template_faults(target: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(pointer, code, what is wrong and where) of the templates of a target."""
    faults, count = [], 0
    for pointer, text in templates_of(target):
        if not has_template(text):
            continue
        try:
            template = read_template(text)
            if pointer == "/url":
                fixed_url(text)
        except BadTemplate as bad:
            faults.append((pointer, "bad_template", told(bad)))
            continue
        count += len(template.expressions)
    if count > MAX_EXPRESSIONS:
        faults.append(("", "too_many", f"A target may have {MAX_EXPRESSIONS} templates; this one has {count}."))
    return faults


def told(bad: BadTemplate) -> str:
    """The fault in words, with its place."""
    return bad.detail if bad.position is None else f"{bad.detail} At character {bad.position + 1}."


def _filled(value: Any, values: Values, secrets: Mapping[str, str], budget: Budget) -> Any:
    if isinstance(value, str):
        return _filled_text(read_template(value), values, budget) if has_template(value) else value
    if is_reference(value):
        return fill(value, secrets)
    if isinstance(value, Mapping):
        return {name: _filled(inner, values, secrets, budget) for name, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, values, secrets, budget) for inner in value]
    return value


def _filled_text(template: Template, values: Values, budget: Budget) -> Any:
    expression = template.whole()
    if expression is None:
        return template.render(values, write_text, budget)
    value = value_of(expression, values)
    budget.spend(len(json_text(value)), expression)
    return value


def _write_for(kind: str) -> Write:
    if kind == "application/x-www-form-urlencoded":
        return write_url_part
    if kind in ("text/xml", "application/xml", "text/html") or kind.endswith("+xml"):
        return write_xml
    return write_text


def _header(value: Any, values: Values, secrets: Mapping[str, str], budget: Budget) -> Any:
    if isinstance(value, str):
        return read_template(value).render(values, write_text, budget)
    return fill(value, secrets)


def _dots(path: str) -> int:
    return sum(part.lower().replace("%2e", ".") in (".", "..") for part in path.split("/"))


def _step(name: object) -> str:
    return str(name)[:80].replace("~", "~0").replace("/", "~1")
