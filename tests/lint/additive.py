"""May the version before this one go on while a migration runs, and after it? That is what makes one additive.

Thousands of schemas take a while to migrate, and processes of both versions work meanwhile: the old one in schemas that
are migrated already. So a release adds (expands), and only a later one, when nobody names it any more, takes away
(contracts). A migration that takes away says why nobody misses it: `# lint: allow additive-migration: reason`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from django.contrib.postgres.operations import AddConstraintNotValid, AddIndexConcurrently
from django.db import connection, models
from django.db.migrations import operations as ops
from django.db.migrations.migration import Migration
from django.db.migrations.state import ProjectState

ALLOWED = re.compile(r"# lint: allow additive-migration: \S")
# Tables of which a tenant or the platform may have millions of rows, or that everybody waits for.
LARGE = {
    "executions.execution", "executions.attempt", "deadletters.deadletter", "events.event", "workflows.run",
    "workflows.steprun", "workflows.dependency", "operations.item", "audit.auditevent", "due.dueentry",
    "tickets.ticket",
}  # fmt: skip


def faults(migration: Migration, before: ProjectState) -> Iterator[str]:
    """What a process of the version before would not survive, or would have to wait long for."""
    state, made = before.clone(), set[str]()
    for operation in migration.operations:
        after = state.clone()
        operation.state_forwards(migration.app_label, after)
        if isinstance(operation, ops.CreateModel):
            made.add(operation.name_lower)
        elif getattr(operation, "model_name_lower", "") not in made:
            yield from _faults(migration.app_label, operation, state, after)
        state = after


def is_allowed(migration: Migration) -> bool:
    """Whether its file says why it may."""
    return bool(ALLOWED.search(Path(inspect.getfile(type(migration))).read_text(encoding="utf-8")))


def _faults(app: str, operation: ops.base.Operation, before: ProjectState, after: ProjectState) -> Iterator[str]:
    match operation:
        case ops.RemoveField() | ops.DeleteModel() | ops.RenameField() | ops.RenameModel() | ops.AlterModelTable():
            yield f"{operation.describe()}: the version before still names it"
        case ops.AddField(field=field):
            if not field.many_to_many and not field.null and not field.has_db_default():
                yield f"{operation.describe()}: the version before inserts rows without it; give it null or db_default"
        case ops.AlterField(model_name_lower=model, name=name):
            old, new = (state.models[app, model].fields[name] for state in (before, after))
            if old.null and not new.null:
                yield f"{operation.describe()}: the version before may leave it empty"
            if not old.many_to_many and _type(old) != _type(new) and not _is_longer(old, new):
                yield f"{operation.describe()}: the table is written anew, and the version before knows another type"
        case AddIndexConcurrently() | AddConstraintNotValid():
            pass
        case ops.AddIndex(model_name_lower=model) if f"{app}.{model}" in LARGE:
            yield f"{operation.describe()}: writers wait until it is made; use AddIndexConcurrently, atomic = False"
        case ops.AddConstraint(model_name_lower=model) if f"{app}.{model}" in LARGE:
            yield f"{operation.describe()}: everybody waits while all rows are read; use AddConstraintNotValid"


def _type(field: models.Field) -> str:
    if field.remote_field is not None:
        return f"{field.get_internal_type()} {field.remote_field.model}"
    return str(field.db_parameters(connection)["type"])


def _is_longer(old: models.Field, new: models.Field) -> bool:
    """A text that may be longer than before: no row changes."""
    return (
        isinstance(old, models.CharField) and isinstance(new, models.CharField | models.TextField)
        and (new.max_length or 1_000_000) >= (old.max_length or 1_000_000)
    )  # fmt: skip
