"""A version of this software with migrations that there are not: what a test or a measurement of migrating needs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenants.template import Step


def names_of(*steps: Step) -> dict[str, object]:
    """What `tenants.template` answers in a version that has these steps too, by the names of its functions."""
    from tenants import template

    every = (*template.steps(), *steps)
    labels = tuple(step.label for step in every)
    return {"steps": lambda: every, "labels": lambda: labels, "version": lambda: f"next {steps[-1].name}"}


def main() -> None:
    """`python -m tests.next_version NAME SQL [NAME SQL ...] -- ARGS` is `tenant_migrate ARGS` of such a version."""
    import django

    django.setup()
    from django.core.management import call_command

    from tenants import template

    end = sys.argv.index("--")
    given = sys.argv[1:end]
    steps = [template.Step("executions", name, (sql,)) for name, sql in zip(given[::2], given[1::2], strict=True)]
    for name, answer in names_of(*steps).items():
        setattr(template, name, answer)
    call_command("tenant_migrate", *sys.argv[end + 1 :])


if __name__ == "__main__":
    main()
