"""Templates: what may be written, what comes out, and that nothing hostile costs much or reaches anything."""

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.httprules import TargetRefused, check_url, validate_target
from kernel.httptemplates import body_of, filled_target, fixed_url, template_faults, url_of
from kernel.templates import (
    MAX_OUTPUT_CHARS,
    REMEMBERED_MAX_CHARS,
    BadTemplate,
    Budget,
    read_template,
    write_text,
    write_url_part,
)

NOMINAL_AT = datetime(2026, 3, 9, 4, 5, 6, 789_000, tzinfo=UTC)
HOSTILE = "\"'\\<&>%/?#\r\n{{ run_key }}\x00é\u2028"
VALUES: dict[str, Any] = {
    "run_key": "r1",
    "execution_id": "0190aa",
    "attempt": 2,
    "nominal_at": NOMINAL_AT,
    "trigger": "schedule",
    "tenant": {"slug": "acme"},
    "job": {"id": "j1", "name": "nightly"},
    "schedule": {"id": "s1", "name": "every night"},
    "payload": {
        "user": {"id": 7, "name": "Ada"}, "list": [1, "two", {"three": 3}], "none": None, "yes": True, "pi": 3.5,
        "a b": "blank", "hostile": HOSTILE, "at": "2026-01-02T03:04:05+01:00", "big": "x" * 200_000, "0": "zero",
    },
    "labels": {"team": "core", "a/b": "slash"},
}  # fmt: skip
URL = "https://hooks.example.com/a"


def text(template: str, values: Any = VALUES) -> str:
    return read_template(template).render(values, write_text, Budget())


@pytest.mark.parametrize(
    ("template", "made"),
    [
        ("plain", "plain"),
        ("", ""),
        ("{ } }} { {x", "{ } }} { {x"),
        ("{{ run_key }}", "r1"),
        ("{{run_key}}", "r1"),
        ("<{{ run_key }}-{{ attempt }}>", "<r1-2>"),
        ("{{ tenant.slug }}/{{ job.name }}/{{ job.id }}/{{ schedule.name }}", "acme/nightly/j1/every night"),
        ("{{ payload.user.id }} {{ payload.user.name }}", "7 Ada"),
        ("{{ payload.list.0 }} {{ payload.list[1] }} {{ payload.list[2].three }}", "1 two 3"),
        ("{{ payload[\"a b\"] }} {{ payload['a b'] }} {{ payload.0 }}", "blank blank zero"),
        ('{{ labels["a/b"] }} {{ labels.team }}', "slash core"),
        ("{{ payload.none }}|{{ payload.yes }}|{{ payload.pi }}", "|true|3.5"),
        ("{{ payload.user }}", '{"id":7,"name":"Ada"}'),
        ("{{ nominal_at }}", "2026-03-09T04:05:06.789000Z"),
        ("{{ nominal_at | date }} {{ nominal_at | time }}", "2026-03-09 04:05:06"),
        ("{{ nominal_at|year }}/{{ nominal_at|month }}/{{ nominal_at|day }}/{{ nominal_at|hour }}", "2026/03/09/04"),
        ("{{ nominal_at | minute }} {{ nominal_at | compact }}", "05 20260309T040506Z"),
        ("{{ nominal_at | unix }} {{ nominal_at | unix_ms }}", "1773029106 1773029106789"),
        ("{{ payload.at | date }} {{ payload.at | hour }}", "2026-01-02 02"),
        ('{{ payload.missing | default("x") }}', "x"),
        ("{{ payload.none | default('x') }}{{ payload.user.id | default(0) }}", "x7"),
        ("{{ payload.missing.deeper | default(null) }}{{ payload.missing | default(1.5) }}", "1.5"),
        ("{{ payload.user.name | lower }}{{ payload.user.name | upper }}", "adaADA"),
        ("{{ payload.list | json }}", '[1,"two",{"three":3}]'),
        ("{{ \"{{\" }} {{ '}}' }}", "{{ }}"),
    ],
)
def test_what_comes_out(template: str, made: str) -> None:
    assert text(template) == made


