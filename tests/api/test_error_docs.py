"""docs/reference is as the code says, and lists every code that the code knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.commands import run_command

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("apps", "tenants", "platform/kernel")
CLASS_CODE = re.compile(r'^    code = "([a-z_]+)"', re.MULTILINE)
RAISED = re.compile(r'raise \w+\((?:[^()]|\([^()]*\))*?\bcode="([a-z_]+)"')
FAULT = re.compile(r'(?:\.add|FieldError)\(\s*[^,()]*(?:\([^()]*\)[^,()]*)?,\s*"([a-z_]+)",\s')
# What simulate, commands and pages of the console say, which is in no answer of the API.
ELSEWHERE = (
    "dispatch/simulation",
    "management/commands",
    "apps/portal",
    "apps/presenting",
    "apps/life",
    "tenants/renaming.py",
    "tenants/provisioning.py",
)
# Bases that nobody sees; an invariant; what only the operator meets.
INTERNAL = {
    "error", "forbidden", "conflict", "no_tenant", "grace_over", "not_deleting", "not_suspended", "still_running",
    "passphrase_wrong", "parcel_damaged", "parcel_not_written", "not_importing", "ids_in_use", "changed",
    "already_paused", "not_paused",
}  # fmt: skip


def sources(but: tuple[str, ...] = ()) -> list[str]:
    paths = [path for source in SOURCES for path in (ROOT / source).rglob("*.py")]
    return [path.read_text() for path in paths if not any(one in path.as_posix() for one in but)]


def test_the_generated_parts_are_up_to_date() -> None:
    assert run_command("api_reference", "--check") == (0, "No page is stale.\n", "")


def test_every_code_that_is_raised_is_in_the_table() -> None:
    from apps.api.codes import CODES

    raised = {code for text in sources() for pattern in (CLASS_CODE, RAISED) for code in pattern.findall(text)}
    assert len(raised) >= 25
    assert raised - INTERNAL <= set(CODES), "apps/api/codes.py lacks them"


def test_every_code_of_a_problem_or_a_fault_is_documented() -> None:
    documented = set(re.findall(r"`([a-z_]+)`", (ROOT / "docs/reference/errors.md").read_text()))
    found = {code for text in sources() for code in re.findall(r'\bcode\s*=\s*"([a-z_]+)"', text)}
    assert found - INTERNAL <= documented
    faults = {code for text in sources(but=ELSEWHERE) for code in FAULT.findall(text)}
    assert len(faults) >= 40
    assert faults - {"alias"} <= documented, "of cron expressions the page says that they have codes of their own"


def test_a_part_that_nobody_makes_is_found() -> None:
    from apps.api.reference import refreshed

    assert refreshed("a\n<!-- generated: problem_codes -->\nold\n<!-- end -->\nb\n").startswith("a\n<!-- gen")
    with pytest.raises(KeyError):
        refreshed("<!-- generated: nothing -->\n<!-- end -->\n")
