"""The program behind `make run`. Ctrl-C or SIGTERM stops everything within 15 s; the data stays."""

from __future__ import annotations

import base64
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import NoReturn

from demo import processes
from demo.announce import Announcer
from demo.processes import HOST, ROOT, STOP_S, STOPS_FIRST, VAR
from demo.supervisor import Supervisor
from embedded.folder import Folder, choose_port, explain
from embedded.process import ServiceError
from embedded.services import Services


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background job inherits an ignored SIGINT
        signal.signal(number, _interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup wants it to go on
        signal.signal(signal.SIGHUP, _interrupt)
    folder = Folder(VAR / "demo")
    supervisor = Supervisor(say=say)
    try:
        port = web_port(os.environ)
        folder.open(need_bytes=0)
        check_port(port)
        for name in ("log", "static"):  # without the latter whitenoise warns
            (VAR / name).mkdir(parents=True, exist_ok=True)
        run(folder, supervisor, port=port)
    except ServiceError as error:
        say(f"make run: {error}")
        return 1
    except OSError as error:
        say(f"make run: {explain(error, path=Path(error.filename or VAR))}")
        return 1
    except KeyboardInterrupt:
        say("Stopping; `make run` goes on with the same data.")
        return 0
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # what follows is bounded in time
        supervisor.stop(first=STOPS_FIRST)
        folder.close()


def run(folder: Folder, supervisor: Supervisor, *, port: int) -> NoReturn:
    """Start all, in order, and watch it until interrupted."""
    services = Services(VAR)
    say(
        "Starting "
        + (", ".join(part.name for part in services.embedded) or "on the services of the environment")
        + " ..."
    )
    for part in services.embedded:
        supervisor.add(part, stop_s=STOP_S[part.name])
    state = folder.read_state()
    state.setdefault("secret_key", secrets.token_urlsafe(48))
    state.setdefault("secrets_keys", "demo:" + base64.b64encode(secrets.token_bytes(32)).decode())
    state["receiver_port"] = choose_port(remembered=state.get("receiver_port"))
    folder.write_state(state)
    keys = {"SECRET_KEY": state["secret_key"], "SECRETS_KEYS": state["secrets_keys"]}
    keys["ARCHIVE_URL"] = os.environ.get("ARCHIVE_URL", str(VAR / "archive"))
    keys["PUBLIC_URL"] = os.environ.get("PUBLIC_URL") or f"http://{HOST}:{port}"  # for links that commands print
    env = processes.environment(services=services.variables(), keys=keys, port=port)
    write_env_file({**services.variables(), **keys})

    supervisor.add(processes.receiver(env, port=state["receiver_port"]), stop_s=STOP_S["receiver"])
    say("Migrating ...")
    manage(env, "tenant_migrate")
    say("Setting up two tenants ...")
    manage(
        env,
        "demo_setup",
        "--base-url",
        f"http://{HOST}:{port}",
        "--receiver",
        f"http://{HOST}:{state['receiver_port']}",
    )
    for child in (processes.worker(env), processes.dispatcher(env), processes.beat(env), processes.web(env, port=port)):
        supervisor.add(child, stop_s=STOP_S[child.name])
    announcer = Announcer(say=say, receiver=f"http://{HOST}:{state['receiver_port']}")
    supervisor.run(on_look=announcer.look)


def manage(env: Mapping[str, str], *arguments: str) -> None:
    """Run a management command to its end; its output goes to the terminal only when it fails."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), *arguments],
        env=dict(env),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    log = VAR / "log" / "setup.log"
    with log.open("a") as file:
        file.write(f"--- manage.py {' '.join(arguments)}\n{done.stdout}")
    if done.returncode != 0:
        last = (done.stdout.strip().splitlines() or ["no output"])[-1]
        raise ServiceError(f"manage.py {arguments[0]} failed: {last} (see {log})")


def web_port(environment: Mapping[str, str]) -> int:
    """PORT, 8000 when it is not set. Raises ServiceError for anything that is no port."""
    text = environment.get("PORT") or "8000"
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise ServiceError(f"PORT={text} is no port; use a number from 1 to 65535")
    return int(text)


def check_port(port: int) -> None:
    """Say at once what gunicorn would say after five tries in a log file."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except PermissionError as error:
            raise ServiceError(
                f"this user may not listen on port {port}; choose another: PORT=8001 make run"
            ) from error
        except OSError as error:
            raise ServiceError(f"port {port} is in use; choose another: PORT={port % 65535 + 1} make run") from error


def write_env_file(variables: Mapping[str, str]) -> None:
    """`var/env`: what settings read when the environment says nothing, so that `manage.py` finds this demo."""
    path = VAR / "env"
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.writelines(f"{name}={value}\n" for name, value in variables.items())


def say(line: str) -> None:
    print(line, flush=True)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
