"""The hidden job of a webhook: what its deliveries have in common with the runs of other jobs."""

from datetime import datetime
from uuid import UUID

from apps.schedules.models import Job, JobVersion
from kernel.pools import pool_of
from tenants.models import Tenant
from tenants.provisioning import queue_for
from tenants.registry import Tenancy

KIND = "http"
VERSION, TEST_VERSION = 1, 2  # of the job: for events, and for what somebody tries out
TIMEOUT_S = 20
PRIORITY = 5
IN_FLIGHT_MAX = 20  # deliveries of one webhook queued or running: a slow receiver leaves the slots to others
GIVE_UP_S = 3 * 86_400  # from the first start; tries that an open breaker put off do not count as tries
# 10 s, 40 s, 160 s, 11 min, 43 min, 2.8 h, then every 6 h: ten tries in about 22 hours. Every outcome is named: a
# time-out is repeated, too, for the receiver knows a message again by its webhook-id.
RETRY = {
    "max_attempts": 10, "backoff": "exponential", "base_s": 10, "factor": 4, "max_s": 21_600, "jitter": "equal",
    "retry_on": ["failed", "timed_out", "lost"], "never_on": ["bad_target", "address_blocked"],
}  # fmt: skip
TEST_RETRY = {**RETRY, "max_attempts": 1}


def job_make(webhook_id: UUID, *, now: datetime) -> None:
    """Makes the job with its versions. It is deleted for its users from the start."""
    job = Job.objects.create(
        id=webhook_id, name=f"webhook {webhook_id}", kind=KIND, version=VERSION, created_at=now, updated_at=now,
        deleted_at=now,
    )  # fmt: skip
    JobVersion.objects.bulk_create(
        JobVersion(
            job=job, version=version, target={}, timeout_s=TIMEOUT_S, total_timeout_s=GIVE_UP_S, retry=retry,
            priority=PRIORITY, max_concurrency=IN_FLIGHT_MAX, created_at=now,
        )
        for version, retry in ((VERSION, RETRY), (TEST_VERSION, TEST_RETRY))
    )  # fmt: skip


def queue_of(tenant: Tenant | Tenancy) -> str:
    """The queue of a tenant's deliveries."""
    pool = pool_of(KIND, "")
    return tenant.queue(pool) if isinstance(tenant, Tenancy) else queue_for(tenant, pool)
