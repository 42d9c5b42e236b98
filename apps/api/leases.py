"""/queues/leases/{token} and the completion of runs whose receiver answers later: what holders say of attempts"""

import threading
from typing import Any, cast
from uuid import UUID

import orjson
from rest_framework.request import Request
from rest_framework.response import Response

from apps.api.access import access_execution
from apps.api.documents_queues import (
    AliveAnswer,
    CompletionAsk,
    CompletionBeat,
    FailInput,
    HeartbeatInput,
    ReleaseInput,
    ResultInput,
    SettledAnswer,
    SettleInput,
    SettleListAnswer,
)
from apps.api.endpoint import Endpoint
from apps.api.leases_read import (
    read_completion,
    read_fail,
    read_heartbeat,
    read_items,
    read_release,
    read_result,
    token_member,
)
from apps.api.openapi import operation
from apps.outcomes.remote import Answer, Desk, Said
from apps.tickets import remote
from kernel.errors import Conflict, InvalidInput, NotFound, ShardbeatError, code_of
from kernel.runtokens import Kind, RunToken
from tenants import door
from tenants.registry import tenancy_of
from tenants.runtokens import runtoken_read

TAG = "queues"
_here = threading.local()


class Unsettled(ShardbeatError):
    """The database did not take it; saying it again is safe."""

    code = "unavailable"
    status = 503


def desk() -> Desk:
    """This thread's."""
    if not hasattr(_here, "desk"):
        _here.desk = Desk()
    return cast("Desk", _here.desk)


class Holding(Endpoint):
    """What all holders of tokens do."""

    def token(self, kind: Kind, text: str) -> RunToken:
        found = runtoken_read(kind, text)
        if found is None or found.tenant_id != self.tenant.pk:
            raise NotFound("There is no such lease.")
        return found

    def say(self, said: Said) -> Response:
        [answer] = self.take([said])
        if answer.state == "over":
            raise over(answer)
        if answer.state == "unsettled":
            raise Unsettled("The database did not take it; say it again.", retry_after_s=1)
        return Response(settled_shape(said, answer))

    def take(self, said: list[Said]) -> list[Answer]:
        return desk().take(door.raw(), tenancy_of(self.tenant), said, now=self.now)

    def beat(self, token: RunToken, lease_s: int | None, progress: Any) -> Response:
        alive = remote.heartbeat(
            door.raw(), execution_id=token.execution_id, fence=token.fence, tenant_id=token.tenant_id, lease_s=lease_s,
            progress=None if progress is None else orjson.dumps(progress).decode(),
        )  # fmt: skip
        if alive is None:
            raise over(Answer("over"))
        return Response(alive._asdict())


class LeaseHeartbeat(Holding):
    """Still at it."""

    actions = {"POST": "queue.work"}

    @operation(
        "leases_heartbeat", "Extend a lease, tell progress, hear of a cancel", body=HeartbeatInput, answer=AliveAnswer,
        tag=TAG, problems=("lease_over",),
    )  # fmt: skip
    def post(self, request: Request, token: str) -> Response:
        found = self.token("lease", token)
        return self.beat(found, *read_heartbeat(self.body))


class LeaseComplete(Holding):
    """Done."""

    actions = {"POST": "queue.work"}

    @operation(
        "leases_complete",
        "End a lease with a result",
        body=ResultInput,
        answer=SettledAnswer,
        tag=TAG,
        problems=("lease_over",),
    )
    def post(self, request: Request, token: str) -> Response:
        return self.say(read_result(self.token("lease", token), self.body))


class LeaseFail(Holding):
    """Not done."""

    actions = {"POST": "queue.work"}

    @operation(
        "leases_fail", "End a lease with an error; the job's retry policy decides what follows", body=FailInput,
        answer=SettledAnswer, tag=TAG, problems=("lease_over",),
    )  # fmt: skip
    def post(self, request: Request, token: str) -> Response:
        return self.say(read_fail(self.token("lease", token), self.body))


