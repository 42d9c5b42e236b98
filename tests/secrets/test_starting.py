"""Web and workers do not start without keys; what needs none does."""

import subprocess
import sys

import pytest

from tests.processes import ROOT, Processes
from tests.secrets.hands import kek


def ended(command: list[str], environment: dict[str, str], keys: str) -> tuple[int, str]:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**environment, "SECRETS_KEYS": keys},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("keys", ["", "k1:not a key"])
def test_the_web_does_not_start_without(process_env: dict[str, str], keys: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", "import config.wsgi"]
    code, told = ended(command, process_env, keys)
    assert code != 0 and "SECRETS_KEYS" in told and "not a key" not in told
    assert ended(command, process_env, kek("k1"))[0] == 0


def test_a_worker_does_not_start_without(processes: Processes) -> None:
    assert processes.worker(SECRETS_KEYS="").wait(60) != 0


def test_a_preview_needs_none(process_env: dict[str, str]) -> None:
    command = [sys.executable, "-W", "ignore", "manage.py", "preview", "--cron", "0 2 * * *", "--count", "1"]
    assert ended(command, process_env, "")[0] == 0
