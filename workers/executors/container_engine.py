"""A container as the Docker Engine API takes it, and the archive that goes in. Pure."""

import io
import tarfile
from typing import Any

from workers.executors.container_runtime import STOP_GRACE_S, Box

MB = 1_048_576


def container_of(box: Box) -> dict[str, Any]:
    """The body of a create request."""
    target = box.target
    memory = target.memory_mb * MB
    host: dict[str, Any] = {
        "NetworkMode": target.network,
        "Memory": memory,
        "MemorySwap": memory,
        "NanoCpus": int(target.cpu * 1_000_000_000),
        "PidsLimit": target.pids,
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "OomScoreAdj": 500,
        "Init": True,  # so that TERM ends commands that do not care for it
        "RestartPolicy": {"Name": "no"},
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "2"}},
        "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
        "Mounts": [{"Type": "volume", "Target": "/shardbeat"}],
    }
    if target.scratch_mb:
        host["Tmpfs"] = {"/tmp": f"rw,nosuid,nodev,exec,mode=1777,size={target.scratch_mb}m"}
    made: dict[str, Any] = {
        "Image": target.image,
        "User": f"{target.uid}:{target.gid}",
        "Env": [f"{name}={value}" for name, value in target.environment.items()],
        "Labels": box.labels(),
        "NetworkDisabled": target.network == "none",
        "StopTimeout": int(STOP_GRACE_S),
        "HostConfig": host,
    }
    if target.command:
        made["Entrypoint"] = list(target.command)
    if target.command or target.args:
        made["Cmd"] = list(target.args)
    if target.working_dir:
        made["WorkingDir"] = target.working_dir
    return made


def archive_of(box: Box) -> bytes:
    """payload.json, and an empty result that only the container's user may write."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data, mode in (("payload.json", box.payload, 0o444), ("result", b"", 0o600)):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), mode
            if name == "result":
                member.uid, member.gid = box.target.uid, box.target.gid
            archive.addfile(member, io.BytesIO(data))
    return made.getvalue()
