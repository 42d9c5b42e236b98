"""One call of a registered callable, from payload to status and bounded JSON: the same in processes and threads."""

import importlib
import logging
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from workers.executors import frames
from workers.executors.bounds import NotJson, bounded_error, bounded_json, to_json
from workers.executors.task import Cancelled, Final, NoRetry, RetryAfter, SoftTimeout, TaskContext

log = logging.getLogger(__name__)

Task = Callable[..., Any]  # (payload, context)
Around = Callable[[TaskContext], AbstractContextManager[None]]


def import_path(path: str) -> Any:
    """What "module:attribute" names. Raises what the import raises."""
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)


def load(path: str) -> Task | str:
    """The callable at `path`, or why there is none. A Celery task is called as Celery's worker would."""
    try:
        found = import_path(path)
        if hasattr(found, "apply_async") and hasattr(found, "request_stack"):
            from workers.executors.celery_task import CeleryTask

            return CeleryTask(found)
        task: Task = found
        return task
    except Exception as error:
        log.exception("the task at %s can't be imported", path)
        return f"its callable can't be imported ({type(error).__name__})"


def no_surroundings(context: TaskContext) -> AbstractContextManager[None]:
    """Nothing around a call."""
    return nullcontext()


def around_tasks() -> Around:
    """What a call happens in: the tenant's schema where this process has Django with Shardbeat's settings."""
    try:
        from django.apps import apps

        if apps.ready and apps.is_installed("tenants"):
            from workers.executors.task_schema import in_tenant_schema

            return in_tenant_schema
    except ImportError:
        log.info("no Django here, so tasks run without a tenant's schema")
    return no_surroundings


def call(task: Task | str, name: str, payload: Any, context: TaskContext, around: Around) -> tuple[int, bytes]:
    """Runs it. Returns a status of `frames` and the JSON of its result or error; raises nothing."""
    if isinstance(task, str):
        return frames.FAILED_FOR_GOOD, to_json(bounded_error("unknown_task", f"{name}: {task}"))
    try:
        with around(context):
            value = task(payload, context)
        return frames.SUCCEEDED, bounded_json(value)
    except BaseException as error:
        return failure(error)


def failure(error: BaseException) -> tuple[int, bytes]:
    """Status and JSON of what a callable raised."""
    status = frames.FAILED
    more: dict[str, Any] = {}
    match error:
        case Cancelled():
            return frames.CANCELLED, to_json(bounded_error("cancelled", "The run was cancelled."))
        case SoftTimeout():
            return frames.TIMED_OUT, to_json(bounded_error("soft_timeout", "The run reached its soft time-out."))
        case NotJson():
            return frames.FAILED_FOR_GOOD, to_json(bounded_error("bad_result", "The result is not JSON."))
        case Final():
            status, error = frames.FAILED_FOR_GOOD, error.error
        case NoRetry():
            status = frames.FAILED_FOR_GOOD
        case RetryAfter():
            more["retry_after_s"] = error.seconds
            error = error.__cause__ or error
    return status, to_json(bounded_error(type(error).__name__, _text_of(error), where=_where(error), **more))


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""


def _where(error: BaseException) -> str:
    """File, line and function of the last step; no values, so nothing secret."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    code = trace.tb_frame.f_code
    return f"{os.path.basename(code.co_filename)}:{trace.tb_lineno} in {code.co_name}"[:200]
