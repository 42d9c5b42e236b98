"""What runs containers, behind one interface: runc on this machine, a Docker Engine or a Podman socket, Kubernetes.

A container is called after its execution and attempt and carries both, the fence and the installation, so that whoever
comes after a worker's death finds it. `create` refuses a name that is taken; nothing runs before `start`.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol
from uuid import UUID

from kernel.containerrules import Target
from workers.executors.container_output import Logs

State = Literal["created", "running", "ended"]

PAYLOAD_PATH = "/shardbeat/payload.json"
RESULT_PATH = "/shardbeat/result"
LABEL = "shardbeat"  # prefix of the labels; a container without ours is never touched
STOP_GRACE_S = 1.5  # between TERM and KILL: a cancel must be done in 3 s


@dataclass(frozen=True, slots=True)
class Box:
    """One container to run: the target with its secrets filled in, and whose attempt it is."""

    installation: str
    execution_id: UUID
    attempt: int
    fence: int
    tenant: str
    job_id: UUID
    target: Target  # its environment is texts only, SHARDBEAT_ variables included
    payload: bytes  # JSON
    deadline: datetime  # of the attempt: nobody needs the container after it
    timeout_s: float

    @property
    def name(self) -> str:
        """At most 63 characters, as Kubernetes has it."""
        return f"sb-{self.installation}-{self.execution_id.hex}-{self.attempt}"

    def labels(self) -> dict[str, str]:
        return {
            f"{LABEL}/installation": self.installation,
            f"{LABEL}/execution": str(self.execution_id),
            f"{LABEL}/attempt": str(self.attempt),
            f"{LABEL}/fence": str(self.fence),
            f"{LABEL}/tenant": self.tenant,
            f"{LABEL}/job": str(self.job_id),
            f"{LABEL}/deadline": str(int(self.deadline.timestamp())),
        }


@dataclass(frozen=True, slots=True)
class Found:
    """A container of this installation. `ref` is the runtime's own word for it."""

    ref: str
    execution_id: UUID
    fence: int  # of the attempt that has it now, which may have adopted it
    state: State
    deadline_s: float  # Unix time
    ending: bool = False  # somebody has begun to stop it
    started_at: datetime | None = None
    orphan: bool = False  # its worker is known to be dead


@dataclass(frozen=True, slots=True)
class Exit:
    """How a container ended."""

    code: int
    oom_killed: bool = False
    deadline_passed: bool = False  # the runtime ended it, at the attempt's time-out


class RuntimeFailed(Exception):
    """The runtime did not do what it was asked. `class_` and the text go into the attempt's error.

    `available` is false when the runtime could not be asked at all: nobody's attempt is to pay for that. `status` is
    its answer's, where there was one.
    """

    def __init__(
        self, class_: str, message: str, *, retryable: bool = True, available: bool = True, status: int = 0
    ) -> None:
        super().__init__(message)
        self.class_, self.message, self.retryable = class_, message, retryable
        self.available, self.status = available, status


class NameTaken(Exception):
    """There is a container of this execution already."""


class Gone(Exception):
    """The container is not there (any more)."""


class Runtime(Protocol):
    """All methods are called in the executor's loop; all but `open` and `close` raise RuntimeFailed."""

    name: str
    adopts: bool  # a container may outlive its worker and be taken over

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def create(self, box: Box) -> Found:
        """Makes a container that does not run yet. Raises NameTaken."""

    async def start(self, found: Found, box: Box) -> None:
        """Lets it run."""

    async def wait(self, found: Found) -> Exit:
        """Waits for its end, without polling where the runtime can tell. Raises Gone."""

    async def adopt(self, found: Found, box: Box) -> Found | None:
        """Makes the container of an earlier attempt this one's; None when it has changed meanwhile."""

    async def stop(self, found: Found, grace_s: float) -> None:
        """TERM, and KILL after `grace_s` seconds. Returns when it has ended, is gone, or is another attempt's."""

    async def logs(self, found: Found) -> Logs:
        """The last part of what it wrote; as much as can be had."""

    async def result(self, found: Found, max_bytes: int) -> bytes | None:
        """The artefact, cut after `max_bytes` bytes; None when it wrote none."""

    async def remove(self, found: Found) -> None:
        """Ends it, waits for that, and removes all that was made for it.

        Fine when it is gone already; one that another attempt has taken over is left alone.
        """

    async def find(self, installation: str, execution_id: UUID | None = None) -> list[Found]:
        """The containers of this installation, or of one execution."""
