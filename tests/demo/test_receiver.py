"""The demo's receiver: what each target answers, and that it remembers what it was sent."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from demo import processes
from demo.supervisor import Child
from embedded.folder import choose_port

WaitFor = Callable[..., object]
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory, wait_for: WaitFor) -> Iterator[str]:
    port = choose_port(remembered=None)
    env = processes.environment(services={}, keys={}, port=0)
    made = processes.receiver(env, port=port)
    log = tmp_path_factory.mktemp("receiver") / "receiver.log"
    child = Child(name="receiver", command=made.command, environment=made.environment, log=log, cwd=Path.cwd())
    child.start()
    url = f"http://127.0.0.1:{port}"
    wait_for(lambda: answers(url), "the receiver")
    yield url
    child.stop(timeout_s=5)


def answers(url: str) -> bool:
    try:
        return call(f"{url}/hits")[0] == 200
    except OSError:
        return False


def call(url: str, method: str = "GET", body: bytes | None = None, **headers: str) -> tuple[int, dict[str, str], Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data=body, method=method, headers=named)
    try:
        with OPENER.open(request, timeout=10) as answer:
            text = answer.read()
            return answer.status, dict(answer.headers), json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), json.loads(error.read())


@pytest.mark.parametrize(
    ("path", "status"), [("/ok/a/b", 200), ("/fail", 500), ("/gone", 410), ("/slow?s=0", 200), ("/flaky", 503)]
)
def test_each_target_answers_as_promised(receiver: str, path: str, status: int) -> None:
    assert call(receiver + path, "POST", b"{}")[0] == status


def test_flaky_succeeds_at_the_third_attempt(receiver: str) -> None:
    found = [call(f"{receiver}/flaky", "POST", b"", Shardbeat_Attempt=str(number))[0] for number in (1, 2, 3)]
    assert found == [503, 503, 200]
    assert call(f"{receiver}/flaky", "POST", b"")[1]["Retry-After"] == "1"


def test_hits_are_the_latest_requests_with_headers_and_body(receiver: str) -> None:
    call(f"{receiver}/hits", "DELETE")
    call(f"{receiver}/ok/first", "POST", b"one")
    call(f"{receiver}/ok/second", "POST", b"two", Idempotency_Key="key")
    found = call(f"{receiver}/hits")[2]
    assert [hit["path"] for hit in found["hits"]] == ["/ok/second", "/ok/first"]
    assert found["hits"][0]["body"] == "two"
    assert {name.lower(): value for name, value in found["hits"][0]["headers"].items()}["idempotency-key"] == "key"
    narrowed = call(f"{receiver}/hits?path=/ok/first&limit=1")[2]
    assert narrowed["count"] == 1


def test_it_listens_on_loopback_only(receiver: str) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("reads the kernel's list of listeners")
    port = int(receiver.rsplit(":", 1)[1])
    listeners = [
        line.split()[1]
        for path in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in Path(path).read_text().splitlines()[1:]
        if line.split()[3] == "0A" and line.split()[1].endswith(f":{port:04X}")
    ]
    assert listeners == [f"0100007F:{port:04X}"]
