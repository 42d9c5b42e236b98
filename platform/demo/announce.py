"""What `make run` prints once the web answers: addresses, logins, a first request to try, and the first results.

Results come over the REST API with the demo's own keys, so that what is printed is what a tenant would see.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from demo.processes import VAR

LOOK_EVERY_S = 1.0
REQUEST_TIMEOUT_S = 3.0
RESULTS_PER_TENANT = 3
MAKER = "command:demo"  # who asked for what the demo brings along: the name of ACTOR in content.py
PAGE_SIZE = 500
WEB_PATIENCE_S = 60.0
RESULTS_PATIENCE_S = 120.0
SUMMARY_AFTER_S = 60.0  # by then each every-minute schedule ran, and failing ones became dead letters
LOOPBACK_ONLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Announcer:
    """Called a few times a second; does one small thing at a time so that the supervisor stays watchful."""

    def __init__(self, *, say: Callable[[str], None], receiver: str) -> None:
        self._say = say
        self._receiver = receiver
        self._since = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        self._web_started = time.monotonic()
        self._demo: dict[str, Any] = {}
        self._next_look = 0.0
        self._ready_at = 0.0
        self._shown: dict[str, set[str]] = {}
        self._steps: list[Callable[[], bool]] = [
            self._web,
            self._results,
            self._summary,
            self._workflows,
            self._backfill,
        ]

    def look(self) -> None:
        now = time.monotonic()
        if self._steps and now >= self._next_look:
            self._next_look = now + LOOK_EVERY_S
            if self._steps[0]():
                self._steps.pop(0)

    def _web(self) -> bool:
        """Wait for the first answer, then print where everything is."""
        self._demo = json.loads((VAR / "demo.json").read_text())
        try:
            self._executions(self._demo["tenants"][0], state="succeeded")
        except (OSError, ValueError, KeyError) as error:
            if time.monotonic() - self._web_started > WEB_PATIENCE_S:
                self._say(f"The web does not answer yet: {error} (see {VAR / 'log' / 'web.log'})")
                self._web_started = time.monotonic()
            return False
        self._ready_at = time.monotonic()
        self._say(block(self._demo, receiver=self._receiver))
        self._say("\nFirst results:")
        return True

    def _results(self) -> bool:
        """Print runs as they end, some of each tenant."""
        try:
            for tenant in self._demo["tenants"]:
                shown = self._shown.setdefault(tenant["slug"], set())
                for run in reversed(self._executions(tenant, state="succeeded", created_after=self._since)):
                    if run["workflow_run"] is None and run["id"] not in shown and len(shown) < RESULTS_PER_TENANT:
                        shown.add(run["id"])
                        job = self._get(tenant, f"jobs/{run['job']}")
                        self._say(result_line(tenant["slug"], job=job["name"], run=run))
        except (OSError, ValueError, KeyError) as error:
            self._say(f"  no answer: {error}")
        if self._shown and all(len(shown) == RESULTS_PER_TENANT for shown in self._shown.values()):
            return True
        if time.monotonic() - self._ready_at > RESULTS_PATIENCE_S:
            self._say(f"  no more results in {RESULTS_PATIENCE_S:g} s; see the logs in {VAR / 'log'}")
            return True
        return False

    def _summary(self) -> bool:
        """One more line when the failing targets had time to fail for good."""
        if time.monotonic() - self._ready_at < SUMMARY_AFTER_S:
            return False
        try:
            parts = [
                f"{one['slug']} {self._count(one, 'succeeded')} runs succeeded, {self._count(one, 'dead')} dead"
                for one in self._demo["tenants"]
            ]
            self._say("After a minute: " + "; ".join(parts) + ".")
        except (OSError, ValueError, KeyError) as error:
            self._say(f"No answer from the API: {error}")
        return True

    def _workflows(self) -> bool:
        """How the first tenant's workflows ended, once each of them did."""
        first = self._demo["tenants"][0]
        query = urllib.parse.urlencode({"created_after": self._since})
        try:
            names = {one["name"] for one in self._get(first, "workflows?label=source:demo")["items"]}
            runs = self._get(first, f"workflow-runs?{query}")["items"]
        except (OSError, ValueError, KeyError) as error:
            self._say(f"No answer from the API: {error}")
            return True
        ended = {run["workflow_name"]: run for run in reversed(runs) if run["finished_at"] is not None}
        waits = time.monotonic() - self._ready_at < RESULTS_PATIENCE_S + SUMMARY_AFTER_S
        if not names <= ended.keys() and waits:
            return False
        if ended:
            told = "; ".join(workflow_told(run) for _, run in sorted(ended.items()))
            self._say(f"Workflows of {first['slug']}: {told}. All of it: /api/v1/workflow-runs")
        return True

    def _backfill(self) -> bool:
        """How far the first tenant's backfill is; it began when the demo was set up for the first time."""
        first = self._demo["tenants"][0]
        try:
            listed = self._get(first, f"backfills?page_size={PAGE_SIZE}")["items"]
        except (OSError, ValueError, KeyError) as error:
            self._say(f"No answer from the API: {error}")
            return True
        if found := demos_backfill(listed):
            self._say(f"Backfill of {first['slug']}: {backfill_told(found)}. All of it: /api/v1/backfills")
        return True

    def _count(self, tenant: dict[str, str], state: str) -> str:
        """How many since the start, up to one page."""
        number = len(self._executions(tenant, state=state, created_after=self._since))
        return f"{number}{'+' if number == PAGE_SIZE else ''}"

    def _executions(self, tenant: dict[str, str], **filters: str) -> list[dict[str, Any]]:
        query = urllib.parse.urlencode({"page_size": str(PAGE_SIZE), **filters})
        items: list[dict[str, Any]] = self._get(tenant, f"executions?{query}")["items"]
        return items

    def _get(self, tenant: dict[str, str], path: str) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{self._demo['base_url']}/api/v1/{path}", headers={"Authorization": f"Bearer {tenant['api_key']}"}
        )
        with LOOPBACK_ONLY.open(request, timeout=REQUEST_TIMEOUT_S) as answer:
            found: dict[str, Any] = json.load(answer)
        return found


