"""What if: replays history, coming schedules or a synthetic load under other settings; or plans for sizes."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from apps.dispatch.simulation.asking import Question, answer_of, gather, synthetic_document
from apps.dispatch.simulation.changes import KNOWN, flat, read_sets
from apps.dispatch.simulation.scenarios import SCENARIOS
from apps.dispatch.simulation.sizing import is_enough, plan, read_demand, read_figures
from apps.dispatch.simulation.sizing_figures import FIGURES
from apps.dispatch.simulation.sizing_text import plan_text
from apps.dispatch.simulation.text import text_of
from apps.schedules.timing_trigger import read_instant
from kernel.clock import utc_now
from kernel.errors import Faults, FieldError, InvalidInput
from tenants import door
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base
from tenants.registry import Registry


class Command(Base):
    help = (
        "Simulate the release of runs under the present settings and under changed ones, and compare; or plan how many"
        " dispatchers, workers and database cores a size needs. Reads only. Exit 1 when a plan is not enough for the"
        " peak or for a burst. See docs/simulate.md."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        source = parser.add_mutually_exclusive_group()
        source.add_argument("--last", metavar="MINUTES", type=int, help="History: the last so many minutes.")
        source.add_argument("--next", metavar="MINUTES", type=int, help="Schedules: the coming so many minutes.")
        source.add_argument("--synthetic", metavar="FILE", help=f"A JSON file, or one of {', '.join(SCENARIOS)}.")
        source.add_argument("--plan", action="store_true", help="Capacity planning instead of a simulation.")
        parser.add_argument(
            "--from", dest="since", metavar="TIME", help="A window of history, or of schedules to come."
        )
        parser.add_argument("--to", dest="until", metavar="TIME")
        parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help=f"A change: {KNOWN}.")
        parser.add_argument("--changes", metavar="FILE", help='The same as JSON: {"tenant": {"acme": {"weight": 3}}}.')
        parser.add_argument("--seed", type=int, default=0, help="The same seed gives the same answer.")
        parser.add_argument("--limit", type=float, metavar="SECONDS", help="Time that each simulation may take.")
        parser.add_argument("--demand", metavar="FILE", help="With --plan: a JSON file of what is asked for.")
        parser.add_argument(
            "--figures", metavar="FILE", help="With --plan: figures of `make bench ARGS='--figures FILE'`."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        as_json = options["format"] == "json"
        changes = {**(flat(_read(options["changes"])) if options["changes"] else {}), **read_sets(options["set"])}
        if options["plan"]:
            demand = {**(_read(options["demand"]) if options["demand"] else {}), **_plain(changes)}
            figures = read_figures(_read(options["figures"]), FIGURES) if options["figures"] else FIGURES
            planned = plan(read_demand(demand), figures)
            self.show(planned, plan_text(planned), as_json=as_json)
            if not is_enough(planned):
                raise SystemExit(EXIT_FOUND)
            return
        synthetic = synthetic_document(options["synthetic"], files=True) if options["synthetic"] else None
        now = utc_now()
        since, until = (None, None) if synthetic is not None else _window(options, now)
        question = Question(changes, options["seed"], synthetic, since, until, limit_s=options["limit"])
        if synthetic is not None:
            material = gather(question, now=now, conn=None, tenancies={})
        else:
            line = door.Line("simulate")
            try:
                registry = Registry(line)
                registry.refresh(force=True)
                material = gather(question, now=now, conn=line.get(), tenancies=registry.by_id)
            finally:
                line.close()
        answer = answer_of(question, material)
        self.show(answer, text_of(answer), as_json=as_json)


def _window(options: dict[str, Any], now: datetime) -> tuple[datetime, datetime]:
    if options["last"] is not None:
        return now - timedelta(minutes=options["last"]), now
    if options["next"] is not None:
        return now, now + timedelta(minutes=options["next"])
    faults = Faults()
    if not options["since"] or not options["until"]:
        faults.add("--from", "missing", "Give --from and --to, --last, --next, --synthetic or --plan.")
    faults.raise_if_any()
    since, until = (
        read_instant(options[name], f"--{flag}", "UTC", faults) for name, flag in (("since", "from"), ("until", "to"))
    )
    faults.raise_if_any()
    assert since is not None and until is not None
    return since, until


def _plain(changes: dict[tuple[str, ...], Any]) -> dict[str, Any]:
    """Changes of a plan: `demand` members by their names, pools.NAME.share and worker_processes.NAME nested."""
    found: dict[str, Any] = {}
    for path, value in changes.items():
        at = found
        for name in path[:-1]:
            at = at.setdefault(name, {})
        at[path[-1]] = value
    return found


def _read(path: str) -> dict[str, Any]:
    try:
        found = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise InvalidInput([FieldError(path, "unreadable", str(error))]) from error
    if not isinstance(found, dict):
        raise InvalidInput([FieldError(path, "not_an_object", "Give a JSON object.")])
    return found
