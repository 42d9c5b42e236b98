"""The keeper of a worker's runc containers: a process that does nothing until the worker is dead, then ends them all.

The worker holds the other end of its standard input. However the worker dies, the kernel closes that end.
"""

import os
import signal
import sys
from pathlib import Path

from workers.executors.container_places import Places


def main(root: str, installation: str, owner: str, runc: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # meant for the worker: its end is what counts
        signal.signal(number, signal.SIG_IGN)
    while os.read(sys.stdin.fileno(), 64):
        pass
    places = Places(Path(root), installation, runc)
    ended = places.end_all_of(owner)
    if ended:
        print(f"keeper: the worker is gone; {ended} containers of it were ended", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
