"""A root file system of busybox for runc, and why there is none. Nothing is downloaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from workers.executors.container_places import mount_tmpfs, unmount

IMAGE = "busybox"


def why_not() -> str | None:
    """Why containers can't be run here; None when they can."""
    if os.geteuid() != 0:
        return "runc runs containers as root only"
    missing = [name for name in ("runc", "busybox") if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} not installed (Debian: runc busybox-static)"
    linked = subprocess.run(["ldd", str(shutil.which("busybox"))], capture_output=True, check=False)
    if linked.returncode == 0:
        return "busybox is not the static one (Debian: busybox-static)"
    if not os.access("/sys/fs/cgroup", os.W_OK):
        return "control groups can't be changed here"
    with tempfile.TemporaryDirectory() as folder:
        try:
            mount_tmpfs(Path(folder), kib=64, inodes=4, mode=0o755)
        except OSError as error:
            return f"nothing can be mounted here: {error.strerror}"
        unmount(Path(folder))
    return None


def make_rootfs(folder: Path) -> Path:
    """busybox with all its names below `folder`."""
    busybox = shutil.which("busybox")
    assert busybox
    folder.chmod(0o755)  # it becomes the root of somebody else
    binaries = folder / "bin"
    binaries.mkdir(parents=True)
    shutil.copy(busybox, binaries / "busybox")
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    for name in set(listed) - {"busybox"}:
        (binaries / name).symlink_to("busybox")
    for name in ("dev", "etc", "proc", "shardbeat", "sys", "tmp"):
        (folder / name).mkdir()
    (folder / "etc" / "passwd").write_text("root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")
    return folder