@pytest.mark.parametrize(
    ("template", "position", "hint"),
    [
        ("ab{{ run_key", 2, "'{{' has no '}}'"),
        ("{{", 0, "'{{' has no '}}'"),
        ("ab{{ }}", 5, "a name"),
        ("{{ nope }}", 3, "There is no 'nope'. Known: run_key"),
        ("{{ payload.user.id + 1 }}", 19, "'|' and a filter"),
        ("{{ payload() }}", 10, "'|' and a filter"),
        ("{{ tenant }}", 3, "'tenant' has the members slug"),
        ("{{ tenant.id }}", 3, "'tenant' has the members slug"),
        ("{{ job.target.url }}", 3, "'job' has the members id, name"),
        ("{{ run_key.upper }}", 3, "'run_key' has no members"),
        ("{{ nominal_at.tzinfo }}", 3, "'nominal_at' has no members"),
        ("{{ run_key | shout }}", 13, "There is no filter 'shout'. Known: date"),
        ("{{ run_key | }}", 13, "There is no filter ''"),
        ("{{ payload.x | default }}", 23, 'default("none")'),
        ("{{ payload.x | default(y) }}", 23, 'default("none")'),
        ("{{ payload[ }}", 12, "']' should follow"),
        ("{{ payload[1.5] }}", 15, "a place in a list"),
        ("{{ payload[-1] }}", 14, "a place in a list"),
        ("{{ payload[true] }}", 16, "a place in a list"),
        ("{{ payload. }}", 11, "a place in a list"),
        ('{{ "\\x" }}', 3, "an escape that JSON does not know"),
        ("{{ payload." + "x" * 600 + " }}", 502, "'|' and a filter"),
        ("{% for x in payload %}{{ x }}{% endfor %}", 25, "There is no 'x'"),
        ("{{ ''.__class__.__mro__ }}", 5, "'|' and a filter"),
        ("{{ __import__('os') }}", 3, "There is no '__import__'"),
        ("{{ {{ run_key }} }}", 3, "a name"),
    ],
)
def test_faults_have_a_place(template: str, position: int, hint: str) -> None:
    with pytest.raises(BadTemplate) as bad:
        read_template(template)
    assert (bad.value.position, hint in bad.value.detail) == (position, True), bad.value.detail


@pytest.mark.parametrize(
    "template",
    [
        "{{ payload.missing }}",
        "{{ payload.user.id.deeper }}",
        "{{ payload.list[3] }}",
        "{{ payload.list.x }}",
        "{{ payload.user.__class__ }}",
        "{{ payload.user.items }}",
        "{{ labels.nope }}",
        "{{ payload.user.name | date }}",
        "{{ payload.user | unix }}",
        "{{ payload.none | date }}",
    ],
)
def test_what_is_missing_at_run_time_is_an_error(template: str) -> None:
    with pytest.raises(BadTemplate):
        text(template)


def test_a_run_without_schedule_or_nominal_time() -> None:
    values = VALUES | {"schedule": None, "nominal_at": None}
    for template in ("{{ schedule.name }}", "{{ nominal_at | date }}"):
        with pytest.raises(BadTemplate):
            text(template, values)
    assert text('{{ schedule.name | default("by hand") }}', values) == "by hand"
    assert text('{{ nominal_at | date | default("now") }}', values) == "now"


# -- for where they stand -------------------------------------------------------------------------------------------


def test_a_json_body_keeps_types_and_can_not_be_broken_out_of() -> None:
    body = {
        "id": "{{ payload.user.id }}", "user": "{{ payload.user }}", "none": "{{ payload.none }}", "n": 3,
        "both": "{{ payload.user.id }}!", "list": ["{{ payload.yes }}", {"deep": "{{ payload.hostile }}"}],
    }  # fmt: skip
    made = body_of(body, "", VALUES, {}, Budget())
    assert made == {
        "id": 7, "user": {"id": 7, "name": "Ada"}, "none": None, "n": 3, "both": "7!",
        "list": [True, {"deep": HOSTILE}],
    }  # fmt: skip


