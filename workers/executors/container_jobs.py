"""The Job and the Secret of a container, as Kubernetes takes them. Pure."""

import base64
import math
from typing import Any

from workers.executors.container_runtime import LABEL, PAYLOAD_PATH, RESULT_PATH, STOP_GRACE_S, Box

CONTAINER = "main"
KEPT_S = 3_600  # after its end, for whoever takes it over
DEADLINE_SLACK_S = 30  # the worker ends it at its time-out; this is for one whose worker is dead
PULL = {"never": "Never", "missing": "IfNotPresent", "always": "Always"}


def job_of(box: Box, *, pull: str) -> dict[str, Any]:
    """Suspended: it runs when it is resumed."""
    target = box.target
    labels = box.labels() | {
        f"{LABEL}/container": box.name, f"{LABEL}/network": target.network, "app.kubernetes.io/managed-by": "shardbeat",
    }  # fmt: skip
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": box.name, "labels": labels},
        "spec": {
            "suspend": True,
            "backoffLimit": 0,
            "completions": 1,
            "parallelism": 1,
            "activeDeadlineSeconds": math.ceil(box.timeout_s) + DEADLINE_SLACK_S,
            "ttlSecondsAfterFinished": KEPT_S,
            "template": {"metadata": {"labels": labels}, "spec": _pod(box, pull)},
        },
    }


def secret_of(box: Box, *, job_uid: str) -> dict[str, Any]:
    """The payload and the values of the variables; deleted with the Job."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": box.name, "uid": job_uid}
    values = {"payload.json": box.payload} | {name: value.encode() for name, value in box.target.environment.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": box.name, "labels": box.labels(), "ownerReferences": [owner]},
        "immutable": False,
        "type": "Opaque",
        "data": {name: base64.b64encode(value).decode() for name, value in values.items()},
    }


def _pod(box: Box, pull: str) -> dict[str, Any]:
    target = box.target
    mounts = [{"name": "payload", "mountPath": PAYLOAD_PATH, "subPath": "payload.json", "readOnly": True}]
    volumes: list[dict[str, Any]] = [
        {
            "name": "payload",
            "secret": {
                "secretName": box.name, "defaultMode": 0o444,
                "items": [{"key": "payload.json", "path": "payload.json"}],
            },
        }
    ]  # fmt: skip
    if target.scratch_mb:
        mounts.append({"name": "scratch", "mountPath": "/tmp"})
        volumes.append({"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": f"{target.scratch_mb}Mi"}})
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": max(1, int(STOP_GRACE_S)),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": target.uid != 0,
            "runAsUser": target.uid,
            "runAsGroup": target.gid,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": volumes,
        "containers": [_container(box, pull, mounts)],
    }


def _container(box: Box, pull: str, mounts: list[dict[str, Any]]) -> dict[str, Any]:
    target = box.target
    limits = {"cpu": f"{round(target.cpu * 1_000)}m", "memory": f"{target.memory_mb}Mi"}
    made: dict[str, Any] = {
        "name": CONTAINER,
        "image": target.image,
        "imagePullPolicy": PULL[pull],
        "env": [
            {"name": name, "valueFrom": {"secretKeyRef": {"name": box.name, "key": name}}}
            for name in target.environment
        ],
        "resources": {"limits": limits, "requests": limits},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "privileged": False,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePath": RESULT_PATH,
        "terminationMessagePolicy": "File",
        "volumeMounts": mounts,
    }
    if target.command:
        made["command"] = list(target.command)
    if target.args:
        made["args"] = list(target.args)
    if target.working_dir:
        made["workingDir"] = target.working_dir
    return made
