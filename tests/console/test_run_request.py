"""The request of a run as a page and a command line tell it: without secrets, and safe to paste whatever is in it."""

from __future__ import annotations

import json
import shlex
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

VALUES: dict[str, Any] = {
    "run_key": "k", "execution_id": "e", "attempt": 1, "nominal_at": None, "trigger": "api", "labels": {},
    "tenant": {"slug": "acme"}, "job": {"id": "j", "name": "n"}, "schedule": None, "payload": None,
}  # fmt: skip
TEXTS = st.text(max_size=40)
JSON = st.recursive(
    st.none() | st.integers() | TEXTS, lambda one: st.lists(one) | st.dictionaries(TEXTS, one), max_leaves=5
)


def sent(target: Any, payload: Any = None) -> Any:
    from apps.console.runs.request import request_of

    return request_of(target, payload, VALUES, run_key="run-1")


def test_secrets_are_left_out_and_named() -> None:
    kept = "@job." + "0" * 32
    found = sent(
        {
            "url": "https://ada:pw@hooks.example.com/a?token=hush&day={{ payload.day }}",
            "headers": {
                "Authorization": "Bearer hush",
                "X-Api-Key": {"secret": kept},
                "X-T": {"secret": "T", "prefix": "a "},
            },
            "auth": {"type": "bearer", "token": {"secret": "API_TOKEN"}},
        },
        {"day": "mon day", "password": "hush", "n": 1},
    )
    assert found.url == "https://***@hooks.example.com/a?token=***&day=mon%20day"
    assert dict(found.headers) == {
        "Authorization": "Bearer <API_TOKEN>", "X-Api-Key": "***", "X-T": "a <T>", "Content-Type": "application/json",
        "Idempotency-Key": "run-1",
    }  # fmt: skip
    assert json.loads(found.body) == {"day": "mon day", "password": "***", "n": 1}
    assert "hush" not in str(found) and kept not in str(found)
    assert any("***" in note for note in found.notes)


def test_the_body_follows_the_rules_of_a_request() -> None:
    assert sent({"url": "https://x", "method": "GET"}, {"a": 1}).body is None
    assert sent({"url": "https://x", "body": "as it is"}, {"a": 1}).body == "as it is"
    typed = sent({"url": "https://x", "body": {"n": "{{ payload.n }}", "t": {"secret": "T"}}}, {"n": 3})
    assert json.loads(typed.body) == {"n": 3, "t": "<T>"}
    broken = sent({"url": "https://x/{{ payload.gone }}"})
    assert "{{ payload.gone }}" in broken.url and "templates" in broken.notes[0]
    assert "@body" in sent({"url": "https://x"}, "y" * 5_000).command
    assert sent({"url": "file:///etc/passwd"}).command == ""
    assert sent({"task": "reports.build"}).command == ""


@given(url=TEXTS, headers=st.dictionaries(TEXTS, TEXTS), body=st.one_of(st.none(), TEXTS, JSON), payload=JSON)
def test_the_command_is_what_it_says_whatever_was_written(url: str, headers: Any, body: Any, payload: Any) -> None:
    found = sent({"url": f"https://x/{url}", "headers": headers, "body": body}, payload)
    assert all(one.isprintable() or one == "\n" for one in found.command)
    words = shlex.split(found.command.replace(" \\\n", " "), comments=True)
    options = iter(words[1:])
    for option in options:
        if option != "--globoff":
            value = next(options)
        assert option in ("--globoff", "--proto", "--request", "--url", "--header", "--data-raw", "--data-binary")
        assert option != "--url" or value.startswith("https://x/")
        assert option != "--header" or not value.startswith("@"), "that would be a file"
