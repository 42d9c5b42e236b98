"""Open dead letters by their cause."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.deadletter_lists import TAG
from apps.api.documents_runs import DeadLetterGroupAnswer
from apps.api.endpoint import Endpoint
from apps.api.lists import listed
from apps.api.openapi import CURSOR_PARAMETER, PAGE_SIZE_PARAMETER, listing, operation
from apps.deadletters.groups import ORDER, Group, groups_read

PAGE = listing(DeadLetterGroupAnswer, "DeadLetterGroup")


class DeadLetterGroups(Endpoint):
    """Open dead letters by fingerprint."""

    actions = {"GET": "deadletter.read"}

    @operation(
        "dead_letters_groups", "List the causes of open dead letters, in the order of their fingerprints", answer=PAGE,
        parameters=[PAGE_SIZE_PARAMETER, CURSOR_PARAMETER], tag=TAG,
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        query = self.query("page_size", "cursor")
        after, size = query.position(ORDER), query.page_size()
        query.finish()
        page = groups_read(self.tenant, after=after, size=size)
        return Response(listed(page.rows, page.after, query=query, count=None, shape=_shape))


def _shape(group: Group) -> dict[str, Any]:
    return {
        "fingerprint": group.fingerprint,
        "count": group.letters,
        "count_is_exact": group.is_exact,
        "newest": group.newest,
        "job": group.job_id,
        "error": group.error,
        "oldest_at": group.oldest_at,
        "newest_at": group.newest_at,
    }
