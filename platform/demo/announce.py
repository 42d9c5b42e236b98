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
from typing import Any

from demo.processes import VAR

LOOK_EVERY_S = 1.0
REQUEST_TIMEOUT_S = 3.0
RESULTS_PER_TENANT = 3
WEB_PATIENCE_S = 60.0
RESULTS_PATIENCE_S = 120.0
SUMMARY_AFTER_S = 60.0  # by then each every-minute schedule ran, and failing ones became dead letters
LOOPBACK_ONLY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Announcer:
    """Called a few times a second; does one small thing at a time so that the supervisor stays watchful."""

    def __init__(self, *, say: Callable[[str], None], receiver: str, started: float) -> None:
        self._say = say
        self._receiver = receiver
        self._started = started
        self._demo: dict[str, Any] = {}
        self._next_look = 0.0
        self._ready_at = 0.0
        self._shown: dict[str, set[str]] = {}
        self._steps: list[Callable[[], bool]] = [self._web, self._results, self._summary]

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
            if time.monotonic() - self._started > WEB_PATIENCE_S:
                self._say(f"The web does not answer yet: {error} (see {VAR / 'log' / 'web.log'})")
                self._started = time.monotonic()
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
                for run in reversed(self._executions(tenant, state="succeeded")):
                    if run["id"] not in shown and len(shown) < RESULTS_PER_TENANT:
                        shown.add(run["id"])
                        self._say(result_line(tenant["slug"], run))
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
                f"{tenant['slug']}: {len(self._executions(tenant, state='succeeded'))} latest runs succeeded,"
                f" {len(self._executions(tenant, state='dead'))} dead letters"
                for tenant in self._demo["tenants"]
            ]
            self._say("After a minute: " + "; ".join(parts) + ".")
        except (OSError, ValueError, KeyError) as error:
            self._say(f"No answer from the API: {error}")
        return True

    def _executions(self, tenant: dict[str, str], **filters: str) -> list[dict[str, Any]]:
        query = urllib.parse.urlencode({"page_size": "100", **filters})
        request = urllib.request.Request(
            f"{self._demo['base_url']}/api/v1/executions?{query}",
            headers={"Authorization": f"Bearer {tenant['api_key']}"},
        )
        with LOOPBACK_ONLY.open(request, timeout=REQUEST_TIMEOUT_S) as answer:
            items: list[dict[str, Any]] = json.load(answer)["items"]
        return items


def block(demo: dict[str, Any], *, receiver: str) -> str:
    """The text with every address and login."""
    base, admin, first = demo["base_url"], demo["admin"], demo["tenants"][0]
    port = urllib.parse.urlsplit(base).port
    tenants = "\n".join(
        f"  tenant {tenant['slug']:<8} http://{tenant['host']}:{port}   key {tenant['api_key']}"
        for tenant in demo["tenants"]
    )
    return f"""
Shardbeat runs. Ctrl-C stops it; the data stays in var/.

  operators       {admin["url"]}   {admin["username"]} / {admin["password"]}
  API             {base}/api/v1   described at {base}/api/v1/schema
{tenants}
  receiver        {receiver}/hits   what the jobs' target saw
  for programs    var/demo.json      logs: var/log/

  curl -H 'Authorization: Bearer {first["api_key"]}' '{base}/api/v1/executions?page_size=5'"""


def result_line(slug: str, run: dict[str, Any]) -> str:
    """`12:00:00  acme  succeeded  refresh-cache (attempt 1)`; the fields are the API's."""
    ended = str(run.get("finished_at") or "")[11:19]
    job = run.get("job")
    name = job.get("name") if isinstance(job, dict) else job
    return f"  {ended}  {slug:<8} {run['state']}  {name}, attempt {run.get('attempt_count')}"
