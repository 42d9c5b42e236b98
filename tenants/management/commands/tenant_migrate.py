"""Brings the shared schema and every tenant's schema up to date."""

from typing import Any

from django.core.management.base import CommandParser

from kernel.clock import monotonic_s
from tenants import behind, door
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base
from tenants.migrating import Rules, Tally, migrate
from tenants.migrating_one import Result
from tenants.migrating_shared import shared_migrate

PROGRESS_EVERY_S = 2.0
NAMES_SHOWN = 10


class Command(Base):
    help = (
        "Migrate the shared schema, then all tenants that lack a migration. Can be stopped or killed and run again. "
        "Exit 1 when schemas are behind at the end."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--status", action="store_true", help="Only say how many lack what; exit 1 if any.")
        parser.add_argument("--dry-run", action="store_true", help="Only say which schemas lack what; exit 1 if any.")
        parser.add_argument("--tenant", action="append", metavar="SLUG", help="This tenant only; may be repeated.")
        parser.add_argument("--jobs", type=int, default=4, help="Schemas at a time.")
        parser.add_argument(
            "--canary", type=int, default=0, metavar="N", help="N first; the rest only when all of these went well."
        )
        parser.add_argument(
            "--stop-after", type=int, default=20, metavar="N", help="Stop after N failures (20); 0: never."
        )
        parser.add_argument(
            "--lock-timeout-ms", type=int, default=1_000, help="Longest wait for a table that is in use (1000)."
        )
        parser.add_argument(
            "--retry-for-s", type=float, default=300, help="How long tables in use are tried again (300)."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        as_json = options["format"] == "json"
        if options["lock_timeout_ms"] < 1:
            self.refuse("--lock-timeout-ms must be at least 1.")
        rules = Rules(
            jobs=options["jobs"], lock_timeout_ms=options["lock_timeout_ms"], retry_for_s=options["retry_for_s"],
            canary=options["canary"], stop_after=options["stop_after"],
        )  # fmt: skip
        door.become_owner()
        if options["dry_run"] or options["status"]:
            with door.connect("migrate look", owner=True, guarded=False) as conn:
                shared = behind.shared_pending(conn)
            empty = "tenants.0001_initial" in shared  # nothing knows of tenants yet
            found = behind.Standing() if empty else behind.standing(self._schemas(options["tenant"]))
            (self._show_status if options["status"] else self._show_pending)(found, shared, as_json=as_json)
            raise SystemExit(EXIT_FOUND if found.behind or shared else 0)
        shared_migrate(lock_timeout_ms=rules.lock_timeout_ms, retry_for_s=rules.retry_for_s, say=self.stderr.write)
        begun = monotonic_s()
        lacking = behind.pending(self._schemas(options["tenant"]))
        heard = _Heard(self, len(lacking))
        tally = migrate(lacking, rules=rules, report=heard.result)
        self._show_done(tally, heard.behind, monotonic_s() - begun, as_json=as_json)
        if not tally.whole:
            raise SystemExit(EXIT_FOUND)

    def _schemas(self, slugs: list[str] | None) -> list[str] | None:
        return [self.tenant(slug).schema_name for slug in slugs] if slugs else None

    def _show_pending(self, found: behind.Standing, shared: list[str], *, as_json: bool) -> None:
        answer = {one.schema: [step.label for step in one.steps] for one in found.behind}
        lines = [f"the shared schema: {', '.join(shared)}"] if shared else []
        lines += [f"{schema}: {', '.join(names)}" for schema, names in answer.items()]
        text = "\n".join(lines) or "All schemas are up to date."
        self.show({"shared": shared, "pending": answer}, text, as_json=as_json)

    def _show_status(self, found: behind.Standing, shared: list[str], *, as_json: bool) -> None:
        missing, count = found.missing(), len(found.behind)
        answer = {
            "schemas": found.schemas, "up_to_date": found.schemas - count, "behind": count, "shared": shared,
            "missing": {label: len(schemas) for label, schemas in missing.items()}, "unknown": dict(found.unknown),
        }  # fmt: skip
        lines = [f"{found.schemas:,} tenant schemas: {found.schemas - count:,} up to date, {count:,} behind."]
        lines += [f"{label} is missing in {len(schemas):,}: {_names(schemas)}" for label, schemas in missing.items()]
        lines += [f"{label} is in {times:,}; this version does not know it." for label, times in found.unknown.items()]
        lines += [f"{label} is missing in the shared schema." for label in shared]
        self.show(answer, "\n".join(lines), as_json=as_json)

    def _show_done(self, tally: Tally, behind_now: list[Result], took_s: float, *, as_json: bool) -> None:
        answer = {
            "migrated": tally.migrated, "failed": tally.failed, "locked": tally.later, "left": tally.left,
            "took_s": round(took_s, 2), "behind": [
                {"schema": one.schema, "state": one.state, "step": one.step, "reason": one.reason} for one in behind_now
            ],
        }  # fmt: skip
        lines = [f"{one.schema}: {_said(one)}" for one in behind_now]
        if tally.left:
            lines.append(f"Stopped: {tally.left:,} are left. Run it again for the rest.")
        if tally.migrated or behind_now or tally.left:
            lines.append(f"{tally.migrated:,} migrated, {len(behind_now) + tally.left:,} behind, in {took_s:.1f} s.")
        self.show(answer, "\n".join(lines) or "All schemas are up to date.", as_json=as_json)


class _Heard:
    """What a run tells: a line of progress on standard error now and then, and which schemas are behind in the end."""

    def __init__(self, command: Command, total: int) -> None:
        self._command, self._total = command, total
        self._done = 0
        self.behind: list[Result] = []
        self._begun = self._told_at = monotonic_s()

    def result(self, result: Result) -> None:
        self._done += 1
        if result.state != "migrated":
            self.behind.append(result)
        now = monotonic_s()
        if now - self._told_at < PROGRESS_EVERY_S:
            return
        self._told_at = now
        per_s = self._done / (now - self._begun)
        self._command.stderr.write(
            f"{self._done:,} of {self._total:,} schemas, {len(self.behind):,} of them not migrated; {per_s:,.0f}/s,"
            f" about {(self._total - self._done) / per_s:,.0f} s left"
        )


def _said(one: Result) -> str:
    what = "is in use" if one.state == "later" else "failed"
    return f"{what} at {one.step}: {one.reason}" if one.step else f"{what}: {one.reason}"


def _names(schemas: list[str]) -> str:
    more = len(schemas) - NAMES_SHOWN
    return ", ".join(schemas[:NAMES_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
