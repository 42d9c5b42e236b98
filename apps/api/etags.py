"""ETags begin with the revision. Whoever changes a resource says which revision was read.

Tags of reads go on with a digest of the answer (`selecting`), which matters to If-None-Match alone.
"""

import re
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from apps.schedules.upserting import Condition
from kernel.errors import ShardbeatError

_TAG = re.compile(r'(?:W/)?"(\d{1,9})(?:-[0-9a-f]+)?"')


class IfMatchRequired(ShardbeatError):
    """A change without saying of what."""

    code = "if_match_required"
    status = 428


def revisions(request: Request) -> set[int] | None:
    """The revisions that the caller accepts; None for `*`, any. IfMatchRequired when the header is missing.

    Weak tags count, since compressing proxies weaken them; a tag that is none of ours matches nothing.
    """
    given = request.headers.get("If-Match")
    if given is None:
        raise IfMatchRequired("Send If-Match with the ETag that you read (or * for any).")
    if given.strip() == "*":
        return None
    return {int(number) for number in _TAG.findall(given)}


def put_condition(request: Request) -> Condition:
    """What a PUT of something that may not be there yet requires: If-Match (it is there), If-None-Match: * (it is not).

    Neither header is required: such a PUT says what there should be, whatever there is.
    """
    if request.headers.get("If-Match") is not None:
        return Condition(there=True, revisions=revisions(request))
    return Condition(not_there=request.headers.get("If-None-Match", "").strip() == "*")


def tagged(data: Any, revision: int, *, status: int = 200, location: str | None = None) -> Response:
    """An answer with the resource's ETag."""
    headers = {"ETag": f'"{revision}"'}
    if location is not None:
        headers["Location"] = location
    return Response(data, status=status, headers=headers)
