"""Bodies in chunks, through the server that is used and past it."""

from __future__ import annotations

import io
import json
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.api.makers import JOB, Makers
from tests.fixtures_api import Api
from tests.fixtures_people import People

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 30


@pytest.fixture
def server(api: Api, process_env: dict[str, str], tmp_path: Path, wait_for: Callable[..., object]) -> Iterator[int]:
    """The port of a gunicorn that serves this test's database."""
    log = tmp_path / "gunicorn.log"
    command = [sys.executable, "-m", "gunicorn", "config.wsgi:application", "--bind", "127.0.0.1:0", "--worker-class",
               "gthread", "--threads", "2", "--no-control-socket"]  # fmt: skip
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, cwd=ROOT, env=process_env, stdout=file, stderr=file,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    try:
        pattern = re.compile(r"Listening at: http://127\.0\.0\.1:(\d+)")
        found: Any = wait_for(lambda: pattern.search(log.read_text()), "gunicorn to listen")
        yield int(found[1])
    finally:
        process.terminate()
        process.wait(WAIT_S)


def chunked(port: int, key: str | None, method: str, path: str, body: bytes, **headers: str) -> tuple[int, Any]:
    line = HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    try:
        pieces = [body[at : at + 100_000] for at in range(0, len(body), 100_000)]
        sent = {"Host": "127.0.0.1", "Content-Type": "application/json", "Authorization": f"Bearer {key}", **headers}
        line.request(method, f"/api/v1/{path}", body=iter(pieces), headers=sent, encode_chunked=True)
        answer = line.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        line.close()


def test_bodies_in_chunks_are_read_by_the_server_that_is_used(
    server: int, api: Api, make: Makers, acme_people: People
) -> None:
    job = make.job()
    path = f"jobs/{job['id']}"
    status, changed = chunked(server, api.key, "PATCH", path, b'{"timeout_s": 7}', **{"If-Match": "*"})
    assert (status, changed["timeout_s"]) == (200, 7)
    status, made = chunked(server, api.key, "POST", "jobs", json.dumps({**JOB, "payload": "x" * 250_000}).encode())
    assert (status, len(made["payload"])) == (201, 250_000)
    status, problem = chunked(server, api.key, "POST", "jobs", b'{"name": "' + b"x" * 2_200_000 + b'"}')
    assert (status, problem["code"]) == (413, "body_too_large")
    status, problem = chunked(server, api.key, "POST", "jobs", b"")
    assert (status, problem["code"]) == (400, "invalid")
    with socket.create_connection(("127.0.0.1", server), timeout=WAIT_S) as line:
        line.sendall(
            b"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nnot a length\r\n{}\r\n"
        )
        assert b" 400 " in line.recv(1_000).partition(b"\r\n")[0]


class Pieces(io.BytesIO):
    """Gives less than it is asked for."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(size or 0, 7))


def sent(method: str, path: str, raw: bytes, key: str | None, **environ: Any) -> tuple[int, Any]:
    """One request past the test client, which always announces a length."""
    from django.core.handlers.wsgi import WSGIHandler

    seen: list[str] = []
    given = {
        "REQUEST_METHOD": method, "PATH_INFO": f"/api/v1/{path}", "SERVER_NAME": "testserver", "SERVER_PORT": "80",
        "wsgi.input": Pieces(raw), "wsgi.url_scheme": "http", "CONTENT_TYPE": "application/json",
        "HTTP_AUTHORIZATION": f"Bearer {key}", "HTTP_TRANSFER_ENCODING": "chunked", "HTTP_IF_MATCH": "*", **environ,
    }  # fmt: skip

    def start(status: str, headers: Any, *_: Any) -> Any:
        seen.append(status)

    answer = WSGIHandler()(given, start)
    try:
        body = b"".join(answer)
    finally:
        answer.close()
    return int(seen[0][:3]), json.loads(body)


def test_a_body_whose_end_nobody_knows_is_refused(api: Api, make: Makers) -> None:
    path = f"jobs/{make.job()['id']}"
    status, problem = sent("PATCH", path, b'{"timeout_s": 7}', api.key)
    assert (status, problem["code"]) == (411, "length_required")
    status, changed = sent("PATCH", path, b'{"timeout_s": 7}', api.key, **{"wsgi.input_terminated": True})
    assert (status, changed["timeout_s"]) == (200, 7)
    whole = {"wsgi.input": io.BytesIO(b'{"timeout_s": 8}')}
    status, changed = sent("PATCH", path, b"", api.key, CONTENT_LENGTH="16", **whole)
    assert (status, changed["timeout_s"]) == (200, 8)


def test_a_form_in_chunks_is_read_by_django_too() -> None:
    from django.core.handlers.wsgi import WSGIRequest

    from apps.api.bodies import take_in

    request = WSGIRequest({
        "REQUEST_METHOD": "POST", "PATH_INFO": "/", "wsgi.input": Pieces(b"a=1&b=two+words"),
        "wsgi.input_terminated": True,
        "HTTP_TRANSFER_ENCODING": "chunked", "CONTENT_TYPE": "application/x-www-form-urlencoded",
    })  # fmt: skip
    take_in(request)
    assert request.POST.dict() == {"a": "1", "b": "two words"}


def test_what_a_server_loads_is_frozen_for_the_collector(process_env: dict[str, str]) -> None:
    program = "import config.wsgi, gc; print(gc.get_freeze_count())"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env={**process_env, "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}"},
        capture_output=True, text=True, check=True, timeout=WAIT_S * 2,
    )  # fmt: skip
    assert int(done.stdout.split()[-1]) > 50_000
