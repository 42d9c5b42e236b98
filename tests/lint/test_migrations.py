"""The models and the migrations say the same, and migrations stand in one line."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from django.contrib.postgres.operations import AddIndexConcurrently
from django.core.management import call_command
from django.db import migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ProjectState

from tests.lint.additive import faults, is_allowed

# The last ones that were made before there were two versions to be told apart.
BEFORE_THE_RULE = {
    "api": 1, "audit": 5, "deadletters": 2, "due": 13, "events": 1, "executions": 5, "schedules": 7, "secrets": 4,
    "signin": 1, "tenants": 11, "tickets": 11, "usage": 3, "webhooks": 1, "workers": 1, "workflows": 1,
}  # fmt: skip
ROOT = Path(__file__).resolve().parents[2]


def test_no_model_lacks_a_migration(database: None) -> None:
    try:
        call_command("makemigrations", check=True, dry_run=True, verbosity=0)
    except SystemExit:
        pytest.fail("run manage.py makemigrations: models have changed")


def test_no_two_migrations_of_an_app_have_one_number() -> None:
    numbers = Counter(
        (path.parent, path.name[:4]) for path in ROOT.glob("*/**/migrations/[0-9]*.py") if ".venv" not in path.parts
    )
    assert [key for key, times in numbers.items() if times > 1] == []


def test_migrations_are_additive() -> None:
    """Of those that a release has not had yet: see `tests.lint.additive`."""
    from django.apps import apps

    loader = MigrationLoader(None)
    paths = {config.label: Path(config.path) for config in apps.get_app_configs()}
    ours = {label for label, path in paths.items() if path.is_relative_to(ROOT) and ".venv" not in path.parts}
    state, found, looked_at = ProjectState(real_apps=loader.unmigrated_apps), [], 0
    for key in dict.fromkeys(key for target in loader.graph.leaf_nodes() for key in loader.graph.forwards_plan(target)):
        migration = loader.graph.nodes[key]
        if key[0] in ours and int(key[1][:4]) > BEFORE_THE_RULE.get(key[0], 0):
            looked_at += 1
            found += [f"{'.'.join(key)}: {fault}" for fault in faults(migration, state) if not is_allowed(migration)]
        migration.mutate_state(state, preserve=False)
    assert looked_at and found == []


NAME = models.CharField(max_length=20, null=True)
INDEX = models.Index(fields=["name"], name="by_name")
CHECK = models.CheckConstraint(condition=models.Q(name="x"), name="is_x")


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        (migrations.RemoveField("execution", "name"), "still names it"),
        (migrations.RenameField("execution", "name", "title"), "still names it"),
        (migrations.DeleteModel("execution"), "still names it"),
        (migrations.AddField("execution", "size", models.IntegerField(default=0)), "null or db_default"),
        (migrations.AlterField("execution", "name", models.CharField(max_length=20, default="")), "leave it empty"),
        (migrations.AlterField("execution", "name", models.CharField(max_length=10, null=True)), "written anew"),
        (migrations.AlterField("execution", "name", models.IntegerField(null=True)), "written anew"),
        (migrations.AddIndex("execution", INDEX), "writers wait"),
        (migrations.AddConstraint("execution", CHECK), "everybody waits"),
        (migrations.AddField("execution", "size", models.IntegerField(null=True)), ""),
        (migrations.AddField("execution", "size", models.IntegerField(db_default=0)), ""),
        (migrations.AlterField("execution", "name", models.TextField(null=True)), ""),
        (migrations.AlterField("execution", "name", models.CharField(max_length=20, null=True, help_text="x")), ""),
        (AddIndexConcurrently("execution", INDEX), ""),
        (migrations.CreateModel("other", [("id", models.IntegerField(primary_key=True))]), ""),
    ],
)
def test_what_is_not_additive(operation: Any, said: str) -> None:
    state = ProjectState()
    key = ("id", models.IntegerField(primary_key=True))
    migrations.CreateModel("execution", [key, ("name", NAME)]).state_forwards("executions", state)
    migration = type("Migration", (migrations.Migration,), {"operations": [operation]})("9999", "executions")
    found = list(faults(migration, state))
    assert len(found) == bool(said) and all(said in fault for fault in found)
