"""Which programs make up a running platform, and how each is started. docs/ tells operators the same lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from demo.supervisor import Child

ROOT = Path(__file__).resolve().parents[2]
VAR = ROOT / "var"
HOST = "127.0.0.1"
WEB_THREADS = 24  # up to PULL_WAITERS of them wait for work of pull queues
WORKER_GRACE_S = 3
# How long each may take to stop; what brings new work in is told first and at once, so all ends within 15 s.
STOP_S: Mapping[str, float] = {
    "web": 3,
    "beat": 3,
    "dispatcher": 3,
    "worker": 6,
    "receiver": 1,
    "valkey": 1,
    "postgresql": 4,
}
STOPS_FIRST = ("web", "beat", "dispatcher")


def environment(*, services: Mapping[str, str], keys: Mapping[str, str], port: int) -> dict[str, str]:
    """What every child gets: the caller's environment, the services' addresses and the source roots."""
    roots = (str(ROOT), str(ROOT / "platform"), os.environ.get("PYTHONPATH", ""))
    return {
        **keys,
        **os.environ,
        **services,
        "PORT": str(port),
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "PYTHONPATH": os.pathsep.join(root for root in roots if root),
        "PYTHONUNBUFFERED": "1",
    }


def receiver(env: Mapping[str, str], *, port: int) -> Child:
    return _child("receiver", env, sys.executable, "-m", "demo.receiver", str(port))


def worker(env: Mapping[str, str]) -> Child:
    # What is still running after the grace is handed back, and goes on at the next start.
    return _child(
        "worker", {"WORKER_GRACE_S": str(WORKER_GRACE_S), **env}, sys.executable, "-m", "celery", "-A", "workers.app",
        "worker", "--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING",
    )  # fmt: skip


def dispatcher(env: Mapping[str, str]) -> Child:
    return _child("dispatcher", env, sys.executable, str(ROOT / "manage.py"), "dispatcher")


def beat(env: Mapping[str, str]) -> Child:
    return _child(
        "beat", env, sys.executable, "-m", "celery", "-A", "workers.app", "beat", "-S", "workers.beat:LeaseScheduler",
        "--pidfile=", "--loglevel", "INFO",
    )  # fmt: skip


def web(env: Mapping[str, str], *, port: int) -> Child:
    return _child(
        "web", env, sys.executable, "-m", "gunicorn", "config.wsgi:application", "--bind", f"{HOST}:{port}",
        "--worker-class", "gthread", "--threads", str(WEB_THREADS), "--graceful-timeout", "2", "--no-control-socket",
    )  # fmt: skip


def _child(name: str, env: Mapping[str, str], *command: str) -> Child:
    return Child(name=name, command=command, environment=env, log=VAR / "log" / f"{name}.log", cwd=ROOT)
