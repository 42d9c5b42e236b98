"""Browsers of operators, and rows to look at."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest

if TYPE_CHECKING:
    from django.test import Client

# The trail holds an operator's number, and their name only in cipher.
WHO = "coalesce((SELECT 'admin:' || username FROM auth_user WHERE 'user:' || id = subject), actor)"
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202e&\"'"


class Strict(HTMLParser):
    """Collects what `script-src 'self'; style-src 'self'` forbids in a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "style" or (tag == "script" and "src" not in given and given.get("type") != "application/json"):
            self.found.append(self.get_starttag_text() or tag)
        for name, value in attrs:
            where = (value or "").strip().lower()
            outside = name in ("src", "href") and where.startswith(("javascript:", "data:", "http:", "//"))
            if name == "style" or name.startswith("on") or outside:
                self.found.append(self.get_starttag_text() or tag)


class Named(HTMLParser):
    """Collects fields without a label and links without a text: who does not see the page can't tell what they are."""

    def __init__(self) -> None:
        super().__init__()
        self._labels: set[str] = set()
        self._fields: list[tuple[str, str]] = []  # id, tag
        self._within = 0  # labels
        self._link: tuple[str, bool] | None = None  # the open one, and whether it has a name
        self._links: list[str] = []

    @property
    def found(self) -> list[str]:
        return [*(tag for key, tag in self._fields if key not in self._labels), *self._links]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given, text = dict(attrs), self.get_starttag_text() or tag
        named = any(given.get(name) for name in ("aria-label", "aria-labelledby", "title"))
        if tag == "label":
            self._within += 1
            self._labels.add(given.get("for") or "")
        elif tag in ("input", "select", "textarea") and given.get("type") not in ("hidden", "submit", "button"):
            stock = given.get("class") in ("vDateField", "vTimeField")  # Django's own two halves of an instant
            if not named and not self._within and not stock:
                self._fields.append((given.get("id") or "", text))
        elif tag == "a" and "href" in given:
            self._link = (text, named)
        elif tag == "img" and given.get("alt") and self._link:
            self._link = (self._link[0], True)

    def handle_data(self, data: str) -> None:
        if self._link and data.strip():
            self._link = (self._link[0], True)

    def handle_endtag(self, tag: str) -> None:
        if tag == "label":
            self._within -= 1
        elif tag == "a" and self._link:
            self._links += [] if self._link[1] else [self._link[0]]
            self._link = None


@pytest.fixture(autouse=True)
def no_snapshot() -> Iterator[None]:
    """What this process knows of the platform is of the test before."""
    yield
    from apps.console.snapshot import store

    store.kept.forget()


@pytest.fixture
def operator(database: None) -> Any:
    """A superuser."""
    from django.contrib.auth.models import User

    return User.objects.create_superuser("ada", password="not a word")


@pytest.fixture
def browser(operator: Any) -> Callable[..., Client]:
    """Makes a browser that is logged in, on the public host. Each page it gets is held against the strict policy."""
    return lambda: logged_in(operator)


@pytest.fixture
def page(browser: Any) -> Client:
    """One such browser."""
    client: Client = browser()
    return client


@pytest.fixture
def stranger(database: None) -> Client:
    """A browser of nobody."""
    client: Client = careful_client()
    return client


def operator_of(role: str, login: str = "") -> Any:
    """A new operator who has this role and no other; none where there is no such role. Called as it unless told."""
    from django.contrib.auth.models import Group, User

    user = User.objects.create_user(login or role, is_staff=True)
    user.groups.set(Group.objects.filter(name=role))
    return user


def tick(client: Any, path: str, verb: str, ids: Iterable[Any], *, reason: str = "to see") -> Any:
    """Ticks rows of a table, looks at what the verb would do, and does it; returns the receipt."""
    looked = client.post(path, {"action": verb, "_selected_action": [str(one) for one in ids]})
    return client.post(do_many(looked), {**hidden_of(looked), "reason": reason})


def do_many(looked: Any) -> str:
    """Where the form of a page about several rows sends it."""
    text = looked.content.decode()
    found = re.search(r'<form method="post" action="([^"]+)" class="verb-form"', text)
    assert found is not None, (looked.status_code, text)
    return found[1]


