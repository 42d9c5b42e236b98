"""Plain Celery for comparison: run as a script it sends no-op tasks and prints how many a second were done."""

import os
import sys
import time

import redis
from celery import Celery

app = Celery("plain", broker=os.environ["BROKER_URL"])
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=64, task_default_queue="plain")
COUNTER = "plain:done"
_client = redis.Redis.from_url(os.environ["BROKER_URL"])


@app.task(name="plain.noop")
def noop(last: bool = False) -> None:
    """Does nothing; the last ones count."""
    if last:
        _client.incr(COUNTER)


def main(count: int) -> float:
    _client.delete(COUNTER)
    noop.delay(True)
    while int(_client.get(COUNTER) or 0) < 1:  # the workers are up
        time.sleep(0.05)
    with app.producer_pool.acquire(block=True) as producer:
        for _ in range(count):
            noop.apply_async(producer=producer)
    backlog = _client.llen("plain")
    begun = time.monotonic()
    while _client.llen("plain"):
        time.sleep(0.02)
    return backlog / (time.monotonic() - begun)


if __name__ == "__main__":
    sys.path[:0] = ["."]
    print(main(int(sys.argv[1])))
