"""One attempt of a container job, from its target to its result.

Two containers of one execution never run at once: a container is made, then all of the execution are looked at, and
only then it starts. Of two who do that at the same time at least one sees the other; the older attempt yields, and the
newer one starts when the older's container is gone.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from kernel.clock import utc_now
from kernel.containerrules import ContainerRules, Target
from kernel.masking import Echoes
from workers.executors.base import Outcome, Result, Work, ended
from workers.executors.bounds import bounded_error
from workers.executors.container_box import PREPARE_S, Refused, box_of
from workers.executors.container_output import ARTEFACT_MAX_BYTES, Logs, last_words, result_of, steering
from workers.executors.container_runtime import (
    Box,
    Exit,
    Found,
    Gone,
    NameTaken,
    Runtime,
    RuntimeFailed,
)  # fmt: skip

log = logging.getLogger(__name__)
T = TypeVar("T")

TRIES = 4  # to find a name free
AGAIN_S = 5.0  # until work is offered again that the runtime could not be asked to run
COLLECT_S = 10.0  # for output and artefact of a container that has ended
REMOVE_S = 10.0


class Stopped(Exception):
    """The attempt is to end as this, whatever its container does."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        self.outcome: Outcome = outcome


class Superseded(Exception):
    """A newer attempt of the execution has a container."""


