"""The models and the migrations say the same, and migrations stand in one line."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from django.core.management import call_command

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
