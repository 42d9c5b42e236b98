"""Kubernetes Jobs (https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/job-v1/).

A Job is made suspended and resumed when nothing else of its execution is there. Its labels say which attempt has it:
changing them, from the resource version that was read, is how it is taken over after a worker's death. Payload and
variables are in a Secret that belongs to the Job and goes with it; the artefact is the termination message, so at most
4,096 bytes, and both streams are one log.
"""

import asyncio
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import aiohttp
import orjson

from workers.executors.container_api import REQUEST_S, Answer, Api, failed
from workers.executors.container_jobs import CONTAINER, job_of, secret_of
from workers.executors.container_output import Logs, Tail
from workers.executors.container_runtime import LABEL, Box, Exit, Found, Gone, NameTaken, RuntimeFailed, State

TOKEN_S = 60.0  # tokens are renewed on disk
WATCH_S = 60
AGAIN_S = 1.0
GONE_LOOK_S = 0.25
LOG_LINES = 2_000
NAMES_OF_CONTAINER = f"{LABEL}/container"
# Why a pod waits that will not run, and whether another try may help.
BAD_IMAGE = {"ErrImageNeverPull": False, "InvalidImageName": False, "ImagePullBackOff": True, "ErrImagePull": True}
BAD_CONTAINER = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
NOT_STARTED = (126, 127, 128)