class Run:
    """`result` is awaited once. `stop` may be called while it is."""

    def __init__(
        self, runtime: Runtime, work: Work, started_at: datetime, *, rules: ContainerRules, installation: str,
        stop_grace_s: float, clock: Callable[[], datetime] = utc_now,
    ) -> None:  # fmt: skip
        self._runtime, self._work, self._started_at = runtime, work, started_at
        self._rules, self._installation, self._clock = rules, installation, clock
        self._stop_grace_s = stop_grace_s
        self._loop = asyncio.get_running_loop()
        self._stopping: asyncio.Future[Outcome] = self._loop.create_future()
        self._timeout_at = float("inf")
        self._found: Found | None = None
        self._making: Box | None = None  # asked for, and not in our hands yet
        self._echoes = Echoes(work.secrets.values())
        self.unavailable = False

    def stop(self, outcome: Outcome) -> None:
        """End as `outcome`, soon."""
        if not self._stopping.done():
            self._stopping.set_result(outcome)

    async def result(self) -> Result:
        """Runs to the end. Whatever happens, the container is removed before the result is there, if it can be."""
        try:
            box = box_of(self._work, self._rules, installation=self._installation, now=self._clock())
            return await self._attempt(box)
        except Refused as refused:
            return self._failed(refused.class_, refused.message, retryable=False)
        except Superseded:
            return self._ended("lost", "superseded", "A newer attempt of this run has its container.")
        except Gone:
            return self._ended("lost", "container_gone", "The container was removed from outside while it ran.")
        except RuntimeFailed as failed:
            if failed.available:
                return self._failed(failed.class_, failed.message, retryable=failed.retryable)
            self.unavailable = True
            error = bounded_error(failed.class_, failed.message)
            return replace(ended("returned", self._clock(), self._started_at, error=error), retry_after_s=AGAIN_S)
        finally:
            await self._clear_away()

    async def _attempt(self, box: Box) -> Result:
        try:
            await self._until(self._prepare(box), PREPARE_S)
            assert self._found is not None
            exited = await self._until(self._runtime.wait(self._found), self._timeout_at - self._loop.time())
        except Stopped as stopped:
            return await self._stopped(stopped.outcome)
        finished_at = self._clock()
        if exited.deadline_passed:
            return await self._stopped("timed_out")
        logs, artefact = await self._collect(self._found)
        return self._judge(box.target, exited, logs, artefact, finished_at)

    async def _prepare(self, box: Box) -> None:
        """A started container, new or taken over, in `_found`."""
        for _ in range(TRIES):
            if await self._take_over(box):
                return
            self._making = box
            try:
                self._found = await self._runtime.create(box)
                break
            except NameTaken:
                continue  # it was not there a moment ago: look again
        else:
            raise RuntimeFailed("container_failed", "There is a container of this run that can't be removed.")
        for other in await self._runtime.find(box.installation, box.execution_id):
            if other.ref == self._found.ref:
                continue
            if other.fence > box.fence:
                raise Superseded
            await self._runtime.remove(other)
        await self._runtime.start(self._found, box)
        self._started_at = max(self._started_at, self._clock())
        self._timeout_at = self._loop.time() + self._work.timeout_s

    async def _take_over(self, box: Box) -> bool:
        """Clears away what earlier attempts left; true when one of these containers is ours now."""
        for one in await self._runtime.find(box.installation, box.execution_id):
            if one.fence > box.fence:
                raise Superseded
            if self._found is None and self._may_adopt(one):
                self._found = await self._runtime.adopt(one, box)
                if self._found is not None:
                    log.warning("attempt %s/%d takes over container %s", box.execution_id, box.fence, one.ref)
                    continue
            await self._runtime.remove(one)
        if self._found is None:
            return False
        begun_at = self._found.started_at or self._clock()
        left_s = self._work.timeout_s - (self._clock() - begun_at).total_seconds()  # its time runs since then
        self._timeout_at = self._loop.time() + (COLLECT_S if self._found.state == "ended" else left_s)
        return True

    def _may_adopt(self, one: Found) -> bool:
        return (
            self._runtime.adopts and not one.ending and one.state != "created"
            and self._clock().timestamp() < one.deadline_s
        )  # fmt: skip

    async def _until(self, doing: Coroutine[Any, Any, T], within_s: float) -> T:
        """Raises Stopped when the attempt has to end before that is done."""
        task = asyncio.ensure_future(doing)
        either: set[asyncio.Future[Any]] = {task, self._stopping}
        await asyncio.wait(either, timeout=max(0.0, within_s), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        task.cancel()
        with suppress(asyncio.CancelledError, RuntimeFailed, Gone, NameTaken, Superseded):
            await task
        raise Stopped(self._stopping.result() if self._stopping.done() else "timed_out")

    async def _stopped(self, outcome: Outcome) -> Result:
        logs, artefact = Logs(), None
        found = self._found
        if found is not None:
            try:
                await self._runtime.stop(found, self._stop_grace_s)
                logs, artefact = await self._collect(found)
            except RuntimeFailed as failed:
                log.warning("container %s could not be stopped in order: %s", found.ref, failed.message)
        now, result = self._clock(), None
        if found is not None and outcome == "timed_out":
            result = result_of(None, logs, artefact, echoes=self._echoes)
        if outcome == "timed_out" and found is None:
            error = bounded_error("timeout", f"The container could not be made within {PREPARE_S:g} s.")
        elif outcome == "timed_out":
            message = f"The container did not end within {self._work.timeout_s:g} s."
            error = bounded_error("timeout", message, **self._said(logs))
        elif outcome == "cancelled":
            error = bounded_error("cancelled", "The run was cancelled.")
        else:
            error = bounded_error("returned", "the worker is stopping")
        return replace(ended(outcome, now, self._started_at, error=error), result=result)

    async def _collect(self, found: Found) -> tuple[Logs, bytes | None]:
        """What is left of it: that the runtime fails here costs the output, not the outcome."""
        logs, artefact = Logs(complete=False), None
        try:
            async with asyncio.timeout(COLLECT_S):
                artefact = await self._runtime.result(found, ARTEFACT_MAX_BYTES + 1)
                logs = await self._runtime.logs(found)
        except (RuntimeFailed, Gone, TimeoutError) as error:
            log.warning("the output of container %s is not complete: %s", found.ref, error)
        return logs, artefact

    async def _clear_away(self) -> None:
        """Removes the container, also one that we do not know yet since we stopped waiting for the answer."""
        try:
            async with asyncio.timeout(REMOVE_S):
                if self._found is not None:
                    await self._runtime.remove(self._found)
                elif (box := self._making) is not None:
                    for one in await self._runtime.find(box.installation, box.execution_id):
                        if one.fence == box.fence:
                            await self._runtime.remove(one)
        except (RuntimeFailed, TimeoutError) as error:
            log.warning("attempt %s: its container could not be removed; the sweep tries again: %s",
                        self._work.execution_id, error)  # fmt: skip

    def _judge(self, target: Target, exited: Exit, logs: Logs, artefact: bytes | None, now: datetime) -> Result:
        codes, code = target.exit_codes, exited.code
        result = result_of(code, logs, artefact, echoes=self._echoes, oom_killed=exited.oom_killed)
        if code in codes.success:
            return Result("succeeded", result, None, True, None, False, self._started_at, now)
        retry_after_s, no_retry = steering(artefact)
        more = {"exit_code": code, **self._said(logs)}
        if exited.oom_killed:
            message = f"The container needed more than its memory limit of {target.memory_mb} MB (exit code {code})."
            error = bounded_error("oom_killed", message, **more)
        else:
            error = bounded_error("exit_code", f"The container ended with exit code {code}{_signal_of(code)}.", **more)
        retryable = codes.may_retry(code) and not no_retry
        return Result("failed", result, error, retryable, retry_after_s, False, self._started_at, now)

    def _said(self, logs: Logs) -> dict[str, str]:
        said = last_words(logs, echoes=self._echoes)
        return {"output_end": said} if said else {}

    def _failed(self, class_: str, message: str, *, retryable: bool) -> Result:
        return self._ended("failed", class_, message, retryable=retryable)

    def _ended(self, outcome: Outcome, class_: str, message: str, *, retryable: bool = True) -> Result:
        error = bounded_error(class_, self._echoes.masked_text(message))
        return ended(outcome, self._clock(), self._started_at, error=error, retryable=retryable)


def _signal_of(code: int) -> str:
    """What exit codes above 128 usually mean."""
    names = {134: "SIGABRT", 137: "SIGKILL", 139: "SIGSEGV", 143: "SIGTERM"}
    return f" ({names[code]})" if code in names else ""
