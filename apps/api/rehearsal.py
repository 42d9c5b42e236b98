"""`?validate_only=true`: a request is served to its end, its answer kept, and everything that it wrote taken back.

It is the real thing up to the commit, so what it says is what would happen: quotas, names, preconditions. Only what
happens after a commit (notifications, mail) does not.
"""

from collections.abc import Callable

from django.db import transaction
from rest_framework.response import Response

from apps.api.idempotency import shown_once_left_out
from tenants.models import Tenant
from tenants.work import in_tenant

PARAMETER = "validate_only"
DROPPED_HEADERS = ("ETag", "Location")  # there is nothing that they could lead to


def rehearsed(tenant: Tenant, work: Callable[[], Response]) -> Response:
    """The answer of `work`, with 200 for any success, after its effects were rolled back. What it raises is raised.

    A key or a secret that it made is left out: it was never valid.
    """

    def serve() -> Response:
        response = work()
        transaction.set_rollback(True)
        return response

    response = in_tenant(tenant, serve)
    for name in DROPPED_HEADERS:
        response.headers.pop(name, None)
    response.status_code = 200
    response.data = shown_once_left_out(response.data)
    return response
