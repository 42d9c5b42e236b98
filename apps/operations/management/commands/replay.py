"""Replays dead letters: single ones at once, many as an operation that dispatchers work off."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
from django.core.management.base import CommandParser

from apps.audit.actors import Actor
from apps.operations.models import Operation
from apps.operations.pacing import Pace
from apps.operations.progress_line import progress_line
from apps.operations.reading import counts_of
from apps.operations.services import Rehearsed, Wish, operation_create, operation_rehearse
from apps.operations.states import ITEM_STATES
from apps.operations.watching import Look, stands_still, until_ended
from apps.outcomes.again import MAX_REPLAYS, UNCHANGED, How
from apps.outcomes.replay import deadletters_replay
from kernel.errors import Faults, ShardbeatError, code_of
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base
from tenants.models import Tenant
from tenants.work import database_now, in_tenant, rehearsing

NAME = "command:replay"
LETTER_NOTE_CHARS, OPERATION_REASON_CHARS = 1_000, 500
PACE = {"rate": "rate_per_s", "max_in_flight": "max_in_flight", "canary": "canary", "stop_after": "stop_after_failures"}


class Command(Base):
    help = (
        "Replay dead letters that are open: some by their ids, or many by a filter, as an operation. Exit 0 when all"
        " of it was done, 1 when some could not be or it did not go through, 2 for bad input."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", required=True, metavar="SLUG")
        parser.add_argument(
            "--id", action="append", default=[], metavar="ID", help="Of a letter; at once, no operation."
        )
        parser.add_argument(
            "--filter", action="append", default=[], metavar="NAME=VALUE",
            help="As in GET /dead-letters: job, schedule, execution, error_class, created_after, created_before.",
        )  # fmt: skip
        parser.add_argument("--fingerprint", metavar="TEXT", help="Those of one cause: see GET /dead-letters/groups.")
        parser.add_argument("--all", action="store_true", help="All that are open.")
        parser.add_argument("--payload", metavar="JSON", help="Instead of theirs; @FILE reads it from a file.")
        parser.add_argument("--new-key", action="store_true", help="As new executions, with new run keys.")
        parser.add_argument(
            "--max-replays", type=int, default=MAX_REPLAYS, metavar="N",
            help=f"Leave alone what was replayed so many times and died each time; {MAX_REPLAYS} when not given.",
        )  # fmt: skip
        parser.add_argument("--force", action="store_true", help="However often it was replayed.")
        parser.add_argument("--note", default="", metavar="TEXT", help="Stays with the letters and in the trail.")
        parser.add_argument("--rate", type=float, metavar="N", help="Letters a second at most.")
        parser.add_argument("--max-in-flight", type=int, metavar="N", help="Runs at once.")
        parser.add_argument("--canary", type=int, metavar="N", help="So many first; the others when they succeeded.")
        parser.add_argument("--stop-after", type=int, metavar="N", help="Failures; what is left then is left alone.")
        parser.add_argument("--dry-run", action="store_true", help="Only say what it would do.")
        parser.add_argument("--wait", action="store_true", help="Show its progress until it has ended.")

    def handle(self, *args: Any, **options: Any) -> None:
        tenant = self.tenant(options["tenant"])
        many = self._filter(options)
        if options["max_replays"] < 1:
            self.refuse("--max-replays must be 1 or more.")
        most = LETTER_NOTE_CHARS if options["id"] else OPERATION_REASON_CHARS
        if len(options["note"]) > most:
            self.refuse(f"--note has {len(options['note']):,} characters; {most:,} are allowed here.")
        if options["id"] and many:
            self.refuse("Give either ids or a filter.")
        if options["id"]:
            self._some(tenant, [self.id_of(text) for text in dict.fromkeys(options["id"])], options)
        elif many:
            self._many(tenant, many, options)
        else:
            self.refuse("Say which ones: --id, --filter, --fingerprint or --all.")

    def _some(self, tenant: Tenant, ids: list[UUID], options: Mapping[str, Any]) -> None:
        if any(options[name] is not None for name in PACE):
            self.refuse("A pace is for many: give a filter instead of ids.")
        how = How(
            payload=self._payload(options["payload"]), new_key=options["new_key"], force=options["force"],
            max_replays=options["max_replays"], note=options["note"],
        )  # fmt: skip
        dry = options["dry_run"]
        with rehearsing(dry):
            done = deadletters_replay(
                tenant=tenant, actor=_actor(tenant), letter_ids=ids, now=database_now(), how=how
            )  # fmt: skip
        items, lines, refused = [], [], 0
        for key, one in done.items():
            if isinstance(one, ShardbeatError):
                refused += 1
                items.append({"id": key, "execution": None, "code": code_of(one), "detail": one.detail})
                lines.append(f"{key}: {one.detail}")
            else:
                shown = None if dry and how.makes_new else one.execution_id  # a new one is not there after all
                items.append({"id": key, "execution": shown, "code": None, "detail": None})
                lines.append(f"{key}: {'could be replayed' if dry else f'execution {shown} runs'}")
        self.show({"dry_run": dry, "items": items}, "\n".join(lines), as_json=options["format"] == "json")
        if refused:
            raise SystemExit(EXIT_FOUND)

    def _many(self, tenant: Tenant, filter_: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        faults = Faults()
        given = {name: options[option] for option, name in PACE.items() if options[option] is not None}
        pace = Pace().changed(given, faults)
        faults.raise_if_any()
        params: dict[str, Any] = {name: options[name] for name in ("new_key", "force", "max_replays")}
        if (payload := self._payload(options["payload"])) is not UNCHANGED:
            params["payload"] = payload
        wish = Wish("replay", "dead_letters", filter_, params, pace, options["note"])
        as_json = options["format"] == "json"
        if options["dry_run"]:
            seen = operation_rehearse(tenant=tenant, actor=_actor(tenant), wish=wish, now=database_now())
            self.show(_rehearsed(seen), rehearsed_text(seen), as_json=as_json)
            return
        made = operation_create(tenant=tenant, actor=_actor(tenant), wish=wish, now=database_now())
        if options["wait"]:
            self._wait(tenant, made.pk, as_json=as_json)
        else:
            self.show(told(made), f"Operation {made.pk} replays them.", as_json=as_json)

    def _wait(self, tenant: Tenant, operation_id: UUID, *, as_json: bool) -> None:
        def look() -> Look:
            one: Operation = in_tenant(tenant, lambda: Operation.objects.get(pk=operation_id))
            counts = counts_of(one)
            line = progress_line(
                one.state, counts, planned=one.planned, expected_end=None, waits_for=one.waits_for or one.paused_reason
            )
            return Look(line, one.finished_at is not None or stands_still(one.state, counts), one)

        try:
            one = until_ended(self.stderr, look)
        except KeyboardInterrupt:
            self.stderr.write(f"\nIt goes on: operation {operation_id}.")
            raise SystemExit(EXIT_FOUND) from None
        self.show(told(one), ended_text(one), as_json=as_json)
        if one.state != "completed" or one.failed or one.skipped:
            raise SystemExit(EXIT_FOUND)

    def _filter(self, options: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for text in options["filter"]:
            name, equals, value = text.partition("=")
            if not name or not equals or not value:
                self.refuse(f"--filter {text!r} must look like name=value.")
            found.setdefault(name, []).append(value)
        if options["fingerprint"] is not None:
            found["fingerprint"] = options["fingerprint"]
        if options["all"]:
            if found:
                self.refuse("--all is for all of them: leave the filters out.")
            return {"all": True}
        return found

    def _payload(self, text: str | None) -> Any:
        if text is None:
            return UNCHANGED
        try:
            return orjson.loads(Path(text[1:]).read_bytes() if text.startswith("@") else text)
        except OSError as error:
            self.refuse(f"--payload: {text[1:]} can't be read: {error.strerror}.")
        except ValueError:
            self.refuse("--payload is no JSON.")


def told(one: Operation) -> dict[str, Any]:
    """How an operation is, for programs."""
    return {"operation": one.pk, "state": one.state, "counts": counts_of(one)}


def ended_text(one: Operation) -> str:
    """How an operation ended, for people."""
    counts = ", ".join(f"{count:,} {name}" for name in ITEM_STATES if (count := getattr(one, name)))
    why = one.error or one.paused_reason
    why = f" ({why})" if why else ""
    return f"Operation {one.pk} {one.state}{why}: of {one.planned:,} letters {counts or 'none'}."


def rehearsed_text(seen: Rehearsed) -> str:
    """What an operation would be about, for people."""
    lines = [f"{seen.count:,} open dead letters would be replayed."]
    lines += [f"  {one.target_id}" for one in seen.sample]
    if seen.count > len(seen.sample):
        lines.append(f"  and {seen.count - len(seen.sample):,} more")
    return "\n".join([*lines, *(f"Note: {warning}" for warning in seen.warnings)])


def _rehearsed(seen: Rehearsed) -> dict[str, Any]:
    sample = [one.target_id for one in seen.sample]
    return {"dry_run": True, "count": seen.count, "sample": sample, "warnings": seen.warnings}


def _actor(tenant: Tenant) -> Actor:
    return Actor(name=NAME, role="admin", tenant_id=tenant.pk)