@given(st.text() | st.integers() | st.none() | st.booleans() | st.dictionaries(st.text(), st.text(), max_size=2))
def test_a_json_text_stays_json_whatever_is_put_in(value: Any) -> None:
    body = '{"a": {{ payload.v }}, "b": "x{{ payload.v }}\\"y", "c{{ payload.v }}": [{{ payload.v }}]}'
    made = body_of(body, "application/vnd.api+json; charset=utf-8", {"payload": {"v": value}}, {}, Budget())
    written = value if isinstance(value, str) else "" if value is None else json.dumps(value, separators=(",", ":"))
    read = json.loads(made)
    assert (read["a"], len(read), read[next(key for key in read if key.startswith("c"))]) == (value, 3, [value])
    assert isinstance(value, dict) or read["b"] == f'x{written}"y'


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        ("application/x-www-form-urlencoded", "v=a%26b%3D%3C%2F&w"),
        ("text/xml; charset=utf-8", "v=a&amp;b=&lt;/&w"),
        ("application/soap+xml", "v=a&amp;b=&lt;/&w"),
        ("text/plain", "v=a&b=</&w"),
        ("", "v=a&b=</&w"),
    ],
)
def test_other_texts_are_written_for_their_type(kind: str, made: str) -> None:
    assert body_of("v={{ payload }}&w", kind, {"payload": "a&b=</"}, {}, Budget()) == made


@given(st.text(max_size=50))
def test_a_value_in_a_url_can_not_leave_its_place(value: str) -> None:
    url = URL + "/{{ payload }}/x?a={{ payload }}&b=1"
    try:
        made = check_url(url_of(url, {"payload": value}, Budget()), ())
    except BadTemplate:
        assert value in (".", "..")
        return
    assert (made.host, made.port, made.path.count("/"), made.path.count("?")) == ("hooks.example.com", 443, 3, 1)
    assert made.path.count("&") == 1 and "#" not in made.path


@pytest.mark.parametrize("value", [".", "..", "%2e", "."])
def test_a_value_is_no_way_up(value: str) -> None:
    url = URL + "/{{ payload }}/x"
    if value == "%2e":  # its own percent sign is written as %25, so it is a name
        assert url_of(url, {"payload": value}, Budget()).endswith("/%252e/x")
        return
    with pytest.raises(BadTemplate):
        url_of(url, {"payload": value}, Budget())
    with pytest.raises(BadTemplate):
        url_of(URL + "/.{{ payload }}", {"payload": "."}, Budget())


@pytest.mark.parametrize(
    "url",
    [
        "{{ payload.url }}",
        "{{ payload.scheme }}://hooks.example.com/",
        "https://{{ payload.host }}/",
        "https://hooks{{ payload.x }}/a",
        "https://hooks.example.com{{ payload.x }}/a",
        "https://hooks.example.com:{{ payload.port }}/a",
        "https://{{ payload.user }}@hooks.example.com/a",
        "https:{{ payload.x }}/a",
    ],
)
def test_templates_make_no_host(url: str) -> None:
    with pytest.raises(BadTemplate):
        fixed_url(url)
    (fault,) = validate_target({"url": url})
    assert (fault.pointer, fault.code) == ("/url", "bad_template")
    assert "At character" in fault.detail


def test_templates_do_not_hide_a_bad_url() -> None:
    for url, code in (
        ("http://127.0.0.1/{{ run_key }}", "address_not_public"),
        ("http://a\\b/{{ run_key }}", "invalid"),
        ("http://u@a.example/{{ run_key }}", "user_in_url"),
        ("ftp://a.example/{{ run_key }}", "scheme_not_allowed"),
    ):
        assert [fault.code for fault in validate_target({"url": url})] == [code]
    assert validate_target({"url": "https://a.example?at={{ nominal_at | unix }}"}) == []


# -- in a target ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "pointer"),
    [
        ({"url": URL + "/{{ nope }}"}, "/url"),
        ({"headers": {"X-A": "{{ nope }}"}}, "/headers/X-A"),
        ({"body": "{{ nope }}"}, "/body"),
        ({"body": {"a/b": [1, {"c": "x {{ nope }}"}]}}, "/body/a~1b/1/c"),
    ],
)
def test_faults_are_told_where_they_are_when_saved(part: dict[str, Any], pointer: str) -> None:
    (fault,) = validate_target({"url": URL, **part}, base="/target")
    assert (fault.pointer, fault.code) == ("/target" + pointer, "bad_template")
    assert "There is no 'nope'" in fault.detail and "At character" in fault.detail


