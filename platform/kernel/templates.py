"""Text with values of the run in it: `{{ payload.user.id }}`. Pure.

There are no loops, calls, attributes or arithmetic: a template is a list of texts and of paths into plain values, so
its time and size are bounded by its own length and by a budget. What a tenant writes can't reach anything
that is not in the values it is given. What it may be:

    {{ payload.user.id }}         a member; numbers are places in lists; names with other characters in ["..."]
    {{ nominal_at | date }}       a filter: see FILTERS
    {{ payload.a | default("x") }}   when there is no such value, or null
    {{ "{{" }}                    the text itself

A name that does not exist is an error (Unknown), never an empty text. What is put in is written for where it stands:
percent-encoded in URLs and forms, escaped in JSON and XML.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import quote

MAX_EXPRESSIONS = 100
MAX_EXPRESSION_CHARS = 500
MAX_FILTERS = 8  # of one expression
MAX_OUTPUT_CHARS = 1_048_576
REMEMBERED_MAX_CHARS = 2_048
MISSING: Any = object()
# Names that exist whatever the run is; below payload and labels anything may be.
NAMES: Mapping[str, tuple[str, ...]] = {
    "run_key": (),
    "execution_id": (),
    "attempt": (),
    "nominal_at": (),
    "trigger": (),
    "tenant": ("slug",),
    "job": ("id", "name"),
    "schedule": ("id", "name"),
    "payload": (),
    "labels": (),
}
FREE = frozenset({"payload", "labels"})


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """Names that templates of one kind may begin with, each with its members; below `free` ones anything may be."""

    members: Mapping[str, tuple[str, ...]]
    free: frozenset[str]


OF_A_RUN = Known(NAMES, FREE)

Value = Any
Write = Callable[[Value], str]


class BadTemplate(ValueError):
    """The template can't be read or filled in. `position` is where in the text it is wrong, from 0."""

    def __init__(self, detail: str, position: int | None = None) -> None:
        super().__init__(detail)
        self.detail, self.position = detail, position


@dataclass(frozen=True, slots=True)
class Expression:
    """One `{{ ... }}`: a path into the values or a literal, then filters."""

    position: int
    source: str
    path: tuple[str | int, ...] | None
    literal: Any
    filters: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Template:
    """Texts and expressions in turn: `texts` has one more than `expressions`."""

    texts: tuple[str, ...]
    expressions: tuple[Expression, ...]

    @property
    def names(self) -> set[str]:
        """The first names of all paths."""
        return {str(one.path[0]) for one in self.expressions if one.path}

    def whole(self) -> Expression | None:
        """The expression when the template is nothing else: its value then keeps its type in JSON."""
        return self.expressions[0] if len(self.expressions) == 1 and self.texts == ("", "") else None

    def render(self, values: Mapping[str, Any], write: Write, budget: "Budget") -> str:
        """The text with all values in it. Raises BadTemplate."""
        return self.render_with(values, [write] * len(self.expressions), budget)

    def render_with(self, values: Mapping[str, Any], writes: Iterable[Write], budget: "Budget") -> str:
        """The same where each expression is written in its own way."""
        parts = [self.texts[0]]
        for expression, write, text in zip(self.expressions, writes, self.texts[1:], strict=True):
            written = write(value_of(expression, values))
            budget.spend(len(written), expression)
            parts += [written, text]
        return "".join(parts)


@dataclass(slots=True)
class Budget:
    """What all templates of one request may put in, in characters."""

    left: int = MAX_OUTPUT_CHARS

    def spend(self, chars: int, expression: Expression) -> None:
        self.left -= chars
        if self.left < 0:
            raise BadTemplate(f"Templates put in more than {MAX_OUTPUT_CHARS:,} characters.", expression.position)


def has_template(text: str) -> bool:
    return "{{" in text


def read_template(text: str, known: Known = OF_A_RUN) -> Template:
    """Raises BadTemplate with the position of the fault. Short ones are remembered: many large ones fill the memory."""
    return _remembered(text, known) if len(text) <= REMEMBERED_MAX_CHARS else _read_template(text, known)


