"""Work for the example worker, by the payload: it runs in the worker's process."""

import os
import sys
import threading
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs" / "examples"))


def work(run: dict[str, Any], lease: Any) -> Any:
    payload = run["payload"] or {}
    how = payload.get("how", "echo")
    if how == "echo":
        return {"payload": payload, "run_key": run["run_key"], "attempt": run["attempt"]}
    if how == "fail":
        raise ValueError("it went wrong")
    if how == "give_up":
        from __main__ import GiveUp  # the worker is the program

        raise GiveUp("for good")
    if how == "big":
        return "x" * 100_000
    if how == "hostile":
        return {"<script>": "\ud800 \u202e", "nul": "a\x00b"}
    if how == "die":
        os._exit(9)
    # "hold": says that it runs, then works until it is stopped or let go
    place = Path(payload["place"])
    (place / f"running-{run['attempt']}").write_text(str(os.getpid()))
    for _ in range(600):
        if lease.stopping.is_set():
            raise RuntimeError("stopped")
        if (place / "go").exists():
            return "released"
        threading.Event().wait(0.05)
    return "waited for nothing"
