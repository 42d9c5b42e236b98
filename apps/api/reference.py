"""The generated parts of docs/reference, from the API's own description of itself.

A generated part stands between two lines, `<!-- generated: NAME -->` and `<!-- end -->`; what is around it is written
by people. `manage.py api_reference` writes the parts, and a test finds those that are not as they should be.
"""

import re
from collections.abc import Callable, Mapping

from apps.api.codes import CODES

PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->\n)", re.DOTALL)


def problem_codes() -> str:
    """The table of all codes by status."""
    rows = ["| status | code | meaning | what to do |", "|---|---|---|---|"]
    by_status = sorted(
        (status, place, name) for place, (name, code) in enumerate(CODES.items()) for status in code.statuses
    )
    for status, _, name in by_status:
        code = CODES[name]
        rows.append(f"| {status} | `{name}` | {code.meaning} | {code.remedy} |".replace("|  |", "| |"))
    return "\n".join(rows) + "\n"


# Name of a part -> its text.
PARTS: Mapping[str, Callable[[], str]] = {"problem_codes": problem_codes}
FILES = ("docs/reference/errors.md",)


def refreshed(text: str) -> str:
    """The text of a page with its generated parts as they should be. KeyError for a part that nobody makes."""
    return PART.sub(lambda found: f"{found[1]}\n{PARTS[found[2]]()}\n{found[3]}", text)
