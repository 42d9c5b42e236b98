"""Names and external ids are unique while their owner is not deleted: who loses is told which one is taken."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import IntegrityError

from kernel.errors import Conflict

TAKEN = {
    "job_name_is_unique": ("name_taken", "There is already a job of this name (case does not count)."),
    "job_external_id_is_unique": ("external_id_taken", "There is already a job with this external_id."),
    "workflow_name_is_unique": ("name_taken", "There is already a workflow of this name (case does not count)."),
    "workflow_external_id_is_unique": ("external_id_taken", "There is already a workflow with this external_id."),
    "calendar_name_is_unique": ("name_taken", "There is already a calendar of this name (case does not count)."),
    "schedule_name_is_unique": ("name_taken", "There is already a schedule of this name (case does not count)."),
    "schedule_external_id_is_unique": ("external_id_taken", "There is already a schedule with this external_id."),
}


@contextmanager
def names_conflict() -> Iterator[None]:
    """Turns a unique violation of a name into a Conflict; to be put around the transaction."""
    try:
        yield
    except IntegrityError as error:
        diagnostics = getattr(error.__cause__, "diag", None)
        code, detail = TAKEN.get(getattr(diagnostics, "constraint_name", None) or "", ("", ""))
        if not code:
            raise
        raise Conflict(detail, code=code) from error


def taken(kind: str, *, external_id: bool) -> Conflict:
    """What an object of this kind gets whose name or external id another one has."""
    code, detail = TAKEN[f"{kind}_{'external_id' if external_id else 'name'}_is_unique"]
    return Conflict(detail, code=code)
