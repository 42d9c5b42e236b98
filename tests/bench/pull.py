"""Pull queues through the API: lease and complete in batches, against one web process.

python -m tests.bench.pull     (starts its own services)
"""

import base64
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import orjson

RUNS = 5_000
CLIENTS = 2
BATCH = 50


class Client:
    """One connection after another, as a plain worker has it."""

    def __init__(self, port: int, key: str) -> None:
        self.base, self.key = f"http://127.0.0.1:{port}/api/v1/", key

    def post(self, path: str, body: Any) -> Any:
        request = urllib.request.Request(
            self.base + path, method="POST", data=orjson.dumps(body),
            headers={"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=60) as answer:
            return orjson.loads(answer.read())


def work_off(client: Client, leases: list[float], ends: list[float], counts: list[int]) -> None:
    """Leases and completes until nothing is left."""
    done = 0
    while True:
        began = time.perf_counter()
        items = client.post("queues/bench/lease", {"max": BATCH})["items"]
        leases.append(time.perf_counter() - began)
        if not items:
            counts.append(done)
            return
        began = time.perf_counter()
        told = [{"token": item["token"], "result": {"n": 1}} for item in items]
        answers = client.post("queues/leases/settle", {"items": told})["items"]
        ends.append(time.perf_counter() - began)
        assert all(answer["status"] == 200 for answer in answers)
        done += len(items)


def main() -> None:
    from embedded.services import Services

    with tempfile.TemporaryDirectory(prefix="sb") as folder:
        services = Services(Path(folder))
        for part in services.embedded:
            part.start()
        try:
            os.environ.update(services.variables())
            os.environ.setdefault("SECRET_KEY", "bench")
            os.environ.setdefault("SECRETS_KEYS", "k1:" + base64.b64encode(os.urandom(32)).decode())
            os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
            run(Path(folder))
        finally:
            for part in reversed(services.embedded):
                part.stop(timeout_s=10)


def run(folder: Path) -> None:
    import django

    django.setup()
    from django.core.management import call_command

    call_command("tenant_migrate", verbosity=0)
    from apps.dispatch.submission import execution_submit
    from apps.schedules.services import job_create
    from kernel.clock import utc_now
    from tenants import door, provisioning
    from tenants.keys import apikey_create
    from tenants.models import Plan, Tenant
    from tests.fixtures_flow import actor

    plan = Plan.objects.create(name="bench")
    made = provisioning.tenant_create(slug="bench", plan=plan, host="bench.localhost")
    tenant = Tenant.objects.select_related("plan").get(pk=made.pk)
    key = apikey_create(tenant=tenant, name="bench", role="worker")[1]
    now = utc_now()
    job = job_create(
        tenant=tenant, actor=actor(tenant), now=now, data={"name": "bench", "kind": "pull", "queue": "bench"}
    ).job.pk  # fmt: skip
    with door.inside(tenant):
        for _ in range(RUNS):
            execution_submit(tenant=tenant, actor=actor(tenant), data={"job": str(job)}, now=now)
    port = 8765
    command = [sys.executable, "-m", "gunicorn", "config.wsgi:application", "--bind", f"127.0.0.1:{port}"]
    with (folder / "web.log").open("wb") as log:
        web = subprocess.Popen(
            [*command, "--worker-class", "gthread", "--threads", "8", "--no-control-socket"], stdout=log, stderr=log
        )
    try:
        client = Client(port, key)
        for _ in range(200):
            try:
                client.post("queues/bench/lease", {"max": 1, "lease_s": 900})
                break
            except OSError:
                time.sleep(0.1)
        leases: list[float] = []
        ends: list[float] = []
        counts: list[int] = []
        threads = [
            threading.Thread(target=work_off, args=(Client(port, key), leases, ends, counts)) for _ in range(CLIENTS)
        ]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took_s = time.perf_counter() - began
        print(f"{sum(counts)} runs leased and completed in {took_s:.1f} s: {sum(counts) / took_s:.0f}/s")
        print(f"lease of {BATCH}: median {statistics.median(leases) * 1000:.0f} ms")
        print(f"settle of {BATCH}: median {statistics.median(ends) * 1000:.0f} ms")
    finally:
        web.terminate()
        web.wait()


if __name__ == "__main__":
    main()
