"""The project's own lint rules: mistakes that were made elsewhere and that no general linter knows.

`python -m tests.lint.rules` checks the tree; exit 1 when something is found. Each rule carries lines it must find and
lines it must leave alone, and the tests hold it to them. A line that must break a rule says why:
`# lint: allow rule-name: reason`.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]

Finder = Callable[[ast.Module, str], Iterator[int]]


@dataclass(frozen=True)
class Rule:
    """One mistake: where it is looked for, how it is found (line numbers), and examples."""

    name: str
    message: str
    paths: str  # a regular expression on the path from the root
    find: Finder
    bad: tuple[str, ...]
    good: tuple[str, ...]


@dataclass(frozen=True)
class Finding:
    path: PurePosixPath
    line: int
    rule: Rule

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule.name}: {self.rule.message}"


def check(text: str, *, path: PurePosixPath) -> list[Finding]:
    """What the rules find in one file."""
    rules = [rule for rule in RULES if re.match(rule.paths, str(path))]
    if not rules:
        return []
    tree = ast.parse(text, filename=str(path))
    allowed = _allowed(text)
    found = [Finding(path, line, rule) for rule in rules for line in rule.find(tree, text)]
    return sorted(
        (finding for finding in found if (finding.line, finding.rule.name) not in allowed), key=lambda one: one.line
    )


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    paths = listed.stdout.split() if listed.returncode == 0 else [str(p.relative_to(ROOT)) for p in _walk()]
    found = [
        finding
        for path in sorted(paths)
        if (ROOT / path).exists()
        for finding in check((ROOT / path).read_text(), path=PurePosixPath(path))
    ]
    for finding in found:
        print(finding)
    print(f"lint rules: {len(paths)} files, {len(found)} findings")
    return 1 if found else 0


def _walk() -> Iterator[Path]:
    for path in ROOT.rglob("*.py"):
        if not {".venv", "var", "build"} & set(path.relative_to(ROOT).parts):
            yield path


def _allowed(text: str) -> set[tuple[int, str]]:
    pattern = re.compile(r"# lint: allow ([a-z-]+): \S")
    return {(number, name) for number, line in enumerate(text.splitlines(), 1) for name in pattern.findall(line)}


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _last_name(node: ast.expr) -> str:
    """`job` of `self.job`, `form` of `form`, `super` of `super()`; "" for anything else."""
    if isinstance(node, ast.Call):
        return _last_name(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _save_without_fields(tree: ast.Module, text: str) -> Iterator[int]:
    for call in _calls(tree):
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "save"):
            continue
        receiver = _last_name(call.func.value)
        # Forms and serializers save through their own code, and super() is inside such code.
        if receiver == "super" or receiver.endswith(("form", "formset", "serializer", "session")):
            continue
        # force_insert can only make a new row; ** hides the names.
        if not any(keyword.arg in ("update_fields", "force_insert", None) for keyword in call.keywords):
            yield call.lineno


def _with_tenant(tree: ast.Module, text: str) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                plain = isinstance(item.context_expr, ast.Name | ast.Attribute)
                if plain and _last_name(item.context_expr).endswith("tenant"):
                    yield item.context_expr.lineno


def _sleep(tree: ast.Module, text: str) -> Iterator[int]:
    for call in _calls(tree):
        # asyncio.sleep(0) only lets others run; a target that is slow on purpose waits in its own process.
        zero = len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
        if _last_name(call.func) == "sleep" and not zero:
            yield call.lineno


def _broker_delay(tree: ast.Module, text: str) -> Iterator[int]:
    for call in _calls(tree):
        if any(keyword.arg in ("eta", "countdown") for keyword in call.keywords):
            yield call.lineno


def _objects_get(tree: ast.Module, text: str) -> Iterator[int]:
    for call in _calls(tree):
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr == "get" and _last_name(func.value) == "objects":
            yield call.lineno
        if _last_name(func) == "get_object_or_404":
            yield call.lineno


def _ignore_without_reason(tree: ast.Module, text: str) -> Iterator[int]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and re.search(r"#\s*type:\s*ignore", token.string):
            rest = re.sub(r"^.*?#\s*type:\s*ignore(\[[^\]]*\])?", "", token.string)
            if not re.search(r"\w", re.sub(r"#\s*(noqa|lint)\b.*", "", rest)):
                yield token.start[0]


def _unbounded_memory(tree: ast.Module, text: str) -> Iterator[int]:
    for call in _calls(tree):
        name, named = _last_name(call.func), {keyword.arg for keyword in call.keywords}
        if name == "deque" and "maxlen" not in named and len(call.args) < 2:
            yield call.lineno
        if name == "SimpleQueue" or (name in QUEUES and not call.args and not {"maxsize", "name"} & named):
            yield call.lineno
        if name == "lru_cache" and any(_is_none(one) for one in [*call.args, *(one.value for one in call.keywords)]):
            yield call.lineno
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            cached = [one for one in node.decorator_list if _last_name(one) == "cache"]
            if cached and arguments:
                yield cached[0].lineno


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


QUEUES = ("Queue", "LifoQueue", "PriorityQueue")
EVERYWHERE = r"(?!.*/migrations/)"

RULES = (
    Rule(
        name="save-names-fields",
        message="save(update_fields=...) or one conditional UPDATE; a bare save writes stale columns over new ones",
        paths=EVERYWHERE,
        find=_save_without_fields,
        bad=("job.save()", "self.instance.save(using=alias)"),
        good=(
            'job.save(update_fields=["paused"])',
            "tenant.save(force_insert=True)",
            "form.save()",
            "self.serializer.save(tenant=tenant)",
            "super().save(*args, **kwargs)",
            "job.save(**options)",
        ),
    ),
    Rule(
        name="no-with-tenant",
        message="`with tenant:` leaks between threads; use tenants.door.inside(tenant)",
        paths=EVERYWHERE,
        find=_with_tenant,
        bad=("with tenant:\n    pass", "with self.tenant as t:\n    pass", "with lock, other_tenant:\n    pass"),
        good=("with inside(tenant):\n    pass", "with tenant_lock:\n    pass"),
    ),
    Rule(
        name="no-sleep-in-tests",
        message="wait for a condition with the `wait_for` fixture; a sleep is too short or too long",
        paths=r"tests/(?!bench/)",
        find=_sleep,
        bad=("time.sleep(1)", "sleep(0.1)", "await asyncio.sleep(5)"),
        good=("await asyncio.sleep(0)", "wait_for(ready)", "sleeper.start()"),
    ),
    Rule(
        name="no-broker-delay",
        message="the broker keeps no time: a delayed run waits in the due index, a retry on its ticket",
        paths=EVERYWHERE,
        find=_broker_delay,
        bad=("task.apply_async(args, countdown=5)", "task.apply_async(eta=later)"),
        good=("task.apply_async(args, queue=queue)", "schedule(run_at=later)"),
    ),
    Rule(
        name="one-door-per-object",
        message="use the access_* function of the object: it scopes, checks and answers the same 404 for all",
        paths=r"apps/(api|console|portal)/",
        find=_objects_get,
        bad=("Job.objects.get(pk=pk)", "get_object_or_404(Job, pk=pk)", "models.Job.objects.get()"),
        good=("access_job(actor=actor, job_id=pk, need=READ)", "Job.objects.filter(pk=pk)", "cache.get(key)"),
    ),
    Rule(
        name="ignore-has-reason",
        message="say after `type: ignore[code]` why the type checker is wrong: `# type: ignore[code]  # reason`",
        paths=EVERYWHERE,
        find=_ignore_without_reason,
        bad=("x = 1  # type: ignore", "x = 1  # type: ignore[assignment]", "x = 1  # type: ignore[a]  # noqa: E501"),
        good=("x = 1  # type: ignore[assignment]  # the stub says str, the server answers int", 's = "# type: ignore"'),
    ),
    Rule(
        name="memory-has-a-bound",
        message="give it a size, or name what bounds it: `# lint: allow memory-has-a-bound: at most one for each slot`",
        paths=r"(apps|tenants|workers|platform/kernel)/(?!.*/migrations/)",
        find=_unbounded_memory,
        bad=(
            "waiting = deque()",
            "waiting = collections.deque(items)",
            "jobs = queue.SimpleQueue()",
            "jobs = asyncio.Queue()",
            "@lru_cache(maxsize=None)\ndef found(one: str) -> str: ...",
            "@cache\ndef found(one: str) -> str: ...",
        ),
        good=(
            "waiting = deque(maxlen=100)",
            "jobs = queue.Queue(100)",
            "declared = kombu.Queue(name, durable=True)",
            "@lru_cache(maxsize=100)\ndef found(one: str) -> str: ...",
            "@cache\ndef found() -> str: ...",
        ),
    ),
)

if __name__ == "__main__":
    sys.exit(main())
