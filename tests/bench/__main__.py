"""`make bench`: prints the figures of the budgets that this machine reaches."""

import argparse
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "platform")]

from tests.bench import stage  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--due", type=int, default=100_000)
    parser.add_argument("--index", type=int, default=1_000_000)
    parser.add_argument("--tenants", type=int, default=200)
    parser.add_argument("--own-queues", type=int, default=8)
    parser.add_argument("--noop", type=int, default=60_000)
    parser.add_argument("--celery", type=int, default=10_000)
    parser.add_argument("--audit", type=int, default=100_000, help="rows of the trail that wait to be sealed")
    parser.add_argument("--history", type=int, default=3_000_000, help="executions that lists and pages are read from")
    parser.add_argument(
        "--only",
        choices=[
            "fire",
            "noop",
            "celery",
            "lists",
            "console",
            "writes",
            "audit",
            "figures",
            "round",
            "flood",
            "edges",
            "schemas",
            "ageing",
            "forecast",
            "idle",
        ],
        default=None,
    )
    parser.add_argument(
        "--figures", metavar="FILE", help="write the figures of `manage.py simulate --plan` to this file"
    )
    args = parser.parse_args()
    folder = ROOT / "var" / (f"bench-{args.only}" if args.only in ("round", "schemas", "forecast") else "bench")
    if args.only == "idle":  # what it fills is used again
        folder = ROOT / "var" / f"bench-idle-{args.tenants}"
    if args.only == "schemas":  # which begins with no tenant, and leaves gigabytes
        shutil.rmtree(folder, ignore_errors=True)
    try:
        measure(args, folder)
    finally:
        if args.only == "schemas":
            shutil.rmtree(folder, ignore_errors=True)


