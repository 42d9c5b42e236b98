"""One work, run by the container executor against a replayed API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from kernel.containerrules import ContainerRules
from tests.executors.replay import Replay
from tests.executors.works import Results, make_work
from workers.executors.base import Result, Work
from workers.executors.container import ContainerExecutor
from workers.executors.container_runtime import Runtime

EXECUTION = UUID("01900000-0000-7000-8000-000000000001")
INSTALLATION = "inst1234"
IMAGE = "busybox:1.36"


def a_work(**changes: Any) -> Work:
    """Attempt 2 with fence 7 of the execution that all exchanges are about."""
    target = {"image": IMAGE, "command": ["sh", "-c"], "args": ["echo hello"], **changes.pop("target", {})}
    return make_work("container", target, execution_id=EXECUTION, fence=7, attempt=2, **changes)


class Replayed:
    """`run` runs a work; afterwards every exchange of the script must have happened, and nothing else."""

    def __init__(self, api: str, make: Callable[..., Runtime], running: Callable[[Any], Any], results: Results) -> None:
        self._api, self._make, self._running, self.results = api, make, running, results
        self.replay: Replay | None = None

    def executor(
        self, *script: str, always: tuple[str, ...] = ("sweep-nothing",), socket: Any = None, alive: Any = None,
        stop_grace_s: float = 0.2, **options: Any,
    ) -> ContainerExecutor:  # fmt: skip
        self.replay = Replay(self._api, list(script), always=always, socket=socket).start()
        rules = ContainerRules(runtime=self._api, images=("busybox:*",), networks=("egress",))
        made = ContainerExecutor(
            self._make(self.replay.url, **options), rules=rules, installation=INSTALLATION, alive=alive,
            stop_grace_s=stop_grace_s,
        )  # fmt: skip
        started: ContainerExecutor = self._running(made)
        return started

    def run(self, *script: str, work: Work | None = None, **options: Any) -> Result:
        executor = self.executor(*script, **options)
        executor.submit([work := work or a_work()], self.results)
        result = self.results.of(work)
        self.check()
        return result

    def check(self) -> None:
        assert self.replay
        assert self.replay.unexpected == []
        assert self.replay.left == []

    def close(self) -> None:
        if self.replay:
            self.replay.stop()