def save(client: Any, path: str, data: dict[str, Any]) -> Any:
    """Opens a row's form, and saves it with these values."""
    return client.post(path, {**hidden_of(client.get(path)), **data})


def hidden_of(page: Any) -> dict[str, str]:
    """What the form of a page says of what it was made of."""
    return dict(re.findall(r'<input type="hidden" name="(_?seen)" value="([^"]*)"', page.content.decode()))


def logged_in(user: Any) -> Client:
    """A browser of somebody."""
    client: Client = careful_client()
    client.force_login(user)
    return client


def careful_client() -> Any:
    """A browser without a login."""
    from django.test import Client

    class CarefulClient(Client):
        """Fails on a page that the browser's policy would not allow, and on a schema that was not put back."""

        def request(self, **request: Any) -> Any:
            from django.db import connection
            from django.urls import get_script_prefix

            response: Any = super().request(**request)
            assert connection.schema_name == "public"  # type: ignore[attr-defined]  # django-tenants' own
            assert get_script_prefix() == "/"
            if "text/html" in response.headers.get("Content-Type", ""):
                policy = response.headers["Content-Security-Policy"]
                assert "script-src 'self'" in policy and "style-src 'self'" in policy
                if response.status_code != 500:  # Django's own page of a failure is not ours
                    strict = Strict()
                    strict.feed(response.content.decode())
                    assert not strict.found, f"{request['PATH_INFO']}: {strict.found}"
                    named = Named()
                    named.feed(response.content.decode())
                    assert not named.found, f"{request['PATH_INFO']}: {named.found}"
            return response

    return CarefulClient(raise_request_exception=False)


@pytest.fixture
def history(conn: psycopg.Connection[Any]) -> Iterator[Callable[..., UUID]]:
    """Makes a job with a hostile name, and an execution of it, in a tenant; returns the execution's id."""
    from kernel.clock import utc_now
    from kernel.ids import attempt_id, uuid7

    def make(tenant: Any, *, state: str = "succeeded", name: str = HOSTILE, payload: str = '{"a": 1}') -> UUID:
        now, job, execution = utc_now(), uuid7(), uuid7()
        schema = tenant.schema_name
        conn.execute(
            f"INSERT INTO {schema}.schedules_job (id, name, kind, version, revision, paused_reason, labels, created_at,"
            " updated_at) VALUES (%s, %s, 'http', 1, 1, '', '{}', %s, %s)",
            [job, f"{name} {job}"[:200], now, now],
        )
        conn.execute(
            f"INSERT INTO {schema}.schedules_jobversion (job_id, version, target, timeout_s, retry, priority, queue,"
            " created_at) VALUES (%s, 1, %s, 60, '{}', 5, '', %s)",
            [job, '{"url": "https://x", "headers": {"Authorization": "Bearer hush", "X-A": "seen"}}', now],
        )
        conn.execute(
            f"INSERT INTO {schema}.executions_execution (id, run_key, job_id, job_version, trigger, state, priority,"
            " actual_at, created_at, finished_at, attempt_count, reason, count, fired_by, payload, error)"
            " VALUES (%s, %s, %s, 1, 'api', %s, 5, %s, %s, %s, 1, '', 1, %s, %s, %s)",
            [execution, execution.hex, job, state, now, now, now, name[:80], payload, '{"message": "</pre><b>"}'],
        )
        conn.execute(
            f"INSERT INTO {schema}.executions_attempt (id, execution_id, number, fence, state, started_at, finished_at)"
            " VALUES (%s, %s, 1, 1, 'succeeded', %s, %s)",
            [attempt_id(execution, 1), execution, now, now],
        )
        conn.execute(
            f"INSERT INTO {schema}.deadletters_deadletter (id, execution_id, job_id, fingerprint, error, attempts,"
            " created_at, resolution, note, resolved_by) VALUES (%s, %s, %s, %s, '{}', 1, %s, '', '', '')",
            [uuid7(), execution, job, "f" * 64, now],
        )
        return execution

    yield make
