"""Kinds of worker and their numbers, and the names of the Celery queues inside them."""

POOLS = ("http", "python", "container", "pull", "queue")
POOL_NUMBER = {name: number for number, name in enumerate(POOLS)}
PULL = "pull"  # its tickets wait for the tenant's own workers
DELIVERY = "queue"  # pull jobs that our workers put on the tenant's own broker
CELERY_POOLS = ("http", "python", "container", DELIVERY)
BATCH_TASK = "shardbeat.batch"  # the Celery task that a release rings
RESERVING = ("http",)  # pools of many slots, whose runs may all wait for one slow target
RESERVED_SHARE = 10  # one of so many slots is kept free for the others
SYSTEM_QUEUE = "shardbeat.system"  # the platform's own housekeeping


def reserve_of(pool: str, slots: int) -> int:
    """Slots that what comes through one queue leaves to the others, so that they need not wait for its runs to end."""
    return slots // RESERVED_SHARE if pool in RESERVING else 0


def own_queue(pool: str, slug: str) -> str:
    """The queue of a tenant that has one of its own."""
    return f"{pool}.own.{slug}"


def shared_queue(pool: str, number: int) -> str:
    """One of the queues that the long tail of tenants shares."""
    return f"{pool}.shared.{number}"


def pool_of(kind: str, queue: str) -> str:
    """The pool of a job's runs. A pull job names a queue of its tenant, or has its runs delivered to a broker."""
    return DELIVERY if kind == PULL and not queue else kind