def value_of(expression: Expression, values: Mapping[str, Any]) -> Value:
    """What an expression stands for. Raises BadTemplate for what does not exist."""
    value = expression.literal if expression.path is None else _follow(expression.path, values)
    for name, argument in expression.filters:
        if name == "default":
            value = argument if value is MISSING or value is None else value
        elif value is not MISSING:
            value = _filtered(expression, name, value)
            # Escaping what is escaped doubles it each time, long before anything is put in.
            if isinstance(value, str) and len(value) > MAX_OUTPUT_CHARS:
                raise BadTemplate(f"A filter makes more than {MAX_OUTPUT_CHARS:,} characters.", expression.position)
    if value is MISSING:
        raise BadTemplate(f"There is no {expression.source!r}.", expression.position)
    return rfc3339(value) if isinstance(value, datetime) else value


# -- how a value is written where it stands ---------------------------------------------------------------------------


def write_text(value: Value) -> str:
    """Plain: text as it is, null as nothing, the rest as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json_text(value)


def write_json(value: Value) -> str:
    """A JSON value of its own."""
    return json_text(value)


def write_in_json_string(value: Value) -> str:
    """Inside the quotes of a JSON string."""
    return json_text(write_text(value))[1:-1]


def write_url_part(value: Value) -> str:
    """Percent-encoded as a whole: it can be no separator of a URL or form."""
    return quote(write_text(value), safe="", errors="replace")


def write_xml(value: Value) -> str:
    """Text or an attribute of XML or HTML."""
    text = write_text(value)
    for char, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#39;")):
        text = text.replace(char, name)
    return text


def json_writes(template: Template) -> list[Write]:
    """For a text that is JSON: inside of a string a value is escaped, outside it is a JSON value with its quotes."""
    writes: list[Write] = []
    inside = False
    for text in template.texts[:-1]:
        inside ^= len(_QUOTE.findall(_ESCAPED.sub("", text))) % 2 == 1
        writes.append(write_in_json_string if inside else write_json)
    return writes


def json_text(value: Value) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        raise BadTemplate("The value can't be written as JSON.") from None


def rfc3339(at: datetime) -> str:
    """A time as RFC 3339 in UTC."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _unix(at: datetime) -> int:
    return int(at.timestamp())


TIME_FILTERS: Mapping[str, Callable[[datetime], Any]] = {
    "date": lambda at: f"{at:%Y-%m-%d}",
    "time": lambda at: f"{at:%H:%M:%S}",
    "compact": lambda at: f"{at:%Y%m%dT%H%M%SZ}",
    "year": lambda at: f"{at:%Y}",
    "month": lambda at: f"{at:%m}",
    "day": lambda at: f"{at:%d}",
    "hour": lambda at: f"{at:%H}",
    "minute": lambda at: f"{at:%M}",
    "unix": _unix,
    "unix_ms": lambda at: _unix(at) * 1_000 + at.microsecond // 1_000,
}
OTHER_FILTERS: Mapping[str, Callable[[Any], Any]] = {
    "json": json_text,
    "text": write_text,
    "lower": lambda value: write_text(value).lower(),
    "upper": lambda value: write_text(value).upper(),
}
FILTERS = (*TIME_FILTERS, *OTHER_FILTERS, "default")

_QUOTE, _ESCAPED = re.compile('"'), re.compile(r"\\.", re.DOTALL)
_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_INDEX = re.compile(r"[0-9]{1,6}")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"|' + r"'[^'\\\x00-\x1f]*'")
_LITERAL = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,18})?|true|false|null")
_CONSTANTS = {"true": True, "false": False, "null": None}


def _follow(path: tuple[str | int, ...], values: Mapping[str, Any]) -> Value:
    value: Any = values
    for step in path:
        if isinstance(value, Mapping):
            value = value.get(str(step), MISSING)
        elif isinstance(value, list) and isinstance(step, int):
            value = value[step] if step < len(value) else MISSING
        else:
            return MISSING
        if value is MISSING:
            return MISSING
    return value


def _filtered(expression: Expression, name: str, value: Value) -> Value:
    if name in OTHER_FILTERS:
        return OTHER_FILTERS[name](rfc3339(value) if isinstance(value, datetime) else value)
    if value is None:  # a run that somebody asked for has no nominal time
        return MISSING
    at = value if isinstance(value, datetime) else _instant(value)
    if at is None:
        raise BadTemplate(f"{expression.source!r} is no time, as the filter {name} needs it.", expression.position)
    return TIME_FILTERS[name](at.astimezone(UTC))


def _instant(value: Value) -> datetime | None:
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) and len(value) <= 40 else None
    except ValueError:
        return None
    return at if at is not None and at.tzinfo else None