class KubernetesRuntime:
    """See `container_runtime.Runtime`. `account` is a folder with token, ca.crt and namespace."""

    name, adopts = "kubernetes", True

    def __init__(
        self, url: str, *, account: Path, namespace: str = "", pull: str = "missing", request_s: float = REQUEST_S
    ) -> None:
        self._account, self._token, self._token_at = account, "", float("-inf")
        authority = account / "ca.crt"
        tls = ssl.create_default_context(cafile=authority) if authority.exists() else None
        self._api = Api(url, tls=tls, headers=self._headers, request_s=request_s)
        with suppress(OSError):
            namespace = namespace or (account / "namespace").read_text().strip()
        self._namespace, self._pull = namespace or "default", pull
        self._jobs = f"/apis/batch/v1/namespaces/{self._namespace}/jobs"
        self._core = f"/api/v1/namespaces/{self._namespace}"
        self._kept: dict[str, Logs] = {}  # of pods that went with their stop

    async def open(self) -> None:
        await self._api.open()

    async def close(self) -> None:
        await self._api.close()

    async def create(self, box: Box) -> Found:
        answer = await self._api.call("POST", self._jobs, json=job_of(box, pull=self._pull), ok=(400, 409, 422))
        if answer.status == 409:
            raise NameTaken
        if answer.status in (400, 422):
            raise RuntimeFailed("bad_target", answer.said(), retryable=False)
        made = answer.json()
        found = Found(box.name, box.execution_id, box.fence, "created", box.deadline.timestamp())
        secret = secret_of(box, job_uid=made["metadata"]["uid"])
        try:
            answer = await self._api.call("POST", f"{self._core}/secrets", json=secret, ok=(409,))
            if answer.status == 409:  # of an earlier Job of this name, which is gone: so will be the secret
                await self._api.call("PUT", f"{self._core}/secrets/{box.name}", json=secret)
        except RuntimeFailed:
            with suppress(RuntimeFailed):
                await self.remove(found)
            raise
        return found

    async def start(self, found: Found, box: Box) -> None:
        await self._patch(found.ref, {"spec": {"suspend": False}})

    async def wait(self, found: Found) -> Exit:
        while True:
            try:
                ended = await self._look(found.ref)
                if ended is None:
                    ended = await self._watch(found.ref)
                if ended is not None:
                    return ended
            except RuntimeFailed as error:
                if error.class_ != "container_failed" or error.status in (401, 403):
                    raise
                await asyncio.sleep(AGAIN_S)
            except (aiohttp.ClientError, OSError, ValueError):
                await asyncio.sleep(AGAIN_S)

    async def adopt(self, found: Found, box: Box) -> Found | None:
        if found.fence == box.fence:
            return found
        answer = await self._api.call("GET", f"{self._jobs}/{found.ref}", ok=(404,))
        job = answer.json()
        if answer.status == 404 or job["metadata"]["labels"].get(f"{LABEL}/fence") != str(found.fence):
            return None
        labels = {f"{LABEL}/attempt": str(box.attempt), f"{LABEL}/fence": str(box.fence)}
        change = {"metadata": {"labels": labels, "resourceVersion": job["metadata"]["resourceVersion"]}}
        answer = await self._patch(found.ref, change, ok=(404, 409))
        if answer.status in (404, 409):
            return None
        return _found(answer.json())

    async def stop(self, found: Found, grace_s: float) -> None:
        """The pod's own grace period is between TERM and KILL; its log goes with it."""
        self._kept[found.ref] = await self.logs(found)
        await self._delete(found)

    async def logs(self, found: Found) -> Logs:
        if found.ref in self._kept:
            return self._kept[found.ref]
        tail, complete = Tail(), False
        with suppress(aiohttp.ClientError, OSError, RuntimeFailed, Gone):
            pod = await self._pod(found.ref)
            if pod is not None:
                path = f"{self._core}/pods/{pod['metadata']['name']}/log"
                params = {"container": CONTAINER, "tailLines": str(LOG_LINES)}
                async with self._api.stream("GET", path, params=params) as body:
                    while data := await body.readany():
                        tail.add(data)
                    complete = True
        return Logs(tail, None, complete)

    async def result(self, found: Found, max_bytes: int) -> bytes | None:
        pod = None if found.ref in self._kept else await self._pod(found.ref)
        message = _terminated(pod).get("message") if pod else None
        return message.encode()[:max_bytes] if isinstance(message, str) and message else None

    async def remove(self, found: Found) -> None:
        self._kept.pop(found.ref, None)
        await self._delete(found)

    async def find(self, installation: str, execution_id: UUID | None = None) -> list[Found]:
        selector = f"{LABEL}/installation={installation}"
        if execution_id is not None:
            selector += f",{LABEL}/execution={execution_id}"
        answer = await self._api.call("GET", self._jobs, params={"labelSelector": selector})
        found = []
        for job in answer.json().get("items", ()):
            with suppress(KeyError, ValueError, TypeError):
                found.append(_found(job))
        return found

    async def _look(self, name: str) -> Exit | None:
        """What the Job and its pod say now; None while it runs. Raises Gone and RuntimeFailed."""
        answer = await self._api.call("GET", f"{self._jobs}/{name}", ok=(404,))
        if answer.status == 404:
            raise Gone
        pod = await self._pod(name)
        if pod is not None and (ended := _exit_of(pod)) is not None:
            return ended
        for condition in answer.json().get("status", {}).get("conditions") or ():
            if condition.get("type") == "Failed" and condition.get("status") == "True":
                if condition.get("reason") == "DeadlineExceeded":
                    return Exit(137, deadline_passed=True)
                raise RuntimeFailed("container_gone", f"The Job failed without an exit code: {condition.get('reason')}")
        return None

    async def _watch(self, name: str) -> Exit | None:
        """Until the pod ends; None when there is something else to look at."""
        params = {
            "labelSelector": f"{NAMES_OF_CONTAINER}={name}", "watch": "1", "timeoutSeconds": str(WATCH_S),
        }  # fmt: skip
        async with self._api.stream("GET", f"{self._core}/pods", params=params) as body:
            async for line in _lines(body):
                event = orjson.loads(line)
                if event.get("type") not in ("ADDED", "MODIFIED"):
                    return None  # deleted, or too long ago to go on
                if (ended := _exit_of(event["object"])) is not None:
                    return ended
        return None

    async def _pod(self, name: str) -> dict[str, Any] | None:
        params = {"labelSelector": f"{NAMES_OF_CONTAINER}={name}"}
        answer = await self._api.call("GET", f"{self._core}/pods", params=params)
        pods: list[dict[str, Any]] = answer.json().get("items") or []
        return pods[0] if pods else None

    async def _patch(self, name: str, change: Mapping[str, Any], *, ok: tuple[int, ...] = ()) -> Answer:
        return await self._api.call(
            "PATCH", f"{self._jobs}/{name}", json=change, content_type="application/merge-patch+json", ok=ok
        )

    async def _delete(self, found: Found) -> None:
        """Deletes the Job after its pods, and waits until it is gone; not one that another attempt has by now."""
        name = found.ref
        answer = await self._api.call("GET", f"{self._jobs}/{name}", ok=(404,))
        if answer.status == 404 or answer.json()["metadata"]["labels"].get(f"{LABEL}/fence") != str(found.fence):
            return
        answer = await self._api.call(
            "DELETE", f"{self._jobs}/{name}", ok=(404, 409), json={"propagationPolicy": "Foreground"}
        )
        if answer.status == 404:
            return
        if answer.status == 409:
            raise failed(answer, "delete")
        give_up_at = asyncio.get_running_loop().time() + REQUEST_S
        while (await self._api.call("GET", f"{self._jobs}/{name}", ok=(404,))).status != 404:
            if asyncio.get_running_loop().time() > give_up_at:
                raise RuntimeFailed("container_failed", f"The Job {name} does not go away.")
            await asyncio.sleep(GONE_LOOK_S)

    def _headers(self) -> Mapping[str, str]:
        if time.monotonic() - self._token_at > TOKEN_S:
            with suppress(OSError):
                self._token = (self._account / "token").read_text().strip()
            self._token_at = time.monotonic()
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}


