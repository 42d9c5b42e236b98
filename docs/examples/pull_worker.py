"""A worker for a pull queue, with nothing but Python's standard library.

    SHARDBEAT_KEY=sb_... python pull_worker.py http://127.0.0.1:8000 invoices my_module:work --threads 4

`work(run, lease)` gets the run as the API gives it (`run["payload"]`, `run["run_key"]`, ...). What it returns is the
result. What it raises is a failure that may be tried again; `GiveUp` is one for good. Long work looks at
`lease.stopping` now and then, which is set when the run was cancelled or the lease is lost or given back, and may call
`lease.progress({...})`. SIGTERM lets the running work end for GRACE_S and gives the rest back.
"""

import argparse
import importlib
import json
import os
import signal
import socket
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

LEASE_S = 60
WAIT_S = 25  # how long one request waits for work
GRACE_S = 20
AGAIN_S = 2  # after an error of the network or of the server


class GiveUp(Exception):
    """Raised by work that must not be tried again."""


class Refused(Exception):
    """The server's no: a lease that is over (409), a body that it can't take (400), a key that may not (403)."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"{status} {detail}")
        self.status = status


class Api:
    """Calls that are sent again until they are answered: everything here may be said twice."""

    def __init__(self, base: str, key: str, stopped: threading.Event) -> None:
        self.base, self.key, self.stopped = base.rstrip("/") + "/api/v1/", key, stopped

    def post(self, path: str, body: Any, *, patient: bool = True) -> Any:
        request = urllib.request.Request(
            self.base + path,
            method="POST",
            data=json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"},
        )
        while True:
            try:
                with urllib.request.urlopen(request, timeout=WAIT_S + 15) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code < 500 and error.code != 429:
                    raise Refused(error.code, error.read().decode(errors="replace")) from None
                wait_s = float(error.headers.get("Retry-After") or AGAIN_S)
            except OSError:
                wait_s = AGAIN_S
            if not patient and self.stopped.is_set():
                raise Refused(0, "stopped")
            self.stopped.wait(wait_s) if not self.stopped.is_set() else threading.Event().wait(wait_s)


class Lease:
    """One run that is ours for now; a thread keeps it so."""

    def __init__(self, api: Api, run: dict[str, Any]) -> None:
        self.run = run
        self.stopping = threading.Event()
        self._api, self._path = api, f"queues/leases/{run['token']}/"
        self._ended = threading.Event()
        self._told: Any = None
        self._beats = threading.Thread(target=self._beat, daemon=True)
        self._beats.start()

    def progress(self, value: Any) -> None:
        """Shown with the execution from the next heartbeat on."""
        self._told = value

    def end(self, how: str, body: Any) -> None:
        """complete, fail or release. An attempt that is over by now is nobody's business any more."""
        self._ended.set()
        self._beats.join()
        try:
            self._api.post(self._path + how, body)
        except Refused as refused:
            print(f"{self.run['execution']}: {refused}", file=sys.stderr)
            if how == "complete" and refused.status == 400:  # too large, or not JSON that can be stored
                error = {"class": "ResultRefused", "message": "The result was refused; see the worker's log."}
                self.end("fail", {"error": error, "retryable": False})

    def _beat(self) -> None:
        while not self._ended.wait(LEASE_S / 3):
            body = {} if self._told is None else {"progress": self._told}
            try:
                if self._api.post(self._path + "heartbeat", body)["cancel_requested"]:
                    self.stopping.set()
            except Refused:
                self.stopping.set()
                return


Work = Callable[[dict[str, Any], Lease], Any]


def work_off(api: Api, queue: str, work: Work, stopped: threading.Event, held: set[Lease]) -> None:
    """One thread: lease, work, say how it ended; until `stopped`."""
    name = f"{socket.gethostname()}:{os.getpid()}"
    while not stopped.is_set():
        try:
            wish = {"max": 1, "wait_s": WAIT_S, "lease_s": LEASE_S, "worker": name}
            runs = api.post(f"queues/{queue}/lease", wish, patient=False)["items"]
        except Refused as refused:
            print(f"no work: {refused}", file=sys.stderr)
            stopped.wait(AGAIN_S)
            continue
        for run in runs:
            lease = Lease(api, run)
            held.add(lease)
            if stopped.is_set():
                lease.end("release", {})
            else:
                lease.end(*outcome(work, run, lease))
            held.discard(lease)


def outcome(work: Work, run: dict[str, Any], lease: Lease) -> tuple[str, Any]:
    """What the work's end means for the API."""
    try:
        result = work(run, lease)
        json.dumps(result)
        return "complete", {"result": result}
    except GiveUp as error:
        return "fail", {"error": {"class": "GiveUp", "message": str(error)[:500] or "given up"}, "retryable": False}
    except Exception as error:
        return "fail", {"error": {"class": type(error).__name__, "message": str(error)[:500] or "no message"}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("url")
    parser.add_argument("queue")
    parser.add_argument("work", help="module:function")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    module, _, function = options.work.partition(":")
    sys.path.insert(0, os.getcwd())
    work = getattr(importlib.import_module(module), function)

    stopped = threading.Event()
    held: set[Lease] = set()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    api = Api(options.url, os.environ["SHARDBEAT_KEY"], stopped)
    threads = [
        threading.Thread(target=work_off, args=(api, options.queue, work, stopped, held), daemon=True)
        for _ in range(options.threads)
    ]
    for thread in threads:
        thread.start()
    while not stopped.wait(1):
        pass
    deadline = threading.Event()
    for _ in range(GRACE_S * 10):
        if not held:
            break
        deadline.wait(0.1)
    for lease in list(held):  # work that does not look goes on for a moment: whoever leases it next must bear that
        lease.end("release", {})
        lease.stopping.set()


if __name__ == "__main__":
    main()