def test_a_target_may_have_so_many() -> None:
    assert template_faults({"url": URL, "body": ["{{ run_key }}"] * 100}) == []
    ((pointer, code, _),) = template_faults({"url": URL, "body": ["{{ run_key }}"] * 101})
    assert (pointer, code) == ("", "too_many")


def test_secrets_and_values_are_put_in_at_once() -> None:
    """A payload that looks like a reference, a secret that looks like a template: both are only data."""
    target = {
        "url": URL, "headers": {"Authorization": {"secret": "A", "prefix": "Bearer "}, "X": "{{ payload.x }}"},
        "body": {"own": {"secret": "A"}, "given": "{{ payload }}"},
    }  # fmt: skip
    payload = {"x": "1", "inner": {"secret": "A"}}
    made = filled_target(target, {"payload": payload}, {"A": "{{ run_key }}"})
    assert made["headers"] == {"Authorization": "Bearer {{ run_key }}", "X": "1"}
    assert made["body"] == {"own": "{{ run_key }}", "given": payload}


def test_what_a_header_has_become_is_checked_again() -> None:
    from workers.executors.http_request import make_plan

    target = {"url": URL, "headers": {"X": "{{ payload }}"}}
    for bad in ("a\r\nX-Injected: 1", "a\nb", "a\x00b", "x" * 9_000):
        with pytest.raises(TargetRefused) as refused:
            make_plan(filled_target(target, {"payload": bad}, {}), ())
        assert refused.value.part == "/headers/X"


# -- hostile templates ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "template",
    [
        "{{" * 50_000,
        "{{ " + " " * 200_000,
        "{{ payload" + ".a" * 100_000,
        "{{ payload" + "[" * 100_000,
        '{{ "' + "\\" * 200_000,
        "{{ payload" + " | lower" * 50_000 + " }}",
        "{{ payload" + "|json" * 9 + " }}",
        "{{ run_key }}" * 50_000,
        "{{ '" + "a" * 200_000 + "' }}",
        "{{ payload.x | default(" + "9" * 200_000,
    ],
)
def test_hostile_templates_are_refused_soon(template: str) -> None:
    began = time.process_time()
    with pytest.raises(BadTemplate):
        read_template(template)
    assert time.process_time() - began < 0.2


@pytest.mark.parametrize("body", ["{{ payload.big }}" * 10, ["{{ payload.big }}"] * 10, {"a": ["x{{ payload }}"] * 10}])
def test_what_is_put_in_is_bounded(body: Any) -> None:
    began = time.process_time()
    with pytest.raises(BadTemplate) as bad:
        body_of(body, "text/plain", VALUES, {}, Budget())
    assert f"{MAX_OUTPUT_CHARS:,}" in bad.value.detail
    assert time.process_time() - began < 0.5


def test_only_short_templates_are_remembered() -> None:
    for length, remembered in ((REMEMBERED_MAX_CHARS, True), (REMEMBERED_MAX_CHARS + 1, False)):
        template = "{{ run_key }}".ljust(length, "x")
        assert (read_template(template) is read_template(template)) == remembered


def test_escaping_what_is_escaped_is_bounded() -> None:
    values = {"payload": "\\" * 300_000}
    with pytest.raises(BadTemplate) as bad:
        text("{{ payload" + "|json" * 8 + " }}", values)
    assert f"{MAX_OUTPUT_CHARS:,}" in bad.value.detail


@given(st.text(alphabet="{}| .\"[]()payload_default0\\'", max_size=60))
def test_any_text_is_a_template_or_refused(template: str) -> None:
    for candidate in (template, "{{" + template + "}}", "{{ payload" + template + " }}"):
        try:
            assert isinstance(text(candidate), str)
            read_template(candidate).render(VALUES, write_url_part, Budget())
        except BadTemplate as bad:
            assert bad.position is None or 0 <= bad.position <= len(candidate)
