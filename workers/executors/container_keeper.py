"""The keeper of a worker's runc containers: a process that does nothing until the worker is dead, then ends them all.

The worker holds the other end of its standard input and says something now and then. However it dies, the kernel closes
that end; one that is silent for longer than its lease lasts is frozen, and its runs are somebody else's by now.
"""

import os
import select
import signal
import sys
from pathlib import Path

from workers.executors.container_places import Places


def main(root: str, installation: str, owner: str, runc: str, silence_s: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # meant for the worker: its end is what counts
        signal.signal(number, signal.SIG_IGN)
    places, told = Places(Path(root), installation, runc), False
    while True:
        if not select.select([sys.stdin], [], [], None if told else float(silence_s))[0]:
            told = True
            _say("silent", places.end_all_of(owner))
        elif os.read(sys.stdin.fileno(), 64):
            told = False
        else:
            _say("gone", places.end_all_of(owner))
            places.forget(owner)
            return


def _say(how: str, ended: int) -> None:
    if ended:
        print(f"keeper: the worker is {how}; {ended} containers of it were ended", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
