"""runc: containers of this machine from root file systems that the operator laid out. Needs root.

`runc run` stays in the foreground as the container's parent and tells its exit code. A container can't be handed over
to another worker, since its output and its end go to this one: when the worker dies, its keeper ends them at once, and
should the keeper be dead too, the next worker's sweep does.
"""

import asyncio
import json
import logging
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from uuid import UUID, uuid4

from workers.executors.container_bundle import config_of
from workers.executors.container_output import Logs
from workers.executors.container_places import CONFIG, IO, LOG, META, PID, SCRATCH, Places, mount_tmpfs
from workers.executors.container_process import CGROUPS, Running, is_cgroup2, not_started, oom_kills
from workers.executors.container_runtime import Box, Exit, Found, Gone, NameTaken, RuntimeFailed

log = logging.getLogger(__name__)

PAYLOAD, RESULT = "payload.json", "result"  # in /shardbeat
RESULT_ROOM_KIB = 1_024  # more than is kept, so that too much is cut and does not fail
SCRATCH_INODES = 10_000
OWN_DIRECTORIES = ("/tmp", "/shardbeat")
KILL_S = 10.0
PIPES_S = 1.0  # for what a dead container's pipes still hold
KEEPER_S = 20.0
SILENCE_S = 8.0  # a worker's lease lasts so long
_BOOT = """\
import sys
sys.path.insert(0, sys.argv[1])
from workers.executors.container_keeper import main
main(*sys.argv[2:])
"""


