"""Kinds of worker and their numbers, and the names of the Celery queues inside them."""

POOLS = ("http", "python", "container", "pull")
POOL_NUMBER = {name: number for number, name in enumerate(POOLS)}
# Served by Celery workers; a pull pool's tickets wait for the tenant's own.
CELERY_POOLS = ("http", "python", "container")
BATCH_TASK = "shardbeat.batch"  # the Celery task that a release rings
SYSTEM_QUEUE = "shardbeat.system"  # the platform's own housekeeping


def own_queue(pool: str, slug: str) -> str:
    """The queue of a tenant that has one of its own."""
    return f"{pool}.own.{slug}"


def shared_queue(pool: str, number: int) -> str:
    """One of the queues that the long tail of tenants shares."""
    return f"{pool}.shared.{number}"
