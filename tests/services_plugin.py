"""Starts PostgreSQL and Valkey for a test run, before Django reads its settings.

Loaded with `-p`. Given DATABASE_URL or BROKER_URL, that service is not started. The process that controls the run
starts them and exports the addresses; xdist's workers inherit these, and each uses its own database (pytest-django's
suffix) and its own broker database number. Runs side by side in one checkout take different slots below `var/test`;
data is kept between runs, because initdb is the slow part. A killed run takes its services along (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import base64
import os
import shutil
import sys
from collections.abc import Generator, Mapping
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT / "platform") not in sys.path:
    sys.path.insert(0, str(ROOT / "platform"))

from embedded.folder import FolderInUse  # noqa: E402  (needs the path)
from embedded.process import ServiceError  # noqa: E402
from embedded.services import BROKER_VARIABLE, Services  # noqa: E402

SLOTS = 16

if sys.dont_write_bytecode:
    # Where bytecode may not lie beside sources it lies in var: else each of the many processes that tests start would
    # compile all that it imports, which is most of what its start costs.
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(ROOT / "var" / "pycache")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, object, object]:
    # A wrapper runs before pytest-django's own hook, which reads the settings.
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker:
        if BROKER_VARIABLE in os.environ:
            os.environ[BROKER_VARIABLE] = broker_of_worker(os.environ[BROKER_VARIABLE], worker=worker)
    else:
        try:
            services = start_in_free_slot(ROOT / "var" / "test")
        except ServiceError as error:
            raise pytest.UsageError(f"the test services did not start: {error}") from error
        early_config.add_cleanup(services.stop)
        os.environ.update(services.variables())
        os.environ.setdefault("SECRET_KEY", "for-tests-only")
        os.environ.setdefault("FAILED_AUTH_PER_MIN", "0")  # all tests share an address; those of the limit set it
        os.environ.setdefault("SECRETS_KEYS", "tests:" + base64.b64encode(os.urandom(32)).decode())
        (ROOT / "var" / "static").mkdir(parents=True, exist_ok=True)  # whitenoise warns when it is missing
    return (yield)


def start_in_free_slot(folder: Path, *, environment: Mapping[str, str] = os.environ) -> Services:
    """Start what the environment does not name, in the first slot that no other run holds."""
    for slot in range(SLOTS):
        place = folder / str(slot)
        try:
            return _start(place, environment)
        except FolderInUse:
            continue
        except ServiceError:
            shutil.rmtree(place, ignore_errors=True)  # only test data: a fresh start beats a repair
            return _start(place, environment)
    raise ServiceError(f"{SLOTS} test runs already use {folder}")


def broker_of_worker(url: str, *, worker: str) -> str:
    """The same broker with a database number of the worker's own: gw0 has 1, gw1 has 2. Others stay as they are."""
    parts = urlsplit(url)
    if parts.scheme not in ("redis", "rediss", "valkey"):
        return url
    return urlunsplit(parts._replace(path=f"/{int(worker.removeprefix('gw')) + 1}"))


def _start(place: Path, environment: Mapping[str, str]) -> Services:
    services = Services(place, durable=False, environment=environment)
    services.start()
    return services
