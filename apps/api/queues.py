"""/queues: pull queues, and leasing from them"""

import select
import socket
import ssl
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.documents_queues import LeaseInput, LeaseListAnswer, QueueAnswer
from apps.api.documents_runs import NoInput, ReasonInput
from apps.api.endpoint import Endpoint, retry_safe
from apps.api.openapi import listing, operation
from apps.api.reading import nothing_of, reason_of
from apps.api.waiting import room
from apps.audit.services import record
from apps.dispatch.pull import Item, lease
from apps.schedules.input_fields import Fields
from apps.tickets import pull_queues
from apps.tickets.pull_queues import ConsumerRow, QueueRow
from apps.tickets.remote import CLAIM_MAX, LEASE_MAX_S
from kernel.clock import monotonic_s
from kernel.errors import Faults, NotFound
from tenants import door
from tenants.work import in_tenant

TAG = "queues"
WAIT_MAX_S = 30
LEASE_S = 60
HOLDER_CHARS = 100


def access_queue(endpoint: Endpoint, name: str) -> dict[str, Any]:
    """A queue of the tenant; NotFound."""
    found = pull_queues.read(door.raw(), tenant_id=endpoint.tenant.pk, name=name)
    if not found:
        raise NotFound("There is no such queue.")
    consumers = pull_queues.consumers(door.raw(), tenant_id=endpoint.tenant.pk)
    return queue_shape(found[0], consumers)


def queue_shape(row: QueueRow, consumers: list[ConsumerRow]) -> dict[str, Any]:
    """A queue as the API answers it."""
    return {
        "name": row.name,
        "status": "active" if row.paused_at is None else "paused",
        "paused_at": row.paused_at,
        "paused_reason": row.paused_reason or None,
        "ready": row.ready,
        "running": row.running,
        "blocked": row.blocked,
        "oldest_at": row.oldest,
        "consumers": [{"name": one.name, "seen_at": one.seen_at} for one in consumers if one.queue == row.name],
        "created_at": row.created_at,
    }


class QueueList(Endpoint):
    """All pull queues."""

    actions = {"GET": "queue.read"}

    @operation(
        "queues_list", "List pull queues by name, all on one page", answer=listing(QueueAnswer, "Queue"), tag=TAG
    )
    def get(self, request: Request) -> Response:
        self.query().finish()
        rows = pull_queues.read(door.raw(), tenant_id=self.tenant.pk)
        consumers = pull_queues.consumers(door.raw(), tenant_id=self.tenant.pk)
        return Response({"items": [queue_shape(row, consumers) for row in rows], "next_cursor": None})


class QueueDetail(Endpoint):
    """One pull queue."""

    actions = {"GET": "queue.read"}

    @operation("queues_read", "Read a pull queue: what is in it, who works on it", answer=QueueAnswer, tag=TAG)
    def get(self, request: Request, name: str) -> Response:
        self.query().finish()
        return Response(access_queue(self, name))


class _Switch(Endpoint):
    """Pausing and resuming a queue."""

    def switch(self, name: str, *, pause: bool, reason: str = "") -> Response:
        def work() -> None:
            at = self.now if pause else None
            changed = pull_queues.pause(door.raw(), tenant_id=self.tenant.pk, name=name, now=at, reason=reason)
            if changed is None:
                raise NotFound("There is no such queue.")
            if changed:
                record(
                    actor=self.actor, action="queue.pause" if pause else "queue.resume", object_type="queue",
                    object_id=name, now=self.now, tenant_id=self.tenant.pk, reason=reason,
                )  # fmt: skip
                if not pause:
                    pull_queues.notify(door.raw(), tenant_id=self.tenant.pk, name=name)

        in_tenant(self.tenant, work)
        return Response(access_queue(self, name))


