"""Shows which workers listen to which queues, and tells them to listen to more or to fewer."""

from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from apps.audit.services import Actor
from apps.tickets import listeners, served
from apps.tickets.listeners import Change
from apps.tickets.models import Subscription
from apps.tickets.served import LiveProcess
from apps.tickets.subscriptions import Scope, check, subscription_reset, subscription_tell
from kernel.errors import NotFound
from kernel.pools import group_of
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base
from tenants.door import Line
from tenants.registry import Registry
from tenants.work import database_now, rehearsing

ACTOR = Actor(name="command:worker_queues", role="admin")
SHOWN = 10  # names in a line of text; JSON has them all


class Command(Base):
    help = (
        "Which workers listen to which queues; tell those of a group to listen (add) or not to (drop), while they run "
        "and after restarts; take it back (reset). Exit 1 when something waits for a queue that nobody listens to."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("verb", choices=["list", "add", "drop", "reset"])
        parser.add_argument(
            "pattern", nargs="?", metavar="QUEUE", help="A queue such as http.own.acme; * and ? fit any."
        )
        parser.add_argument("--group", default=None, help="The worker group; the shared workers when left out.")
        parser.add_argument("--host", default="", help="Only workers on this host.")
        parser.add_argument("--reason", default="", help="For the audit trail.")
        parser.add_argument("--dry-run", action="store_true", help="Only say what would change.")

    def handle(self, *args: Any, **options: Any) -> None:
        line = Line("worker_queues command")
        try:
            registry = Registry(line)
            registry.refresh(force=True)
            workers = served.processes(line.get())
            if options["verb"] == "list":
                waits = self._list(line, registry, workers, options)
            elif options["verb"] == "reset":
                waits = self._reset(options)
            else:
                waits = self._tell(registry, workers, options)
        finally:
            line.close()
        if waits:
            raise SystemExit(EXIT_FOUND)

    def _list(self, line: Line, registry: Registry, workers: list[LiveProcess], options: dict[str, Any]) -> bool:
        conn, group, host = line.get(), options["group"], options["host"]
        waits = [one for one in listeners.unserved(conn, registry, workers) if group in (None, group_of(one.queue))]
        held = served.held(conn)
        shown = [one for one in workers if group in (None, one.group) and host in ("", one.host)]
        queues = sorted({queue for one in shown for queue in one.queues} | (set() if group or host else held.keys()))
        told = Subscription.objects.order_by("pk")
        told = told if group is None else told.filter(worker_group=group)
        answer = {
            "workers": [
                {
                    "id": str(one.id), "group": one.group, "host": one.host, "pid": one.pid, "slots": one.slots,
                    "draining": one.draining, "queues": sorted(one.queues),
                }
                for one in shown
            ],
            "queues": [
                {
                    "queue": queue, "workers": sum(queue in one.queues for one in workers),
                    "queued": held.get(queue, (0, 0))[0], "running": held.get(queue, (0, 0))[1],
                }
                for queue in queues
            ],
            "told": [
                {
                    "group": one.worker_group, "host": one.host, "queue": one.pattern,
                    "verb": "add" if one.listens else "drop", "reason": one.reason, "by": one.created_by,
                    "at": one.created_at,
                }
                for one in told
            ],
            "unserved": [{"queue": one.queue, "tenants": one.tenants} for one in waits],
            "own_queues": {"max": settings.OWN_QUEUES_MAX, "beyond": dict(registry.beyond)},
        }  # fmt: skip
        self.show(answer, "\n".join(_listed(answer)), as_json=options["format"] == "json")
        return bool(waits)

    def _tell(self, registry: Registry, workers: list[LiveProcess], options: dict[str, Any]) -> bool:
        listens, dry_run = options["verb"] == "add", options["dry_run"]
        scope, pattern = Scope(options["group"] or "", options["host"]), self._pattern(options)
        check(scope, pattern, options["reason"])
        would = listeners.change(registry, workers, scope=scope, pattern=pattern, listens=listens)
        if not would.fits:
            raise NotFound(f"{pattern} fits no queue of {scope}. Queues of another group are for its own workers.")
        with rehearsing(dry_run):
            subscription_tell(
                scope=scope, pattern=pattern, listens=listens, actor=ACTOR, now=database_now(),
                reason=options["reason"],
            )  # fmt: skip
        answer = {
            "verb": options["verb"], "queue": pattern, "group": scope.group, "host": scope.host, "dry_run": dry_run,
            "fits": would.fits, "workers": len(would.workers), "gained": would.gained, "left": would.left,
        }  # fmt: skip
        text = _sentence(would, scope, pattern, listens=listens, dry_run=dry_run)
        self.show(answer, text, as_json=options["format"] == "json")
        return False

    def _reset(self, options: dict[str, Any]) -> bool:
        scope, pattern = Scope(options["group"] or "", options["host"]), options["pattern"]
        with rehearsing(options["dry_run"]):
            count = subscription_reset(
                scope=scope, pattern=pattern, actor=ACTOR, now=database_now(), reason=options["reason"]
            )
        answer = {
            "verb": "reset", "queue": pattern, "group": scope.group, "host": scope.host, "words": count,
            "dry_run": options["dry_run"],
        }  # fmt: skip
        done = "would be taken back" if options["dry_run"] else "taken back"
        self.show(answer, f"{count} told to {scope} {done}.", as_json=options["format"] == "json")
        return False

    def _pattern(self, options: dict[str, Any]) -> str:
        if options["pattern"] is None:
            self.refuse(f"Name a queue: worker_queues {options['verb']} http.own.acme")
        return str(options["pattern"])


def _sentence(would: Change, scope: Scope, pattern: str, *, listens: bool, dry_run: bool) -> str:
    verb = ("would be told" if dry_run else "told") + (" to listen to" if listens else " not to listen to")
    lines = [f"{len(would.workers)} live of {scope} {verb} {_some(would.fits)}."]
    if not would.workers:
        lines.append("None runs now; those that start will do so.")
    if would.gained:
        lines.append(f"Nobody listened to these: {_some(would.gained)}.")
    if would.left:
        lines.append(f"WARNING: nobody listens to these then, and what becomes ready waits: {_some(would.left)}.")
    return "\n".join(lines)


def _listed(answer: dict[str, Any]) -> list[str]:
    lines = [
        f"{one['host']}:{one['pid']} {_group(one['group'])}{' draining' if one['draining'] else ''}:"
        f" {', '.join(f'{pool} {slots}' for pool, slots in sorted(one['slots'].items()))} slots,"
        f" {len(one['queues'])} queues: {_some(one['queues'])}"
        for one in answer["workers"]
    ] or ["No worker is alive."]
    lines += [
        f"{one['queue']}: {one['workers']} workers, {one['queued']} queued, {one['running']} running"
        for one in answer["queues"]
        if one["queued"] or one["running"]
    ]
    lines += [
        f"told {_group(one['group'])}{' on ' + one['host'] if one['host'] else ''}: {one['verb']} {one['queue']}"
        f" (by {one['by']}, {one['at']:%Y-%m-%d %H:%M:%S} UTC{', ' + one['reason'] if one['reason'] else ''})"
        for one in answer["told"]
    ]
    lines += [
        f"{count:,} tenants of {_group(group)} share queues though their plan gives them an own one: the first"
        f" {answer['own_queues']['max']:,} have it (OWN_QUEUES_MAX)"
        for group, count in sorted(answer["own_queues"]["beyond"].items())
    ]
    lines += [
        f"NOBODY LISTENS to {one['queue']}, and it is waited for: {_some(one['tenants'])}" for one in answer["unserved"]
    ]
    return lines


def _group(name: str) -> str:
    return f"group {name}" if name else "shared"


def _some(names: list[str]) -> str:
    rest = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")
