"""The Docker Engine API, which a Podman socket speaks too (https://docs.docker.com/reference/api/engine/).

A container's name ends in the attempt and the fence that have it, since labels can't change: renaming is how it is
taken over, and how it is marked before it is stopped. Payload and artefact are in a volume of its own, at /shardbeat.
"""

import asyncio
import io
import re
import tarfile
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any
from uuid import UUID

import aiohttp
import orjson

from workers.executors.container_api import REQUEST_S, Answer, Api, failed
from workers.executors.container_engine import archive_of, container_of
from workers.executors.container_output import TAIL_BYTES, Logs
from workers.executors.container_runtime import (
    LABEL,
    Box,
    Exit,
    Found,
    Gone,
    NameTaken,
    RuntimeFailed,
    State,
)  # fmt: skip

VERSION = "/v1.41"  # of Docker 20.10 and Podman 4: old enough for all that is in use
PULL_S = 280.0
AGAIN_S = 1.0  # until a wait that broke off is asked for again
LOG_LINES = 2_000
_NAME = re.compile(r"/?sb-(?P<installation>[^/]+)-[0-9a-f]{32}-[0-9]+-(?P<fence>[0-9]+)(?P<ending>-ending)?")
_STATES: Mapping[str, State] = {"created": "created", "exited": "ended", "dead": "ended", "removing": "ended"}


class DockerRuntime:
    """See `container_runtime.Runtime`. `pull` is never, missing or always."""

    name, adopts = "docker", True

    def __init__(self, url: str, *, pull: str = "missing", request_s: float = REQUEST_S) -> None:
        self._api = Api(url, prefix=VERSION, request_s=request_s)
        self._pull = pull

    async def open(self) -> None:
        await self._api.open()

    async def close(self) -> None:
        await self._api.close()

    async def create(self, box: Box) -> Found:
        image = box.target.image
        if self._pull == "always":
            await self._pull_image(image)
        answer = await self._create(box)
        if answer.status == 404 and self._pull == "missing":
            await self._pull_image(image)
            answer = await self._create(box)
        match answer.status:
            case 404:
                message = f"There is no image {image} here: {answer.said()}"
                raise RuntimeFailed("image_missing", message, retryable=self._pull != "never")
            case 409:
                raise NameTaken
            case 400:
                raise RuntimeFailed("bad_target", answer.said(), retryable=False)
        found = Found(answer.json()["Id"], box.execution_id, box.fence, "created", box.deadline.timestamp())
        try:
            await self._api.call(
                "PUT", f"/containers/{found.ref}/archive", params={"path": "/shardbeat"}, data=archive_of(box),
                content_type="application/x-tar",
            )  # fmt: skip
        except RuntimeFailed:
            with suppress(RuntimeFailed):
                await self.remove(found)
            raise
        return found

    async def _create(self, box: Box) -> Answer:
        return await self._api.call(
            "POST", "/containers/create", params={"name": _name_of(box)}, json=container_of(box), ok=(400, 404, 409)
        )

    async def _pull_image(self, image: str) -> None:
        """The answer is a stream that says how it went: a pull that fails has the status 200 too."""
        name, digest = image, image.partition("@")[2]
        tag = "" if digest else (image.rpartition(":")[2] if ":" in image.rpartition("/")[2] else "latest")
        if tag and image.endswith(f":{tag}"):
            name = image[: -len(tag) - 1]
        params = {"fromImage": name, **({"tag": tag} if tag else {})}
        answer = await self._api.call("POST", "/images/create", params=params, ok=(404,), within_s=PULL_S)
        said = answer.said() if answer.status == 404 else ""
        for line in answer.body.splitlines() if not said else ():
            with suppress(ValueError):
                event = orjson.loads(line)
                said = str(event["error"])[:500] if isinstance(event, dict) and "error" in event else said
        if said:
            raise RuntimeFailed("image_missing", f"The image {image} could not be pulled: {said}")

    async def start(self, found: Found, box: Box) -> None:
        answer = await self._api.call("POST", f"/containers/{found.ref}/start", ok=(304, 400, 404, 500))
        if answer.status in (400, 404, 500):
            said = answer.said()
            if "exec" in said or "no such file" in said.lower():  # what runc says of a command that is not there
                raise RuntimeFailed("command_failed", said, retryable=False)
            raise failed(answer, "start")

    async def wait(self, found: Found) -> Exit:
        while True:
            try:
                async with self._api.stream("POST", f"/containers/{found.ref}/wait") as body:
                    await body.read()
                state = (await self._inspect(found.ref))["State"]
                if not state.get("Running"):
                    return Exit(int(state["ExitCode"]), oom_killed=bool(state.get("OOMKilled")))
            except RuntimeFailed as error:
                if error.status == 404:
                    raise Gone from None
            except (aiohttp.ClientError, OSError):
                pass  # the daemon restarts, or a proxy has enough of waiting
            await asyncio.sleep(AGAIN_S)

    async def adopt(self, found: Found, box: Box) -> Found | None:
        if found.fence != box.fence:
            answer = await self._api.call(
                "POST", f"/containers/{found.ref}/rename", params={"name": _name_of(box)}, ok=(404, 409)
            )
            if answer.status in (404, 409):
                return None
        return Found(
            found.ref, box.execution_id, box.fence, found.state, found.deadline_s, started_at=found.started_at
        )  # fmt: skip

    async def stop(self, found: Found, grace_s: float) -> None:
        inspected = await self._inspect_own(found)
        if inspected is None or not inspected["State"].get("Running"):
            return
        name = str(inspected["Name"]).lstrip("/")
        if not name.endswith("-ending"):  # whoever finds it later must not take it for one that may go on
            await self._api.call(
                "POST", f"/containers/{found.ref}/rename", params={"name": f"{name}-ending"}, ok=(404, 409)
            )
        for signal, wait_s in (("TERM", grace_s), ("KILL", 10.0)):
            await self._api.call("POST", f"/containers/{found.ref}/kill", params={"signal": signal}, ok=(404, 409))
            with suppress(TimeoutError, Gone):
                async with asyncio.timeout(wait_s):
                    await self.wait(found)
                    return
            if await self._inspect_own(found) is None:
                return
        raise RuntimeFailed("container_failed", "The container does not end on KILL.")

    async def logs(self, found: Found) -> Logs:
        logs = Logs(complete=False)
        params = {"stdout": "1", "stderr": "1", "tail": str(LOG_LINES)}
        with suppress(aiohttp.ClientError, OSError):
            async with self._api.stream("GET", f"/containers/{found.ref}/logs", params=params) as body:
                logs.complete = await _read_frames(body, logs)
        return logs

    async def result(self, found: Found, max_bytes: int) -> bytes | None:
        answer = await self._api.call(
            "GET", f"/containers/{found.ref}/archive", params={"path": "/shardbeat/result"}, ok=(404,),
            max_bytes=max_bytes + 10_240,
        )  # fmt: skip
        if answer.status == 404:
            return None
        with suppress(tarfile.TarError), tarfile.open(fileobj=io.BytesIO(answer.body)) as archive:
            member = archive.next()
            if member is not None and member.isreg():  # anything else, such as a link, is not followed
                begin = member.offset_data
                return answer.body[begin : begin + min(member.size, max_bytes)] or None
        return None

    async def remove(self, found: Found) -> None:
        if await self._inspect_own(found) is None:
            return
        params = {"force": "1", "v": "1"}
        give_up_at = asyncio.get_running_loop().time() + REQUEST_S
        while True:
            answer = await self._api.call("DELETE", f"/containers/{found.ref}", params=params, ok=(404, 409))
            if answer.status != 409:
                return
            if asyncio.get_running_loop().time() > give_up_at:
                raise failed(answer, "remove")
            await asyncio.sleep(AGAIN_S / 4)  # somebody else removes it now: that has to be over

    async def find(self, installation: str, execution_id: UUID | None = None) -> list[Found]:
        labels = [f"{LABEL}/installation={installation}"]
        if execution_id is not None:
            labels.append(f"{LABEL}/execution={execution_id}")
        filters = orjson.dumps({"label": labels}).decode()
        answer = await self._api.call("GET", "/containers/json", params={"all": "1", "filters": filters})
        found = []
        for one in answer.json():
            with suppress(KeyError, ValueError, IndexError, TypeError):
                described = _found(one, installation)
                if execution_id is not None and described.state != "created":
                    state = await self._state(described.ref)
                    if state is None:
                        continue
                    described = _with_start(described, state)
                found.append(described)
        return found

    async def _inspect_own(self, found: Found) -> dict[str, Any] | None:
        """None when it is gone, or another attempt's by now: a worker that was frozen must not end what goes on."""
        answer = await self._api.call("GET", f"/containers/{found.ref}/json", ok=(404,))
        if answer.status == 404:
            return None
        inspected: dict[str, Any] = answer.json()
        name = _NAME.fullmatch(str(inspected["Name"]))
        return inspected if name and int(name["fence"]) == found.fence else None

    async def _inspect(self, ref: str) -> dict[str, Any]:
        answer: dict[str, Any] = (await self._api.call("GET", f"/containers/{ref}/json")).json()
        return answer

    async def _state(self, ref: str) -> dict[str, Any] | None:
        answer = await self._api.call("GET", f"/containers/{ref}/json", ok=(404,))
        if answer.status == 404:
            return None
        state: dict[str, Any] = answer.json()["State"]
        return state