class QueuePause(_Switch):
    """Stopping a queue."""

    actions = {"POST": "queue.pause"}

    @operation(
        "queues_pause", "Pause a queue: nothing is leased from it, what is leased goes on", body=ReasonInput,
        answer=QueueAnswer, retry_safe=True, tag=TAG,
    )  # fmt: skip
    @retry_safe
    def post(self, request: Request, name: str) -> Response:
        return self.switch(name, pause=True, reason=reason_of(self.body))


class QueueResume(_Switch):
    """Letting a queue go on."""

    actions = {"POST": "queue.resume"}

    @operation("queues_resume", "Resume a queue", body=NoInput, answer=QueueAnswer, retry_safe=True, tag=TAG)
    @retry_safe
    def post(self, request: Request, name: str) -> Response:
        nothing_of(self.body)
        return self.switch(name, pause=False)


class QueueLease(Endpoint):
    """Taking work."""

    actions = {"POST": "queue.work"}

    @operation(
        "queues_lease",
        "Lease runs, waiting for them if wished",
        body=LeaseInput,
        answer=LeaseListAnswer,
        tag=TAG,
        problems=("too_many_waiting",),
    )
    def post(self, request: Request, name: str) -> Response:
        if not pull_queues.known(door.raw(), tenant_id=self.tenant.pk, name=name):
            raise NotFound("There is no such queue.")
        wanted = _read(self.body)
        pull_queues.seen(door.raw(), tenant_id=self.tenant.pk, queue=name, name=wanted["holder"] or "(no name)")
        items = self._lease(name, **wanted)
        return Response({"items": [item_shape(one) for one in items]})

    def _lease(self, name: str, *, most: int, wait_s: int, lease_s: int, holder: str) -> list[Item]:
        until = monotonic_s() + wait_s

        def take() -> list[Item]:
            if wait_s and self._client_is_gone():  # who asks to wait may have been killed before its turn came
                return []
            return lease(tenant=self.tenant, queue=name, most=most, lease_s=lease_s, holder=holder, now=self.now)

        items = take()
        if items or not wait_s:
            return items
        place_of = (self.tenant.pk, name)
        with room.place(place_of) as place:
            items = take()  # what came before the place was there
            while not items and place.wait(until - monotonic_s()):
                if self._client_is_gone():
                    room.wake(place_of)  # somebody else may take it
                    return []
                items = take()
            if len(items) == most:
                room.wake(place_of)  # there may be more
        return items

    def _client_is_gone(self) -> bool:
        """Whether the client has hung up, where the server lets us see its socket: nothing is leased for nobody."""
        line = self.inner.META.get("gunicorn.socket")
        if not isinstance(line, socket.socket) or isinstance(line, ssl.SSLSocket):
            return False
        try:
            readable, _, _ = select.select([line], [], [], 0)
            return bool(readable) and line.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except (OSError, ValueError):
            return True


def item_shape(one: Item) -> dict[str, Any]:
    """A leased run."""
    started = one.started
    return {
        "token": one.token,
        "execution": started.execution_id,
        "run_key": started.run_key,
        "attempt": started.attempt,
        "job": started.job_id,
        "job_name": one.definition.name,
        "job_version": started.job_version,
        "schedule": started.schedule_id,
        "trigger": started.trigger,
        "nominal_at": started.nominal_at,
        "started_at": started.started_at,
        "lease_until": started.deadline,
        "deadline": one.deadline,
        "payload": one.payload,
        "target": one.definition.target,
    }


def _read(body: Any) -> dict[str, Any]:
    faults = Faults()
    fields = Fields(body, faults)
    fields.only(("max", "wait_s", "lease_s", "worker"))
    wanted = {
        "most": fields.whole("max", 1, CLAIM_MAX, 1),
        "wait_s": fields.whole("wait_s", 0, WAIT_MAX_S, 0),
        "lease_s": fields.whole("lease_s", 1, LEASE_MAX_S, LEASE_S),
        "holder": fields.text("worker", most=HOLDER_CHARS) or "",
    }
    faults.raise_if_any()
    return wanted