class RuncRuntime:
    """See `container_runtime.Runtime`. `rootfs` maps image names to directories; nothing is ever pulled."""

    name, adopts = "runc", False

    def __init__(
        self, *, root: Path, installation: str, rootfs: Mapping[str, Path], runc: str = "runc",
        silence_s: float = SILENCE_S,
    ) -> None:  # fmt: skip
        self._places = Places(root, installation, runc)
        self._installation, self._rootfs, self._runc, self._root = installation, dict(rootfs), runc, root
        self._owner, self._silence_s = uuid4().hex, silence_s
        self._lock_fd = -1
        self._keeper: subprocess.Popen[bytes] | None = None
        self._running: dict[tuple[str, int], Running] = {}  # by place and fence
        self._limit_swap = (CGROUPS / "memory/memory.memsw.limit_in_bytes").exists() or is_cgroup2()

    def unusable(self) -> str | None:
        """Why containers can't be run here; None when they can."""
        if os.geteuid() != 0:
            return "runc needs a worker that runs as root"
        if shutil.which(self._runc) is None:
            return f"{self._runc} is not installed"
        missing = [f"{image}={path}" for image, path in self._rootfs.items() if not path.is_dir()]
        return f"there is no root file system: {', '.join(missing)}" if missing else None

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._places.make()
        self._lock_fd = self._places.hold_lock(self._owner)
        self._start_keeper()
        self._tell_keeper()

    async def close(self) -> None:
        if self._keeper is not None and self._keeper.stdin:
            self._telling.cancel()
            self._loop.remove_reader(self._keeper_fd)
            os.close(self._keeper_fd)
            self._keeper.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._keeper.wait(KEEPER_S)
        os.close(self._lock_fd)
        for running in self._running.values():  # their containers are dead by now
            running.process.kill()
            await asyncio.wait({running.ended}, timeout=KILL_S)
            running.stdout.close()
            running.stderr.close()

    def _start_keeper(self) -> None:
        home = Path(__file__).resolve().parents[2]
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOOT, str(home), str(self._root), self._installation, self._owner,
             self._runc, str(self._silence_s)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True, cwd="/",
        )  # fmt: skip
        assert self._keeper.stdin
        os.set_blocking(self._keeper.stdin.fileno(), False)
        self._keeper_fd = os.pidfd_open(self._keeper.pid)
        self._loop.add_reader(self._keeper_fd, self._renew_keeper)

    def _tell_keeper(self) -> None:
        """That this loop still goes round."""
        assert self._keeper and self._keeper.stdin
        with suppress(OSError):
            os.write(self._keeper.stdin.fileno(), b".")
        self._telling = self._loop.call_later(self._silence_s / 4, self._tell_keeper)

    def _renew_keeper(self) -> None:
        assert self._keeper and self._keeper.stdin
        log.error("the keeper of this worker's containers ended (%s); starting another", self._keeper.wait())
        self._loop.remove_reader(self._keeper_fd)
        os.close(self._keeper_fd)
        self._keeper.stdin.close()
        self._start_keeper()

    async def create(self, box: Box) -> Found:
        rootfs = self._rootfs.get(box.target.image)
        if rootfs is None:
            message = f"There is no root file system for {box.target.image} here; the operator lays them out."
            raise RuntimeFailed("image_missing", message, retryable=False)
        _check_directory(rootfs, box.target.working_dir)
        place = self._places.boxes / box.execution_id.hex
        new = self._places.boxes / f".{box.name}-{uuid4().hex[:8]}"
        meta = {
            "container": box.name, "execution": str(box.execution_id), "fence": box.fence, "owner": self._owner,
            "deadline_s": box.deadline.timestamp(), "image": box.target.image, "tenant": box.tenant,
        }  # fmt: skip
        config = config_of(
            box, rootfs=rootfs, io=place / IO, scratch=place / SCRATCH,
            cgroup=f"/shardbeat/{self._installation}/{box.name}", limit_swap=self._limit_swap,
        )  # fmt: skip
        try:
            new.mkdir(mode=0o700)
            (new / IO).mkdir()
            (new / SCRATCH).mkdir()
            (new / META).write_text(json.dumps(meta))
            (new / CONFIG).write_text(json.dumps(config))
            (new / CONFIG).chmod(0o600)  # it may hold secrets
            new.rename(place)
        except OSError as error:
            shutil.rmtree(new, ignore_errors=True)
            if place.exists():
                raise NameTaken from None
            raise RuntimeFailed("container_failed", f"The container can't be laid out: {error.strerror}.") from None
        try:
            self._fill(place / IO, box)
        except OSError as error:
            await self._end(place, box.name)
            raise RuntimeFailed("container_failed", f"/shardbeat can't be made: {error.strerror}.") from None
        return _found(place, meta, orphan=False)

    def _fill(self, io: Path, box: Box) -> None:
        mount_tmpfs(io, kib=RESULT_ROOM_KIB + len(box.payload) // 1_024 + 64, inodes=16, mode=0o755)
        (io / PAYLOAD).write_bytes(box.payload)
        (io / PAYLOAD).chmod(0o444)
        (io / RESULT).touch(mode=0o600)
        os.chown(io / RESULT, box.target.uid, box.target.gid)
        if box.target.scratch_mb:
            kib = box.target.scratch_mb * 1_024
            mount_tmpfs(io.parent / SCRATCH, kib=kib, inodes=SCRATCH_INODES, mode=0o1777, execute=True)

    async def start(self, found: Found, box: Box) -> None:
        place = Path(found.ref)
        command = self._places.command(
            "--log", str(place / LOG), "--log-format", "json", "run", "--keep", "--no-new-keyring", "--pid-file",
            str(place / PID), "--bundle", str(place), box.name,
        )  # fmt: skip
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/",
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise RuntimeFailed("container_failed", f"runc can't be started: {error.strerror}.") from None
        self._running[(found.ref, found.fence)] = Running(process, self._loop)

    async def wait(self, found: Found) -> Exit:
        running = self._of(found)
        code = await asyncio.shield(running.ended)
        place = Path(found.ref)
        kept = self._places.one(place.name)
        if kept is None or kept[1]["fence"] != found.fence:  # removed from outside, or by a newer attempt
            raise Gone
        if not (place / PID).exists():
            raise not_started(place / LOG, code)
        return Exit(code, oom_killed=oom_kills(f"/shardbeat/{self._installation}/{kept[1]['container']}") > 0)

    async def adopt(self, found: Found, box: Box) -> Found | None:
        return None

    async def stop(self, found: Found, grace_s: float) -> None:
        running = self._running.get((found.ref, found.fence))
        if running is None or running.ended.done():
            return
        for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, KILL_S)):
            init = running.init_pidfd(Path(found.ref))
            if init is None:  # not made yet
                running.process.kill()
            else:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(init, number)
                os.close(init)
            await asyncio.wait({running.ended}, timeout=wait_s)
            if running.ended.done():
                return
        raise RuntimeFailed("container_failed", "The container does not end on KILL.")

    async def logs(self, found: Found) -> Logs:
        running = self._of(found)
        complete = await running.stdout.wait_end(PIPES_S) and await running.stderr.wait_end(PIPES_S)
        return Logs(running.stdout.tail, running.stderr.tail, complete)

    async def result(self, found: Found, max_bytes: int) -> bytes | None:
        """Opened without following links: the container may have put anything there."""
        try:
            fd = os.open(Path(found.ref, IO, RESULT), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return None
            return os.read(fd, max_bytes) or None
        finally:
            os.close(fd)

    async def remove(self, found: Found) -> None:
        place = Path(found.ref)
        kept = self._places.one(place.name)
        if kept is not None and kept[1]["fence"] == found.fence:  # else it is another attempt's by now
            await self.stop(found, 0)
            await self._end(place, kept[1]["container"])
        if running := self._running.pop((found.ref, found.fence), None):
            running.stdout.close()
            running.stderr.close()

    async def find(self, installation: str, execution_id: UUID | None = None) -> list[Found]:
        if execution_id is None:
            return [self._describe(*one) for one in self._places.all()]
        one = self._places.one(execution_id.hex)
        return [self._describe(*one)] if one else []

    def _describe(self, place: Path, meta: Mapping[str, object]) -> Found:
        owner = str(meta["owner"])
        return _found(place, meta, orphan=owner != self._owner and not self._places.owner_lives(owner))

    def _of(self, found: Found) -> Running:
        running = self._running.get((found.ref, found.fence))
        if running is None:
            raise Gone
        return running

    async def _end(self, place: Path, container: str) -> None:
        try:
            await self._loop.run_in_executor(None, self._places.end, place, container)
        except (OSError, subprocess.SubprocessError) as error:
            raise RuntimeFailed("container_failed", f"A container can't be removed: {error}") from None


def _found(place: Path, meta: Mapping[str, object], *, orphan: bool) -> Found:
    deadline_s = float(str(meta["deadline_s"]))
    return Found(
        str(place), UUID(str(meta["execution"])), int(str(meta["fence"])), "running", deadline_s, orphan=orphan
    )  # fmt: skip


def _check_directory(rootfs: Path, inside: str) -> None:
    """runc would make a working directory that is missing: in what all containers of this image share."""
    path = rootfs.resolve() / inside.strip("/")
    if inside.rstrip("/") not in OWN_DIRECTORIES and (path.resolve() != path or not path.is_dir()):
        raise RuntimeFailed("command_failed", f"There is no directory {inside} in the image.", retryable=False)
