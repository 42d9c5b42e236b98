"""/audit-events: the tenant's own trail, for its admins."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from django.http import StreamingHttpResponse
from drf_spectacular.utils import OpenApiResponse
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.documents_audit import AuditChainAnswer, AuditEventAnswer
from apps.api.endpoint import Endpoint
from apps.api.lists import PAGING, ListQuery
from apps.api.openapi import CREATED_PARAMETERS, CURSOR_PARAMETER, PAGE_SIZE_PARAMETER, listing, operation, parameter
from apps.api.renderers import AnswerRenderer, encode
from apps.audit.chain import head_of
from apps.audit.reading import cursor_key, events_in_chain, events_scan, of_cursor_key
from apps.audit.shown import Shown
from tenants import door

TAG = "audit"
LINES = "application/x-ndjson"
EXPORT_MOST = 100_000
EXPORT_USUAL = 10_000
FILTERS = ("action", "object_type", "object", "actor", "about", "request_id", "allowed")
# Ends of lines for some readers, though none for JSON.
_SEPARATORS = {"\u0085": b"\\u0085", "\u2028": b"\\u2028", "\u2029": b"\\u2029"}


class LinesRenderer(AnswerRenderer):
    """Lets callers accept the media type of the export; problems are JSON as everywhere."""

    media_type = LINES
    format = "ndjson"


class AuditEventList(Endpoint):
    """What was done and refused."""

    actions = {"GET": "audit.read"}

    @operation(
        "audit_events_list", "List audit events, newest first", answer=listing(AuditEventAnswer, "AuditEvent"), tag=TAG,
        parameters=[
            parameter("action", text="such as job.update"), parameter("object_type", text="such as schedule"),
            parameter("object", text="id of what it was done to"),
            parameter("actor", text="`actor.id`, or the name of a machine"), parameter("about", text="`about.id`"),
            parameter("request_id", text="X-Request-Id of the answer"),
            parameter("allowed", bool, text="false: what was refused"), *CREATED_PARAMETERS, PAGE_SIZE_PARAMETER,
            CURSOR_PARAMETER,
        ],
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        query = self.query(*FILTERS, "created_after", "created_before", *PAGING)
        filters = _filters(query)
        before, size = _before(query), query.page_size()
        query.finish()
        rows, last = events_scan(tenant_id=self.tenant.pk, filters=filters, before=before, size=size)
        following = None if last is None else query.cursor_of(cursor_key(last))
        return Response({"items": [event_shape(row) for row in rows], "next_cursor": following})


class AuditChain(Endpoint):
    """The end of the chain."""

    actions = {"GET": "audit.read"}

    @operation("audit_events_chain", "Read the end of the chain of audit events", answer=AuditChainAnswer, tag=TAG)
    def get(self, request: Request) -> Response:
        self.query().finish()
        last = head_of(door.raw(), self.tenant.pk)
        return Response(
            {
                "number": last.number if last else 0,
                "head": last.head.hex() if last else None,
                "sealed_at": last.sealed_at if last else None,
                "as_of": self.now,
            }
        )


class AuditExport(Endpoint):
    """The trail as JSON lines."""

    actions = {"GET": "audit.read"}
    renderer_classes = [AnswerRenderer, LinesRenderer]

    @operation(
        "audit_events_export", "Export sealed audit events as JSON lines, in the order of the chain", tag=TAG,
        answer=OpenApiResponse(
            {"type": "string", "format": "json-lines"},
            "One `AuditEventAnswer` a line; none is ever put in before another.",
        ),
        media=LINES,
        parameters=[
            parameter("after", {"type": "integer", "minimum": 0, "default": 0}, text="`seal.number` of the last line"),
            parameter("limit", {"type": "integer", "minimum": 1, "maximum": EXPORT_MOST, "default": EXPORT_USUAL}),
        ],
    )  # fmt: skip
    def get(self, request: Request) -> StreamingHttpResponse:
        query = self.query("after", "limit")
        after = query.whole("after", 0, least=0, most=2**62)
        most = query.whole("limit", EXPORT_USUAL, least=1, most=EXPORT_MOST)
        query.finish()
        lines = _lines(self.tenant.pk, after, most)
        headers = {"Content-Disposition": f'attachment; filename="audit-{self.tenant.slug}.jsonl"'}
        return StreamingHttpResponse(lines, content_type=LINES, headers=headers)


def event_shape(row: Shown) -> dict[str, Any]:
    """A row of the trail as the API answers it."""
    event, opened, seal = row.event, row.opened, row.seal
    return {
        "id": event.uid,
        "at": event.at,
        "actor": {
            "id": event.subject or None, "name": row.who, "role": event.role, "address": opened.address or None,
            "agent": opened.agent or None, "erased": opened.erased,
        },
        "action": event.action,
        "object_type": event.object_type,
        "object_id": event.object_id,
        "allowed": event.allowed,
        "before": event.before,
        "after": event.after,
        "reason": event.reason,
        "request_id": event.request_id,
        "about": {**opened.about, "id": event.about} if event.about else None,
        "seal": seal and {"number": seal.number, "sealed_at": seal.sealed_at, "head": bytes(seal.head).hex()},
    }  # fmt: skip


def line_of(row: Shown) -> bytes:
    """One line, whatever the row holds: nothing in it ends a line for anybody."""
    line = encode(event_shape(row))
    for separator, written in _SEPARATORS.items():
        line = line.replace(separator.encode(), written)
    return line + b"\n"


def _lines(tenant_id: int, after: int, most: int) -> Iterator[bytes]:
    for row in events_in_chain(tenant_id=tenant_id, after=after, most=most):
        yield line_of(row)


def _filters(query: ListQuery) -> dict[str, Any]:
    actor = query.text("actor")
    given: dict[str, Any] = {
        "action": query.text("action"), "object_type": query.text("object_type"), "object_id": query.text("object"),
        "about": query.text("about"), "request_id": query.text("request_id"),
        "at__gt": query.instant("created_after"), "at__lt": query.instant("created_before"),
    }  # fmt: skip
    if actor is not None:
        given["subject" if ":" in actor and _is_subject(actor) else "actor"] = actor
    allowed = query.choices("allowed", ("true", "false"))
    if len(allowed) == 1:
        given["allowed"] = allowed == ["true"]
    return {name: value for name, value in given.items() if value is not None}


def _is_subject(text: str) -> bool:
    kind, _, name = text.partition(":")
    if kind == "user":
        return name.isdecimal()
    try:
        UUID(name)
    except ValueError:
        return False
    return True


def _before(query: ListQuery) -> int | None:
    key = query.before()
    if key is None:
        return None
    found = of_cursor_key(key)
    if found is None:
        query.faults.add("?cursor", "bad_cursor", "Give next_cursor of the former page, unchanged.")
    return found