async def _read_frames(body: aiohttp.StreamReader, logs: Logs) -> bool:
    """Both streams in frames: which, three bytes of nothing, the length. False when they break off."""
    assert logs.stderr is not None
    while True:
        try:
            head = await body.readexactly(8)
        except asyncio.IncompleteReadError as error:
            return not error.partial
        tail, left = logs.stderr if head[0] == 2 else logs.stdout, int.from_bytes(head[4:], "big")
        while left:
            data = await body.read(min(left, TAIL_BYTES))
            if not data:
                return False
            tail.add(data)
            left -= len(data)


def _name_of(box: Box) -> str:
    return f"{box.name}-{box.fence}"


def _found(one: Mapping[str, Any], installation: str) -> Found:
    """A line of the list. Raises KeyError, ValueError, IndexError, TypeError for what is not ours after all."""
    name = _NAME.fullmatch(one["Names"][0])
    if not name or name["installation"] != installation:
        raise ValueError(one["Names"])
    labels = one["Labels"]
    return Found(
        one["Id"], UUID(labels[f"{LABEL}/execution"]), int(name["fence"]), _STATES.get(one["State"], "running"),
        float(labels[f"{LABEL}/deadline"]), ending=bool(name["ending"]) or one["State"] == "removing",
    )  # fmt: skip


def _with_start(found: Found, state: Mapping[str, Any]) -> Found:
    started_at = None
    with suppress(KeyError, ValueError):
        text = str(state["StartedAt"])  # nanoseconds, and the year 1 when it never did
        started_at = None if text.startswith("0001") else datetime.fromisoformat(text[:19] + "+00:00")
    return Found(
        found.ref, found.execution_id, found.fence, found.state, found.deadline_s, found.ending, started_at
    )  # fmt: skip
