"""Plain Celery for comparison: run as a module it puts no-op tasks on the queue."""

import os
import sys

from celery import Celery

app = Celery("plain", broker=os.environ["BROKER_URL"])
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=64, task_default_queue="plain")


@app.task(name="plain.noop")
def noop() -> None:
    """Does nothing."""


def main(count: int) -> None:
    with app.producer_pool.acquire(block=True) as producer:
        for _ in range(count):
            noop.apply_async(producer=producer)


if __name__ == "__main__":
    main(int(sys.argv[1]))
