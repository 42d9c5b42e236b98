"""Kinds of worker and their numbers, and the names of the Celery queues inside them."""

POOLS = ("http", "python", "container", "pull", "queue")
POOL_NUMBER = {name: number for number, name in enumerate(POOLS)}
PULL = "pull"  # its tickets wait for the tenant's own workers
DELIVERY = "queue"  # pull jobs that our workers put on the tenant's own broker
CELERY_POOLS = ("http", "python", "container", DELIVERY)
BATCH_TASK = "shardbeat.batch"  # the Celery task that a release rings
SYSTEM_QUEUE = "shardbeat.system"  # the platform's own housekeeping


def own_queue(pool: str, slug: str) -> str:
    """The queue of a tenant that has one of its own."""
    return f"{pool}.own.{slug}"


def shared_queue(pool: str, number: int) -> str:
    """One of the queues that the long tail of tenants shares."""
    return f"{pool}.shared.{number}"


def pool_of(kind: str, queue: str) -> str:
    """The pool of a job's runs. A pull job names a queue of its tenant, or has its runs delivered to a broker."""
    return DELIVERY if kind == PULL and not queue else kind
