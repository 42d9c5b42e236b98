"""The OCI runtime configuration of a container for runc: no capabilities, no network, a root that is read. Pure."""

from pathlib import Path
from typing import Any

from workers.executors.container_runtime import Box

PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HOST_NETWORK = "host"
CPU_PERIOD_US = 100_000
MB = 1_048_576
OPEN_FILES = 1_024
# Ways into the kernel that a job has no need for, and that broke out of containers before.
DENIED_CALLS = (
    "acct", "add_key", "bpf", "clock_adjtime", "clock_settime", "create_module", "delete_module", "finit_module",
    "fsconfig", "fsmount", "fsopen", "fspick", "init_module", "io_uring_enter", "io_uring_register", "io_uring_setup",
    "kcmp", "kexec_file_load", "kexec_load", "keyctl", "lookup_dcookie", "mount", "mount_setattr", "move_mount",
    "name_to_handle_at", "nfsservctl", "open_by_handle_at", "open_tree", "perf_event_open", "personality", "pivot_root",
    "process_vm_readv", "process_vm_writev", "ptrace", "quotactl", "reboot", "request_key", "setns", "settimeofday",
    "swapoff", "swapon", "syslog", "umount2", "unshare", "userfaultfd", "vhangup",
)  # fmt: skip
CLONE_NEWUSER = 0x10000000
AF_VSOCK, EAFNOSUPPORT = 40, 97  # leads to the hypervisor, and belongs to no network namespace
MASKED = (
    "/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
    "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
)  # fmt: skip
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


def config_of(
    box: Box, *, rootfs: Path, io: Path, scratch: Path, cgroup: str, limit_swap: bool
) -> dict[str, Any]:  # fmt: skip
    """`io` and `scratch` are the directories that become /shardbeat and /tmp.

    Without `limit_swap` the kernel can't count swap.
    """
    target = box.target
    memory = target.memory_mb * MB
    namespaces = ["pid", "ipc", "uts", "mount"] + (["network"] if target.network != HOST_NETWORK else [])
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": target.uid, "gid": target.gid, "additionalGids": []},
            "args": [*target.command, *target.args],
            "env": [PATH, "HOME=/tmp", *(f"{name}={value}" for name, value in target.environment.items())],
            "cwd": target.working_dir or "/",
            "capabilities": {kind: [] for kind in ("bounding", "effective", "permitted", "inheritable", "ambient")},
            "rlimits": [
                {"type": "RLIMIT_NOFILE", "hard": OPEN_FILES, "soft": OPEN_FILES},
                {"type": "RLIMIT_CORE", "hard": 0, "soft": 0},
            ],
            "noNewPrivileges": True,
            "oomScoreAdj": 500,
        },
        "root": {"path": str(rootfs), "readonly": True},
        "hostname": "container",
        "mounts": _mounts(box, io, scratch),
        "annotations": box.labels(),
        "linux": {
            "cgroupsPath": cgroup,
            "resources": {
                "devices": [{"allow": False, "access": "rwm"}],
                "memory": {"limit": memory, **({"swap": memory} if limit_swap else {})},
                "pids": {"limit": target.pids},
                "cpu": {"quota": int(target.cpu * CPU_PERIOD_US), "period": CPU_PERIOD_US, "shares": 512},
            },
            "namespaces": [{"type": kind} for kind in namespaces],
            "maskedPaths": list(MASKED),
            "readonlyPaths": list(READ_ONLY),
            "seccomp": _seccomp(),
        },
    }


def _mounts(box: Box, io: Path, scratch: Path) -> list[dict[str, Any]]:
    plain = ["nosuid", "noexec", "nodev"]
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc", "options": plain},
        _tmpfs("/dev", "nosuid", "strictatime", "mode=755", "size=64k"),
        {
            "destination": "/dev/pts", "type": "devpts", "source": "devpts",
            "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"],
        },
        _tmpfs("/dev/shm", *plain, "mode=1777", f"size={min(8, box.target.memory_mb)}m"),
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": [*plain, "ro"]},
        _bound("/shardbeat", io, *plain),
    ]  # fmt: skip
    if box.target.network == HOST_NETWORK:
        mounts[4] = _tmpfs("/sys", *plain, "ro", "size=4k")  # a sysfs belongs to a network namespace of one's own
    if box.target.scratch_mb:
        mounts.append(_bound("/tmp", scratch, "nosuid", "nodev"))
    return mounts


def _tmpfs(destination: str, *options: str) -> dict[str, Any]:
    return {"destination": destination, "type": "tmpfs", "source": "tmpfs", "options": list(options)}


def _bound(destination: str, source: Path, *options: str) -> dict[str, Any]:
    return {"destination": destination, "type": "bind", "source": str(source), "options": ["bind", "rw", *options]}


def _seccomp() -> dict[str, Any]:
    new_user = {"index": 0, "value": CLONE_NEWUSER, "valueTwo": CLONE_NEWUSER, "op": "SCMP_CMP_MASKED_EQ"}
    to_hypervisor = {"index": 0, "value": AF_VSOCK, "op": "SCMP_CMP_EQ"}
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [
            {"names": list(DENIED_CALLS), "action": "SCMP_ACT_ERRNO", "errnoRet": 1},
            {"names": ["clone"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1, "args": [new_user]},
            {"names": ["socket"], "action": "SCMP_ACT_ERRNO", "errnoRet": EAFNOSUPPORT, "args": [to_hypervisor]},
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38},  # its flags can't be seen: use clone
        ],
    }
