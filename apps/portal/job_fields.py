"""The form of a job: an HTTP call in fields, any other target as JSON; and back to what the service reads.

Credentials are shown as three stars, and three stars that come back keep what is there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from apps.presenting.fields import Field, Form, Option, choices, typed
from apps.presenting.json_input import read_json
from apps.presenting.schedule_fields import labels_of
from apps.schedules.job_input import KINDS
from apps.schedules.retry import DEFAULTS
from kernel.errors import Faults, InvalidInput

METHODS = ("POST", "GET", "PUT", "PATCH", "DELETE", "HEAD")
METHOD_OPTIONS = (Option("", "POST, as usual"), *(Option(one, one) for one in METHODS))
SIMPLE = {"url", "method", "headers"}  # what the fields can say of an HTTP target
NUMBERS = ("timeout_s", "max_queue_age_s", "total_timeout_s", "priority", "max_concurrency")
RETRY_NUMBERS = ("max_attempts", "base_s", "max_s")
MODES = (Option("http", "HTTP call"), Option("json", "Anything else, as JSON"))
TARGET_HELP = (
    'Such as {"task": "shardbeat.noop"} for python, {"image": "...", "command": [...]} for container, '
    '{"url": "...", "auth": {...}} for http. {"secret": "NAME"} stands for a secret\'s value.'
)
HEADERS_HELP = "One a line, such as X-Team: billing. Credentials are kept encrypted."
PAYLOAD_HELP = "JSON. What is sent when neither schedule nor submission has one."
KEY_HELP = (
    "A label's name, such as customer, or a place in the payload, such as /customer/id. Without it there is no limit."
)
RATE_HELP = "Starts in that time; what is more waits. Empty: any number."
KEY_OPTIONS = (Option("", "no key"), Option("label", "a label"), Option("payload", "a place in the payload"))
PLACES = {"retry": "max_attempts"}


def job_form() -> Form:
    """Empty, with the defaults."""
    return Form([
        Field("name", "Name", required=True),
        Field("mode", "What it calls", "radio", "http", options=MODES),
        Field("url", "URL", help="Where to. The call carries the payload as JSON, and is signed."),
        Field("method", "Method", "select", options=METHOD_OPTIONS),
        Field("headers", "Headers", "area", rows=2, help=HEADERS_HELP),
        Field("kind", "Kind", "select", "http", options=choices(KINDS)),
        Field("target", "Target", "code", rows=7, help=TARGET_HELP),
        Field("queue", "Queue", help="Only for kind pull: the queue that your workers lease from."),
        Field("payload", "Payload", "code", rows=4, help=PAYLOAD_HELP),
        Field("timeout_s", "Time-out of an attempt", "number", "60", unit="s"),
        Field("max_attempts", "Tries", "number", str(DEFAULTS["max_attempts"])),
        Field("backoff", "Wait between tries", "select", "exponential", options=choices(("exponential", "fixed"))),
        Field("base_s", "First wait", "number", str(DEFAULTS["base_s"]), unit="s"),
        Field("max_s", "Longest wait", "number", str(DEFAULTS["max_s"]), unit="s"),
        Field("priority", "Priority", "number", "5", help="0 to 9, 9 first."),
        Field("max_concurrency", "At once", "number", help="Empty: any number."),
        Field("key_by", "At once for each value of", "select", options=KEY_OPTIONS),
        Field("key_name", "Which one", help=KEY_HELP),
        Field("key_max", "At once of one value", "number", "1"),
        Field("rate_runs", "Starts at most", "number", help=RATE_HELP),
        Field("rate_per_s", "Within", "number", "60", unit="s"),
        Field("rate_burst", "Of these at once", "number", help="After a pause. Empty: a tenth."),
        Field("max_queue_age_s", "Expire when not started after", "number", unit="s"),
        Field("total_timeout_s", "Time for all tries", "number", unit="s"),
        Field("labels", "Labels", "area", rows=2, help="One a line, such as team: billing."),
        Field("external_id", "External id", help="Your own id for it, such as its name in your repository."),
        Field("revision", "Revision", "hidden"),
    ])  # fmt: skip


def fill(form: Form, shape: Mapping[str, Any]) -> None:
    """From a job as the API answers it: masked."""
    for name in ("name", "kind", "queue", "external_id", *NUMBERS):
        value = shape.get(name)
        form[name].value = "" if value is None else str(value)
    target = shape["target"] if isinstance(shape["target"], Mapping) else {}
    headers = target.get("headers") or {}
    plain = all(isinstance(value, str) and "\n" not in value for value in headers.values())
    simple = shape["kind"] == "http" and set(target) <= SIMPLE and isinstance(target.get("url"), str) and plain
    form["mode"].value = "http" if simple else "json"
    form["target"].value = json.dumps(target, indent=2, ensure_ascii=False)
    if simple:
        form["url"].value, form["method"].value = target["url"], target.get("method") or ""
        form["headers"].value = "\n".join(f"{name}: {value}" for name, value in headers.items())
    _fill_limits(form, shape.get("concurrency_key"), shape.get("rate_limit"))
    retry = {**DEFAULTS, **shape["retry"]}
    for name in (*RETRY_NUMBERS, "backoff"):
        form[name].value = typed(retry[name])
    payload = shape.get("payload")
    form["payload"].value = "" if payload is None else json.dumps(payload, indent=2, ensure_ascii=False)
    form["labels"].value = "\n".join(f"{name}: {value}" for name, value in (shape.get("labels") or {}).items())


def definition_of(form: Form, *, retry: Mapping[str, Any]) -> dict[str, Any]:
    """What the service reads; `retry` is the policy until now, whose other members stay. InvalidInput."""
    faults = Faults()
    data: dict[str, Any] = {"name": form.text("name"), "kind": "http", "target": _http(form, faults)}
    if form.text("mode") != "http":
        data |= {"kind": form.text("kind"), "target": _json(form, "target", faults)}
        if form.text("queue"):
            data["queue"] = form.text("queue")
    data["payload"] = _json(form, "payload", faults)
    for name in NUMBERS:
        if form.text(name):
            data[name] = _number(form, name, faults)
    data |= _limits(form, faults)
    data["retry"] = {**retry, "backoff": form.text("backoff")}
    for name in RETRY_NUMBERS:
        if form.text(name):
            data["retry"][name] = _number(form, name, faults)
    data["labels"] = labels_of(form, faults)
    if form.text("external_id"):
        data["external_id"] = form.text("external_id")
    faults.raise_if_any()
    return data


def places_of(form: Form) -> dict[str, str]:
    """Where faults belong that are about members of another name."""
    limits = {"concurrency_key": "key_name", "rate_limit": "rate_runs"}
    return {**PLACES, **limits, "target": "url" if form.text("mode") == "http" else "target"}


def _fill_limits(form: Form, key: Mapping[str, Any] | None, rate: Mapping[str, Any] | None) -> None:
    if key:
        by = "label" if "label" in key else "payload"
        form["key_by"].value, form["key_name"].value, form["key_max"].value = by, key[by], str(key["max"])
    if rate:
        for name in ("runs", "per_s", "burst"):
            form[f"rate_{name}"].value = str(rate[name])


def _limits(form: Form, faults: Faults) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if form.text("key_by"):
        key = {form.text("key_by"): form.text("key_name") or None}
        found["concurrency_key"] = {
            **key,
            **({"max": _number(form, "key_max", faults)} if form.text("key_max") else {}),
        }
    elif form.text("key_name"):
        faults.add("/concurrency_key", "required", "Say before it whether this is a label or a place in the payload.")
    if form.text("rate_runs"):
        given = [name for name in ("runs", "per_s", "burst") if form.text(f"rate_{name}")]
        found["rate_limit"] = {name: _number(form, f"rate_{name}", faults) for name in given}
    elif form.text("rate_burst"):
        faults.add("/rate_limit", "required", "Say how many start in that time, too.")
    return found


def _http(form: Form, faults: Faults) -> dict[str, Any]:
    target: dict[str, Any] = {"url": form.text("url")}
    if form.text("method"):
        target["method"] = form.text("method")
    headers: dict[str, str] = {}
    for line in form.text("headers").splitlines() if form.text("mode") == "http" else ():
        name, colon, value = line.partition(":")
        if line.strip() and not colon:
            faults.add("/headers", "type", f"{line.strip()[:60]!r} is none: write Name: value.")
        elif line.strip():
            headers[name.strip()] = value.strip()
    return {**target, **({"headers": headers} if headers else {})}


def _json(form: Form, name: str, faults: Faults) -> Any:
    try:
        return read_json(form, name)
    except InvalidInput as error:
        faults.errors += error.errors
        return None


def _number(form: Form, name: str, faults: Faults) -> float | int | None:
    text = form.text(name)
    if text.isascii() and len(text) < 16:
        try:
            return int(text) if text.isdigit() else float(text)
        except ValueError:
            pass
    faults.add(f"/{name}", "type", "must be a number.")
    return None
