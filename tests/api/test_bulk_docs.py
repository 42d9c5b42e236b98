"""The examples of docs/api.md about own ids and bulk requests are run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from embedded.folder import choose_port
from tests.conftest import wait_until
from tests.fixtures_api import Api
from tests.processes import Processes

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/api.md").read_text()


def section(name: str) -> str:
    return PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def shell(text: str) -> str:
    return "".join(re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))


def shown(text: str) -> list[str]:
    """What the page says is printed."""
    return [line.strip() for line in text.splitlines() if line.startswith(("    {", "    ["))]


def test_own_ids_and_bulk_work_as_they_stand(api: Api, processes: Processes, tmp_path: Path) -> None:
    port = choose_port(remembered=None)
    processes.web(port)
    wait_until(lambda: " Listening at: " in processes.log("web"), "the web server")
    [call] = re.findall(r"^call\(\) \{.*?^\}$", PAGE, re.DOTALL | re.MULTILINE)
    script = f"set -euo pipefail\n{call}\n" + shell(section("Your own ids")) + shell(section("Many at a time"))
    place = {**os.environ, "KEY": str(api.key), "API": f"http://127.0.0.1:{port}/api/v1", "no_proxy": "*"}
    done = subprocess.run(["bash", "-c", script], env=place, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["201", "200", *shown(section("Many at a time"))]