def block(demo: dict[str, Any], *, receiver: str) -> str:
    """The text with every address and login."""
    base, admin, first = demo["base_url"], demo["admin"], demo["tenants"][0]
    port = urllib.parse.urlsplit(base).port
    tenants = "\n".join(
        f"  tenant {tenant['slug']:<8} http://{tenant['host']}:{port}   key {tenant['api_key']}{_console(tenant)}"
        for tenant in demo["tenants"]
    )
    return f"""
Shardbeat runs. Ctrl-C stops it; the data stays in var/.

  operators       {admin["url"]}   {admin["username"]} / {admin["password"]}{_operators(demo)}
  API             {base}/api/v1   to try it: {base}/api/v1/docs
{tenants}
  receiver        {receiver}/hits   what the jobs' target saw
  for programs    var/demo.json      logs: var/log/

  curl -H 'Authorization: Bearer {first["api_key"]}' '{base}/api/v1/executions?page_size=5'"""


def _operators(demo: dict[str, Any]) -> str:
    """Those who may less than all, one a line."""
    return "".join(
        f"\n{'':18}{one['role']:<10} {one['username']} / {one['password']}" for one in demo.get("operators", ())
    )


def _console(tenant: dict[str, Any]) -> str:
    """The logins of a tenant's console, one a line."""
    logins = tenant.get("console", ())
    lines = [f"\n{'':18}console login {login['email']} / {login['password']}" for login in logins]
    return "".join(lines)


def result_line(slug: str, *, job: str, run: dict[str, Any]) -> str:
    """`12:00:00  acme      succeeded  refresh-cache, attempt 1`, in UTC."""
    return f"  {str(run['finished_at'])[11:19]}  {slug:<8} {run['state']}  {job}, attempt {run['attempt_count']}"


def workflow_told(run: dict[str, Any]) -> str:
    """`export-orders failed (The step upload failed: ...)`."""
    why = (run["error"] or {}).get("message")
    return f"{run['workflow_name']} {run['state']}" + (f" ({why.rstrip('.')})" if why else "")


def demos_backfill(listed: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The one that the demo asked for; people who try it ask for others."""
    return next((one for one in listed if one["created_by"] == MAKER), None)


def backfill_told(found: dict[str, Any]) -> str:
    """`completed, 24 of 24 occurrences from 2026-11-29T09:00 to 2026-11-30T09:00 succeeded`."""
    since, until = (str(found[name])[:16] for name in ("from", "to"))
    done = f"{found['counts']['succeeded']} of {found['planned']} occurrences from {since} to {until} succeeded"
    return f"{found['state']}, {done}"
