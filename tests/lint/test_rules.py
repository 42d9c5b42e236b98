"""Each lint rule finds its bad lines and leaves its good ones alone."""

from pathlib import PurePosixPath

import pytest

from tests.lint.rules import RULES, Rule, check

# One path that every rule looks at, or the nearest.
PATHS = {
    "no-sleep-in-tests": PurePosixPath("tests/api/test_jobs.py"),
    "one-door-per-object": PurePosixPath("apps/api/jobs.py"),
}


def names(text: str, rule: Rule) -> list[str]:
    path = PATHS.get(rule.name, PurePosixPath("apps/due/store.py"))
    return [finding.rule.name for finding in check(text, path=path)]


@pytest.mark.parametrize(("rule", "text"), [(rule, text) for rule in RULES for text in rule.bad])
def test_bad_lines_are_found(rule: Rule, text: str) -> None:
    assert rule.name in names(text, rule)


@pytest.mark.parametrize(("rule", "text"), [(rule, text) for rule in RULES for text in rule.good])
def test_good_lines_pass(rule: Rule, text: str) -> None:
    assert rule.name not in names(text, rule)


def test_a_line_may_say_why_it_breaks_a_rule() -> None:
    path = PurePosixPath("apps/due/store.py")
    assert not check("job.save()  # lint: allow save-names-fields: the row is new", path=path)
    assert check("job.save()  # lint: allow save-names-fields:", path=path), "without a reason it does not count"
    assert check("job.save()  # lint: allow no-with-tenant: wrong rule", path=path)


def test_rules_keep_to_their_paths() -> None:
    assert not check("time.sleep(1)", path=PurePosixPath("workers/app.py"))
    assert not check("Job.objects.get(pk=1)", path=PurePosixPath("apps/due/store.py"))
    assert not check("job.save()", path=PurePosixPath("apps/due/migrations/0001_initial.py"))
