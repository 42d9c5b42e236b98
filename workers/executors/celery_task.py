"""Existing Celery tasks, unchanged: called as Celery's worker calls them, but without a broker and a result backend.

The payload becomes the arguments: an object the keyword arguments, an array the positional ones, null none.
`self.retry` and `autoretry_for` fail the attempt and ask for the task's pause; the next attempt is the platform's. The
task's own `max_retries` ends it for good when that is reached before the job's policy. `self.request` names the run.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn

from celery import Task, signals
from celery._state import _task_stack
from celery.app.task import Context
from celery.exceptions import (
    Ignore,
    MaxRetriesExceededError,
    Reject,
    Retry,
    SoftTimeLimitExceeded,
)
from celery.utils.nodenames import gethostname

from kernel.clock import utc_now
from workers.executors.task import Final, NoRetry, RetryAfter, SoftTimeout, TaskContext

Arguments = tuple[list[Any], dict[str, Any]]


class CelerySoftTimeout(SoftTimeout, SoftTimeLimitExceeded):
    """Raised at the soft time-out in a Celery task, which knows it by Celery's name."""


class CeleryTask:
    """A Celery task as a callable of (payload, context)."""

    soft_timeout: type[SoftTimeout] = CelerySoftTimeout

    def __init__(self, task: Any) -> None:
        found = task._get_current_object() if hasattr(task, "_get_current_object") else task  # @shared_task: a proxy
        self._task: Task[..., Any] = found
        self._own_call = type(found).__call__ is not Task.__call__
        self._retry_directly = found.retry
        found.retry = self._retry

    def __call__(self, payload: Any, context: TaskContext) -> Any:
        args, kwargs = arguments_of(payload)
        task, run_id = self._task, context.execution_id
        _task_stack.push(task)
        task.request_stack.push(request_of(context, args, kwargs, task.name))
        state, value = "FAILURE", None
        try:
            signals.task_prerun.send(sender=task, task_id=run_id, task=task, args=args, kwargs=kwargs)
            task.before_start(run_id, args, kwargs)
            value = task(*args, **kwargs) if self._own_call else task.run(*args, **kwargs)
            state = "SUCCESS"
            task.on_success(value, run_id, args, kwargs)
            signals.task_success.send(sender=task, result=value)
            return value
        except Retry as retry:
            state, value = "RETRY", retry
            task.on_retry(retry.exc, run_id, args, kwargs, None)
            signals.task_retry.send(sender=task, request=task.request, reason=retry, einfo=None)
            raise RetryAfter(_seconds(retry.when), str(retry)) from retry.exc
        except Ignore:
            state = "IGNORED"
            return None
        except Reject as reject:
            state, value = "REJECTED", reject
            if reject.requeue:
                raise RetryAfter(0.0, f"rejected: {reject.reason}") from None
            raise NoRetry(f"rejected: {reject.reason}") from None
        except Exception as error:
            value = error
            failed = error.error if isinstance(error, Final) else error
            task.on_failure(failed, run_id, args, kwargs, None)
            signals.task_failure.send(
                sender=task, task_id=run_id, exception=failed, args=args, kwargs=kwargs,
                traceback=failed.__traceback__, einfo=None,
            )  # fmt: skip
            raise
        finally:
            task.after_return(state, value, run_id, args, kwargs, None)
            signals.task_postrun.send(
                sender=task, task_id=run_id, task=task, args=args, kwargs=kwargs, retval=value, state=state
            )
            task.request_stack.pop()
            _task_stack.pop()

    def _retry(
        self, args: Any = None, kwargs: Any = None, exc: Exception | None = None, throw: bool = True,
        eta: datetime | None = None, countdown: float | None = None, max_retries: int | None = None, **options: Any,
    ) -> Any:  # fmt: skip
        """In place of the task's `retry`, which would publish a message of its own."""
        task, request = self._task, self._task.request
        if request.called_directly:  # by another task, as a plain function
            return self._retry_directly(args, kwargs, exc, throw, eta, countdown, max_retries, **options)
        if (args is not None and list(args) != list(request.args)) or (
            kwargs is not None and dict(kwargs) != dict(request.kwargs)
        ):
            raise NoRetry("It asked for a retry with other arguments; a run keeps those that it has.")
        most = task.max_retries if max_retries is None else max_retries
        if most is not None and request.retries >= most:
            _give_up(exc, task.name)
        when: Any = eta or (task.default_retry_delay if countdown is None else countdown)
        retry = Retry("the task asked for a retry", exc=exc, when=when)
        if throw:
            raise retry
        return retry


def arguments_of(payload: Any) -> Arguments:
    """Positional and keyword arguments. Raises NoRetry for a payload that is neither object nor array nor null."""
    match payload:
        case None:
            return [], {}
        case Mapping():
            return [], dict(payload)
        case list():
            return payload, {}
    raise NoRetry("A Celery task's payload is an object (keyword arguments), an array (positional ones) or null.")


def request_of(context: TaskContext, args: list[Any], kwargs: dict[str, Any], name: str) -> Context:
    """`self.request`: the run in Celery's words, and the run itself as `self.request.shardbeat`."""
    host = gethostname()
    return Context(
        id=context.execution_id, root_id=context.execution_id, correlation_id=context.run_key, task=name, args=args,
        kwargs=kwargs, retries=context.attempt - 1, called_directly=False, is_eager=False, hostname=host,
        delivery_info={}, expires=context.deadline, shardbeat=context,
        headers={"shardbeat_run_key": context.run_key, "shardbeat_tenant": context.tenant},
    )  # fmt: skip


def _give_up(error: Exception | None, name: str) -> NoReturn:
    raise Final(error or MaxRetriesExceededError(f"{name} used up its own max_retries"))


def _seconds(when: Any) -> float:
    if isinstance(when, datetime):
        return max(0.0, ((when if when.tzinfo else when.replace(tzinfo=UTC)) - utc_now()).total_seconds())
    return max(0.0, float(when or 0))
