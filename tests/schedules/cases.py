"""Reads the case files, which say how other schedulers went wrong and what is right."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

CASES = Path(__file__).resolve().parent.parent / "cases"


def read_cases(name: str) -> list[dict[str, Any]]:
    """All cases of one file."""
    return [json.loads(line) for line in (CASES / name).read_text(encoding="utf-8").splitlines()]


def case(name: str, number: str) -> dict[str, Any]:
    """One case by its id."""
    return next(each for each in read_cases(name) if each["id"] == number)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
