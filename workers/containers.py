"""The container executor as the settings want it, and what the database says about containers that nobody holds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from django.conf import settings

from apps.tickets import holding
from kernel.containerrules import RUNTIMES, rules_of
from kernel.errors import Conflict
from tenants.door import Line
from workers.executors.base import Key
from workers.executors.container import ContainerExecutor
from workers.executors.container_docker import DockerRuntime
from workers.executors.container_kubernetes import KubernetesRuntime
from workers.executors.container_runc import RuncRuntime
from workers.executors.container_runtime import Runtime


def container_executor() -> ContainerExecutor:
    """Raises Conflict when the settings name no runtime, or one that can't be used here."""
    return ContainerExecutor(
        _runtime(), rules=rules_of(settings), installation=settings.INSTALLATION, alive=alive,
        slots=settings.CONTAINER_SLOTS,
    )  # fmt: skip


def alive(keys: Sequence[Key]) -> Mapping[Key, Literal["running", "waiting"]]:
    """Which of these attempts run, and which were the last of an execution that waits for its next one."""
    line = Line("container sweep")
    try:
        return holding.alive(line.get(), keys)
    finally:
        line.close()


def _runtime() -> Runtime:
    match settings.CONTAINER_RUNTIME:
        case "runc":
            made = RuncRuntime(
                root=Path(settings.CONTAINER_RUNC_DIR), installation=settings.INSTALLATION,
                rootfs={image: Path(path) for image, path in settings.CONTAINER_ROOTFS.items()},
                silence_s=settings.WORKER_TTL_S,
            )  # fmt: skip
            if why := made.unusable():
                raise Conflict(f"CONTAINER_RUNTIME=runc can't be used: {why}.")
            return made
        case "docker":
            return DockerRuntime(settings.CONTAINER_DOCKER_URL, pull=settings.CONTAINER_PULL)
        case "kubernetes":
            return KubernetesRuntime(
                settings.CONTAINER_KUBERNETES_URL, account=Path(settings.CONTAINER_KUBERNETES_ACCOUNT),
                namespace=settings.CONTAINER_KUBERNETES_NAMESPACE, pull=settings.CONTAINER_PULL,
            )  # fmt: skip
    raise Conflict(f"WORKER_POOLS names container: set CONTAINER_RUNTIME to {', '.join(RUNTIMES)}.")