class LeaseRelease(Holding):
    """For somebody else."""

    actions = {"POST": "queue.work"}

    @operation(
        "leases_release", "Give a lease back without using up an attempt", body=ReleaseInput, answer=SettledAnswer,
        tag=TAG, problems=("lease_over",),
    )  # fmt: skip
    def post(self, request: Request, token: str) -> Response:
        return self.say(read_release(self.token("lease", token), self.body))


class LeaseSettle(Holding):
    """Many at a time."""

    actions = {"POST": "queue.work"}

    @operation(
        "leases_settle", "End many leases at once; each has its own answer", body=SettleInput, answer=SettleListAnswer,
        tag=TAG,
    )  # fmt: skip
    def post(self, request: Request) -> Response:
        read = read_items(self.body, lambda text: self.token("lease", text))
        said = [one for one in read if isinstance(one, Said)]
        answers = iter(self.take(said) if said else [])
        items = [
            item_shape(one, next(answers)) if isinstance(one, Said) else refused_shape(one) for one in read
        ]  # fmt: skip
        return Response({"items": items})


class _Completing(Holding):
    """With the token as the bearer's, or with an API key and the token in the body."""

    actions = {"POST": "execution.complete"}

    def attempt(self, execution_id: UUID) -> RunToken:
        found = self.inner.completion
        if found is None:
            access_execution(tenant=self.tenant, actor=self.actor, execution_id=execution_id, need="execution.complete")
            found = self.token("completion", token_member(self.body))
        if found.execution_id != execution_id:
            raise NotFound("There is no such execution.")
        return found


class ExecutionComplete(_Completing):
    """The result that was to come later."""

    @operation(
        "executions_complete", "End a run whose receiver answered 202, with the token that it was sent",
        body=CompletionAsk, answer=SettledAnswer, tag="executions", problems=("lease_over",),
    )  # fmt: skip
    def post(self, request: Request, execution_id: UUID) -> Response:
        return self.say(read_completion(self.attempt(execution_id), self.body))


class ExecutionHeartbeat(_Completing):
    """The result is still to come."""

    @operation(
        "executions_heartbeat", "Keep a run alive whose receiver answered 202", body=CompletionBeat, answer=AliveAnswer,
        tag="executions", problems=("lease_over",),
    )  # fmt: skip
    def post(self, request: Request, execution_id: UUID) -> Response:
        return self.beat(self.attempt(execution_id), *read_heartbeat(self.body, token=True))


def over(answer: Answer) -> Conflict:
    """What whoever comes too late is told."""
    detail = "This attempt is over: it ended otherwise, or its lease or time-out ran out. Nothing was changed."
    return Conflict(
        detail, code="lease_over", attempt_state=answer.attempt_state, execution_state=answer.execution_state
    )


def settled_shape(said: Said, answer: Answer) -> dict[str, Any]:
    """What came of an attempt."""
    return {
        "execution": said.token.execution_id,
        "attempt": said.token.attempt,
        "attempt_state": answer.attempt_state,
        "execution_state": answer.execution_state,
        "retry_at": answer.retry_at,
    }


def item_shape(said: Said, answer: Answer) -> dict[str, Any]:
    """One of many."""
    if answer.state == "done":
        return {"status": 200, "code": None, "detail": None, "errors": [], **settled_shape(said, answer)}
    problem: ShardbeatError = over(answer)
    if answer.state == "unsettled":
        problem = Unsettled("The database did not take it; say it again.")
    return {
        "status": problem.status, "code": code_of(problem), "detail": problem.detail,
        "errors": [], **settled_shape(said, answer),
    }  # fmt: skip


def refused_shape(problem: ShardbeatError) -> dict[str, Any]:
    """One that was not understood."""
    errors = problem.errors if isinstance(problem, InvalidInput) else []
    return {
        "status": problem.status, "code": problem.code, "detail": problem.detail,
        "errors": [{"pointer": one.pointer, "code": one.code, "detail": one.detail} for one in errors],
        "execution": None, "attempt": None, "attempt_state": None, "execution_state": None, "retry_at": None,
    }  # fmt: skip
