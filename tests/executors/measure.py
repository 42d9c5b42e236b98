"""How fast the executors are: `python -m tests.executors.measure http|python [works]` from the repository's root.

The HTTP receiver is another process, so its CPU is not counted; the figures are of this process.
"""

import resource
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from tests.executors.works import make_work
from workers.executors.base import Executor, Result, Work

RECEIVER = """
import asyncio, uvloop
from aiohttp import web
async def answer(request):
    await request.read()
    return web.Response(text="ok")
async def main():
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(site._server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()
uvloop.run(main())
"""


def main() -> None:
    kind, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20_000
    (measure_http if kind == "http" else measure_python)(count)


def measure_http(count: int) -> None:
    from workers.executors.http import HttpExecutor

    receiver = subprocess.Popen([sys.executable, "-c", RECEIVER], stdout=subprocess.PIPE, text=True)
    assert receiver.stdout
    port = int(receiver.stdout.readline())
    executor = HttpExecutor(slots=200)
    executor.start()
    secret = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    target = {"url": f"http://127.0.0.1:{port}/hook", "headers": {"X-Team": "billing"}}
    works = [make_work("http", target, signing_secrets=(secret,)) for _ in range(count)]
    try:
        run("warm-up", executor, works[: count // 10], in_flight=100)
        run("http calls", executor, works[count // 10 :], in_flight=100)
    finally:
        executor.stop(1)
        receiver.kill()
        receiver.wait()


def measure_python(count: int) -> None:
    from workers.executors.python import PythonExecutor

    for children in (1, 2):
        executor = PythonExecutor(registry={"tests.noop": "tests.executors.sample_tasks:noop"}, children=children)
        executor.start()
        works = [make_work("python", {"task": "tests.noop"}) for _ in range(count)]
        try:
            run("warm-up", executor, works[: count // 10], in_flight=None)
            run(f"no-ops, {children} children", executor, works[count // 10 :], in_flight=None)
        finally:
            executor.stop(1)


def run(name: str, executor: Executor, works: Sequence[Work], *, in_flight: int | None, batch: int = 50) -> None:
    """Keep `in_flight` works submitted, or as many as there are slots, in batches, until all are done."""
    changed, finished, failed = threading.Condition(), [0], [0]

    def done(work: Work, result: Result) -> None:
        failed[0] += result.outcome != "succeeded"
        finished[0] += 1
        if finished[0] % (batch // 2) == 0 or finished[0] == len(works):
            with changed:
                changed.notify()

    began, cpu = time.perf_counter(), cpu_s()
    sent = 0
    while finished[0] < len(works):
        while sent < len(works) and (room := (in_flight or executor.slots) - (sent - finished[0])) > 0:
            executor.submit(works[sent : sent + min(room, batch)], done)
            sent = min(sent + min(room, batch), len(works))
        with changed:
            changed.wait(0.05)
    took = time.perf_counter() - began
    cpu = cpu_s() - cpu
    print(f"{name}: {len(works) / took:,.0f}/s, {cpu / len(works) * 1e6:,.0f} us CPU each here, {failed[0]} failed")


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
