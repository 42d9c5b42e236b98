"""Clients that others' generators make from the document: they compile, and their calls work."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from apps.api.renderers import encode
from tests.api.makers import NOWHERE
from tests.api.test_bodies import server as server
from tests.fixtures_api import Api

PACKAGE = "shardbeat_generated_client"
SOURCES = Path(__file__).parent / "typescript"
# The generator knows neither JSON lines nor pictures.
CONFIG = {"content_type_overrides": dict.fromkeys(("application/x-ndjson", "image/svg+xml"), "text/plain")}
NPM_S = 300


@pytest.fixture
def document_file(tmp_path: Path) -> Path:
    """The document as it is served, in a file."""
    from apps.api.openapi import openapi_document

    found = tmp_path / "openapi.json"
    found.write_bytes(encode(openapi_document()))
    return found


@pytest.fixture
def generated(document_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The package that openapi-python-client makes of the document; a warning of it is a failure."""
    program = Path(sys.executable).parent / "openapi-python-client"
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    subprocess.run(
        [program, "generate", "--path", document_file, "--output-path", tmp_path / PACKAGE, "--meta", "none",
         "--fail-on-warning", "--config", tmp_path / "config.json"],
        check=True, timeout=60, env={**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"},
    )  # fmt: skip
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module(PACKAGE)
    for name in [one for one in sys.modules if one.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def test_a_generated_python_client(generated: ModuleType, api: Api) -> None:
    import httpx
    from django.core.handlers.wsgi import WSGIHandler

    modules = list(pkgutil.walk_packages(generated.__path__, f"{PACKAGE}."))
    assert len(modules) > 150
    for one in modules:
        importlib.import_module(one.name)

    def call(name: str, **arguments: Any) -> Any:
        module = importlib.import_module(f"{PACKAGE}.api.{name}")
        return module.sync(client=client, **arguments)

    models = importlib.import_module(f"{PACKAGE}.models")
    transport = httpx.WSGITransport(app=WSGIHandler())
    with generated.AuthenticatedClient("http://testserver", api.key, httpx_args={"transport": transport}) as client:
        body = models.JobInput.from_dict(
            {"name": "nightly", "kind": "http", "target": {"url": "https://example.com/report"}}
        )
        made = call("jobs.jobs_create", body=body, idempotency_key="generated-1")
        assert (made.name, made.timeout_s, made.retry.max_attempts) == ("nightly", 60, 3)
        again = call("jobs.jobs_create", body=body, idempotency_key="generated-1")
        assert again.id == made.id
        change = models.JobChange.from_dict({"timeout_s": 90})
        assert call("jobs.jobs_patch", job_id=made.id, body=change, if_match="*").timeout_s == 90
        run = call("executions.executions_submit", body=models.SubmitInput(job=made.id))
        [listed] = call("executions.executions_list", job=made.id).items
        assert (listed.id, listed.state) == (run.id, run.state)
        missing = call("jobs.jobs_read", job_id=NOWHERE)
        assert (missing.status, missing.code) == (404, "not_found")


@pytest.mark.long
@pytest.mark.timeout(2 * NPM_S)
def test_a_generated_typescript_client(document_file: Path, tmp_path: Path, server: int, api: Api) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not here; it brings the generator and the compiler")
    place = tmp_path / "typescript"
    shutil.copytree(SOURCES, place)

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=NPM_S)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(npm, "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent")
    run(npm, "exec", "--offline", "--", "openapi-typescript", str(document_file), "-o", "api.d.ts")
    run(npm, "exec", "--offline", "--", "tsc", "-p", ".")
    told = json.loads(run("node", "out/use.js", f"http://127.0.0.1:{server}", str(api.key)))
    assert told == {"name": "from typescript", "timeout_s": 60, "code": "not_found"}