def measure(args: argparse.Namespace, folder: Path) -> None:
    """Measures what was asked for, and prints it."""
    with stage.services(folder):
        import os

        os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
        import django

        django.setup()
        from django.conf import settings

        from tests.bench import (
            ageing,
            audit,
            console,
            edges,
            fire_release,
            flood,
            forecast,
            idle,
            lists,
            noop,
            release_round,
            schemas,
            writes,
        )

        if args.only == "round":
            stage.prepare(tenants=0, own_queues=0)
            print(
                f"a round of release for {release_round.TENANTS:,} tenants with {release_round.READY:,} ready (budget"
                f" {release_round.BUDGET_MS} ms of the database): {release_round.told(release_round.run())}"
            )
            for head in release_round.HEADS:
                found = release_round.run(rounds=release_round.HEAD_ROUNDS, head=head)
                print(f"as many more of one job in the way ({head}): {release_round.told(found)}")
            return
        if args.only == "forecast":
            forecast.run(count=args.index, say=lambda line: print(line, flush=True))
            return
        if args.only == "idle":
            made = stage.prepare(tenants=args.tenants, own_queues=0)
            idle.run(made, index=args.index if made else 0, say=lambda line: print(line, flush=True))
            return
        if args.only == "schemas":
            schemas.run(tenants=args.tenants, say=lambda line: print(line, flush=True))
            return
        if args.only == "flood":
            made = stage.prepare(tenants=flood.OTHERS + 1, own_queues=0)
            print(
                f"{flood.FLOOD:,} runs of one tenant at once, {flood.OTHERS} others with one a second: p99 of their"
                f" dispatch lateness as a multiple of that without the flood (budget {flood.BUDGET}):"
                f" {flood.told(flood.run(made))}"
            )
            return
        if args.only == "console":
            console.report(stage.prepare(tenants=args.tenants, own_queues=0), executions=args.history)
            return
        if args.only == "edges":
            made = stage.prepare(tenants=1, own_queues=1)
            print(f"from the end of a step to the start of the next: {edges.told(edges.latencies(made))}")
            for shape, size, settling in edges.costs(made):
                print(
                    f"settling a step of {size:5,d} ({shape}): {settling.statements:.0f} statements,"
                    f" {settling.database_ms:.2f} ms CPU of the database, {settling.python_ms:.2f} of the process"
                )
            return
        made = stage.prepare(
            tenants=1 if args.only in ("audit", "lists", "ageing") else args.tenants, own_queues=args.own_queues
        )
        own = min(args.own_queues, len(made))
        print(
            f"{len(made)} tenants: {own} with a queue of their own,"
            f" {len(made) - own} on {settings.SHARED_QUEUES} shared queues; every commit durable"
        )
        if args.only in (None, "fire"):
            got = fire_release.run(made, due=args.due, index=args.index, own_queues=args.own_queues)
            print(
                f"fire + release: {got['per_s']:,.0f}/s for {args.due:,} due at once with {args.index:,} in the index;"
                f" dispatch lateness p50 {got['p50_s']:.2f} s, p99 {got['p99_s']:.2f} s"
            )
        if args.only in (None, "audit"):
            cost = audit.run(backlog=args.audit, per_s=1_000, seconds=20)
            print(
                f"sealing the trail: {cost['drained_per_s']:,.0f}/s from a backlog; at {cost['written_per_s']:,.0f}"
                f" writes/s over {audit.TENANTS:,} tenants {100 * (cost['python'] + cost['database']):.1f} % of a core"
                f" ({100 * cost['database']:.1f} in the database), sealed after p99 {cost['p99_s']:.1f} s"
            )
        if args.only in (None, "writes"):
            for name, one in writes.run(made).items():
                print(
                    f"{name} over the API: {one.per_s:,.0f}/s from {writes.CLIENTS} clients to {writes.WEBS} web"
                    f" processes, a request {one.median_ms:,.0f} ms; {one.per_core:,.0f}/s a core ({one.web_ms:.2f} ms"
                    f" CPU of the web process and {one.database_ms:.2f} ms of the database for each)"
                )
        if args.only == "lists":  # not part of a plain run: the history takes minutes to make and 5 GB
            read = lists.run(slug=next(iter(made.values()))[0], executions=args.history)
            for path, p50_ms, p95_ms, cpu_ms, items in read:
                over = "  over budget" if p95_ms > lists.BUDGET_MS else ""
                print(f"{p50_ms:6.1f} ms p50 {p95_ms:6.1f} p95 {cpu_ms:6.1f} CPU {items:4d} items  {path}{over}")
            within = sum(one.p95_ms <= lists.BUDGET_MS for one in read)
            print(
                f"lists and pages at {args.history:,} executions: {within} of {len(read)} have a p95 of at most"
                f" {lists.BUDGET_MS} ms; the dearest takes {max(one.cpu_ms for one in read):.0f} ms CPU"
            )
        if args.only == "ageing":  # as long as lists, twice the room
            for way in ageing.run(slug=next(iter(made.values()))[0], executions=args.history):
                print(
                    f"{way.name}: {way.insert_per_s:,.0f} rows/s in; a day goes in {way.forget_s:,.2f} s, the longest"
                    f" transaction takes {way.longest_ms:,.0f} ms; {way.before_mb:,.0f} MB, after {ageing.DAYS} days"
                    f" {way.after_mb:,.0f}; lists p95 {way.p95_before_ms:.1f} ms, then {way.p95_after_ms:.1f};"
                    f" planning the newest {way.plan_ms:.2f} ms"
                )
        if args.only == "figures" or args.figures:
            from tests.bench import figures

            measured = figures.run(made, own_queues=args.own_queues)
            for name, figure in measured.items():
                print(f"{name} = {figure['value']:g}")
            if args.figures:
                figures.write(Path(args.figures), measured)
        ours = plain = None
        if args.only in (None, "noop"):
            ours = noop.shardbeat(made, count=args.noop, own_queues=args.own_queues, workers=2)
            print(f"no-op executions end to end: {ours:,.0f}/s (2 workers, 1 dispatcher, PREFETCH_FACTOR=4)")
        if args.only in (None, "celery", "noop"):
            plain = noop.celery(count=args.celery, workers=2)
            print(f"plain Celery, no-op tasks: {plain:,.0f}/s (2 workers, same broker)")
        if ours and plain:
            print(f"ratio: {ours / plain:.1f} times plain Celery")


if __name__ == "__main__":
    main()