def _read_template(text: str, known: Known) -> Template:
    texts: list[str] = []
    expressions: list[Expression] = []
    at = 0
    while (start := text.find("{{", at)) >= 0:
        if len(expressions) == MAX_EXPRESSIONS:
            raise BadTemplate(f"A target may have {MAX_EXPRESSIONS} templates.", start)
        texts.append(text[at:start])
        expression, at = _read_expression(text, start, known)
        expressions.append(expression)
    texts.append(text[at:])
    return Template(tuple(texts), tuple(expressions))


_remembered = lru_cache(maxsize=2_048)(_read_template)


class _Reader:
    """Reads one expression from left to right."""

    def __init__(self, text: str, start: int) -> None:
        self.text, self.start, self.at = text, start, start + 2
        self.limit = min(len(text), self.at + MAX_EXPRESSION_CHARS)

    def take(self, pattern: "re.Pattern[str]") -> str | None:
        matched = pattern.match(self.text, self.at, self.limit)
        if matched is None:
            return None
        self.at = matched.end()
        return matched.group()

    def sign(self, sign: str) -> bool:
        self.take(_SPACE)
        found = self.text.startswith(sign, self.at, self.limit)
        self.at += len(sign) * found
        return found

    def literal(self) -> Any:
        """A JSON text (also in single quotes), number, true, false or null; MISSING when there is none."""
        self.take(_SPACE)
        at = self.at
        if (text := self.take(_STRING)) is not None:
            try:
                return text[1:-1] if text[0] == "'" else json.loads(text)
            except ValueError:
                raise BadTemplate("This text has an escape that JSON does not know.", at) from None
        if (text := self.take(_LITERAL)) is not None:
            return _CONSTANTS[text] if text in _CONSTANTS else json.loads(text)
        return MISSING

    def fail(self, detail: str) -> BadTemplate:
        closed = self.text.find("}}", self.start) >= 0
        return BadTemplate(detail if closed else "'{{' has no '}}'.", self.at if closed else self.start)


def _read_expression(text: str, start: int, known: Known) -> tuple[Expression, int]:
    reader = _Reader(text, start)
    literal = reader.literal()
    # `nullable` is a name, though it begins like a constant
    path = None
    if literal is MISSING or _NAME.match(text, reader.at):
        reader.at = start + 2
        path, literal = _read_path(reader, known), None
    source = text[start + 2 : reader.at].strip()
    filters: list[tuple[str, Any]] = []
    while reader.sign("|"):
        if len(filters) == MAX_FILTERS:
            raise BadTemplate(f"A template may have {MAX_FILTERS} filters.", reader.at - 1)
        filters.append(_read_filter(reader))
    if not reader.sign("}}"):
        raise reader.fail("Here '|' and a filter, or '}}' should follow.")
    return Expression(start, source, path, literal, tuple(filters)), reader.at


def _read_path(reader: _Reader, known: Known) -> tuple[str | int, ...]:
    reader.take(_SPACE)
    at = reader.at
    first = reader.take(_NAME)
    if first is None:
        raise reader.fail("Here a name such as payload should stand.")
    if first not in known.members:
        raise BadTemplate(f"There is no {first!r}. Known: {', '.join(known.members)}.", at)
    path: list[str | int] = [first]
    while True:
        if reader.sign("."):
            step: str | int | None = reader.take(_NAME)
            if step is None and (index := reader.take(_INDEX)) is not None:
                step = int(index)
        elif reader.sign("["):
            step = reader.literal()
            if not reader.sign("]"):
                raise reader.fail("Here ']' should follow.")
        else:
            break
        if isinstance(step, bool) or not isinstance(step, str | int) or (isinstance(step, int) and step < 0):
            raise reader.fail("Here the name of a member or a place in a list should stand.")
        path.append(step)
    members = known.members[first]
    if first not in known.free and not (len(path) == 2 and path[1] in members if members else len(path) == 1):
        raise BadTemplate(f"{first!r} has {'the members ' + ', '.join(members) if members else 'no members'}.", at)
    return tuple(path)


def _read_filter(reader: _Reader) -> tuple[str, Any]:
    reader.take(_SPACE)
    at = reader.at
    name = reader.take(_NAME)
    if name not in FILTERS:
        raise BadTemplate(f"There is no filter {name or ''!r}. Known: {', '.join(FILTERS)}.", at)
    if name != "default":
        return name, None
    if not reader.sign("(") or (argument := reader.literal()) is MISSING or not reader.sign(")"):
        raise reader.fail('default needs a value, such as default("none").')
    return name, argument
