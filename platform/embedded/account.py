"""Which user PostgreSQL runs as: it refuses to run as root.

An ordinary user runs it himself. Root runs it as the owner of the data, else as `postgres` or `nobody` where that user
can reach the folder and the binaries, else inside a user name space, where root's own files look like nobody's: that
also works below a folder that only root may enter.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embedded.process import ServiceError

PREFERRED_USERS = ("postgres", "nobody")
NAMESPACE_ID = 65534


@dataclass(frozen=True)
class Account:
    """How to start a program as the chosen user."""

    uid: int
    gid: int
    prefix: tuple[str, ...] = ()
    credentials: dict[str, Any] = field(default_factory=dict)

    def own(self, path: Path) -> None:
        """Give a file or folder to the user, where that is another one than ours."""
        if self.uid != os.geteuid():
            os.chown(path, self.uid, self.gid)


def choose_account(*, data: Path, binaries: Path) -> Account:
    """The account for this data folder. Raises ServiceError when nobody but another user could open it."""
    me = os.geteuid()
    owner = data.stat().st_uid if data.exists() else None
    if me != 0:
        if owner not in (None, me):
            raise ServiceError(f"{data} belongs to {_name(owner)}; run as that user or remove it (make clean)")
        return Account(uid=me, gid=os.getegid())
    if owner is not None:
        return _namespace() if owner == 0 else _user(owner)
    for name in PREFERRED_USERS:
        entry = _entry(name)
        if entry and can_reach((data.parent, binaries), uid=entry.pw_uid, gid=entry.pw_gid):
            return _user(entry.pw_uid)
    return _namespace()


def can_reach(paths: Iterable[Path], *, uid: int, gid: int) -> bool:
    """Whether a user without other groups may enter every folder on the way to these paths and read them."""
    for path in paths:
        for place in (path.resolve(), *path.resolve().parents):
            info = place.stat()
            if info.st_uid == uid:
                need = stat.S_IXUSR
            elif info.st_gid == gid:
                need = stat.S_IXGRP
            else:
                need = stat.S_IXOTH
            if not info.st_mode & need:
                return False
    return True


def _user(uid: int) -> Account:
    try:
        gid = pwd.getpwuid(uid).pw_gid
    except KeyError:
        gid = uid
    return Account(uid=uid, gid=gid, credentials={"user": uid, "group": gid, "extra_groups": []})


def _namespace() -> Account:
    unshare = shutil.which("unshare")
    prefix = (str(unshare), "-U", f"--map-user={NAMESPACE_ID}", f"--map-group={NAMESPACE_ID}", "--")
    if unshare is None or subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
        raise ServiceError(
            "PostgreSQL does not run as root, no user 'postgres' or 'nobody' can reach this folder, and user name"
            " spaces are not allowed here; use a checkout outside of root's home, or an ordinary user"
        )
    return Account(uid=0, gid=0, prefix=prefix)


def _entry(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def _name(uid: int | None) -> str:
    try:
        return f"user {pwd.getpwuid(int(uid or 0)).pw_name}"
    except KeyError:
        return f"uid {uid}"