def _found(job: Mapping[str, Any]) -> Found:
    meta, status = job["metadata"], job.get("status") or {}
    labels = meta["labels"]
    state: State = "created" if job["spec"].get("suspend") else "running"
    conditions = {one.get("type") for one in status.get("conditions") or () if one.get("status") == "True"}
    if conditions & {"Complete", "Failed"}:
        state = "ended"
    started_at = datetime.fromisoformat(status["startTime"]) if status.get("startTime") else None
    return Found(
        meta["name"], UUID(labels[f"{LABEL}/execution"]), int(labels[f"{LABEL}/fence"]), state,
        float(labels[f"{LABEL}/deadline"]), ending="deletionTimestamp" in meta, started_at=started_at,
    )  # fmt: skip


def _exit_of(pod: Mapping[str, Any]) -> Exit | None:
    """How the pod's container ended; None while it has not. Raises RuntimeFailed for one that never will run."""
    status = pod.get("status") or {}
    terminated = _terminated(pod)
    if "exitCode" in terminated:
        code, reason = int(terminated["exitCode"]), terminated.get("reason")
        if code in NOT_STARTED and reason in ("StartError", "ContainerCannotRun"):
            raise RuntimeFailed("command_failed", str(terminated.get("message") or reason)[:500], retryable=False)
        return Exit(code, oom_killed=reason == "OOMKilled")
    if status.get("phase") == "Failed":
        if status.get("reason") == "DeadlineExceeded":
            return Exit(137, deadline_passed=True)
        said = f"{status.get('reason')}: {status.get('message')}"
        raise RuntimeFailed("container_gone", f"The pod failed without an exit code: {said}"[:500])
    waiting = _state_of(pod).get("waiting") or {}
    reason, said = waiting.get("reason"), str(waiting.get("message") or "")[:500]
    if reason in BAD_IMAGE:
        raise RuntimeFailed("image_missing", f"{reason}: {said}", retryable=BAD_IMAGE[reason])
    if reason in BAD_CONTAINER:
        raise RuntimeFailed("command_failed", f"{reason}: {said}", retryable=reason != "RunContainerError")
    return None


def _state_of(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    for one in (pod.get("status") or {}).get("containerStatuses") or ():
        if one.get("name") == CONTAINER:
            state: Mapping[str, Any] = one.get("state") or {}
            return state
    return {}


def _terminated(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = _state_of(pod).get("terminated") or {}
    return found


async def _lines(body: aiohttp.StreamReader) -> Any:
    """Lines of any length, which aiohttp's own reader refuses."""
    kept = bytearray()
    while data := await body.readany():
        kept += data
        *whole, rest = bytes(kept).split(b"\n")
        kept = bytearray(rest)
        for line in whole:
            if line:
                yield line
