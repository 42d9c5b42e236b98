"""Kinds of worker and their numbers, and the names of the Celery queues inside them."""

POOLS = ("http", "python", "container", "pull", "queue", "workflow")
POOL_NUMBER = {name: number for number, name in enumerate(POOLS)}
PULL = "pull"  # its tickets wait for the tenant's own workers
DELIVERY = "queue"  # pull jobs that our workers put on the tenant's own broker
WORKFLOW = "workflow"  # runs of workflows: a dispatcher looks after them, no worker
CELERY_POOLS = ("http", "python", "container", DELIVERY)
# Numbers of those whose tickets a dispatcher releases; pull queues are asked by whoever works for them.
RELEASED = tuple(POOL_NUMBER[pool] for pool in (*CELERY_POOLS, WORKFLOW))
# A pull job may be edited from one to the other while runs of it are alive; of all others the pool is their kind.
SPANNED = (PULL, DELIVERY)
BATCH_TASK = "shardbeat.batch"  # the Celery task that a release rings
RESERVING = ("http",)  # pools of many slots, whose runs may all wait for one slow target
RESERVED_SHARE = 10  # one of so many slots is kept free for the others
SYSTEM_QUEUE = "shardbeat.system"  # the platform's own housekeeping


def reserve_of(pool: str, slots: int) -> int:
    """Slots that what comes through one queue leaves to the others, so that they need not wait for its runs to end."""
    return slots // RESERVED_SHARE if pool in RESERVING else 0


def own_queue(pool: str, slug: str, group: str = "") -> str:
    """The queue of a tenant that has one of its own, at the workers of its group."""
    return f"{pool}.own.{slug}@{group}" if group else f"{pool}.own.{slug}"


def shared_queue(pool: str, number: int) -> str:
    """One of the queues that the long tail of tenants shares."""
    return f"{pool}.shared.{number}"


def group_queue(pool: str, group: str) -> str:
    """The queue that all tenants of a dedicated group share which have none of their own."""
    return f"{pool}.group.{group}"


def group_of(queue: str) -> str:
    """Whose workers a queue is for: a dedicated group, or "" for the shared ones."""
    if "@" in queue:
        return queue.rsplit("@", 1)[1]
    _, kind, name = (*queue.split(".", 2), "", "")[:3]
    return name if kind == "group" else ""


def tenant_of(queue: str) -> str:
    """The slug of the tenant whose own queue it is, else ""."""
    _, kind, name = (*queue.split(".", 2), "", "")[:3]
    return name.split("@", 1)[0] if kind == "own" else ""


def pool_of(kind: str, queue: str) -> str:
    """The pool of a job's runs. A pull job names a queue of its tenant, or has its runs delivered to a broker."""
    return DELIVERY if kind == PULL and not queue else kind


def pool_of_queue(queue: str) -> str:
    """The pool that a Celery queue belongs to, by its name."""
    return queue.partition(".")[0]
