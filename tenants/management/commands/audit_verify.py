"""Holds the audit trail against its chains; prints their last links, and compares with those of an earlier time."""

from pathlib import Path
from typing import Any

import orjson
from django.core.management.base import CommandParser

from apps.audit.chain import Head, chain_key, heads
from apps.audit.verifying import Finding, Report, compare, verify, verify_whole
from kernel.errors import InvalidInput, NotFound
from kernel.sealing import Unreadable
from tenants import door
from tenants.commands import EXIT_FOUND
from tenants.commands import Command as Base
from tenants.models import Tenant

OPERATORS = "operators"  # the chain of rows without a tenant


class Command(Base):
    help = (
        "Find rows of the audit trail that were changed, removed, put in or moved. Exit 1 when there are any. Keep the "
        "answer of --format json outside, and give it to --expect later: then an end that was cut off is found, too."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", metavar="SLUG", help=f"Only this chain; '{OPERATORS}' is theirs.")
        parser.add_argument("--expect", metavar="FILE", type=Path, help="An earlier answer, in JSON.")
        parser.add_argument("--heads-only", action="store_true", help="Only print the last links; verify nothing.")

    def handle(self, *args: Any, **options: Any) -> None:
        expected = _read(options["expect"]) if options["expect"] else {}
        with door.connect("audit verify") as conn:
            try:
                key = chain_key(conn)
            except Unreadable:
                key = None
            last = heads(conn)
            chains = self._chains(options["tenant"], {*last, *_with_rows(conn)})
            answer: dict[str, Any] = {"chains": {}, "findings": []}
            for tenant_id, name in chains.items():
                if options["heads_only"]:
                    head = last.get(tenant_id)
                    report = Report(head.number, head.head) if head else Report()
                else:
                    report = verify(conn, tenant_id or None, key=key)
                if name in expected and (lost := compare(conn, tenant_id, expected[name])) is not None:
                    report.add(lost)
                answer["chains"][name] = _shown(report)
            if not options["tenant"] and not options["heads_only"]:
                answer["findings"] = [_finding(one) for one in verify_whole(conn, key=key)]
        unknown = set(expected) - set(answer["chains"]) if not options["tenant"] else set()
        answer["findings"] += [
            _finding(Finding("cut_off", f"There is no chain {name!r} any more.")) for name in sorted(unknown)
        ]
        self.show(answer, _text(answer), as_json=options["format"] == "json")
        if answer["findings"] or any(one["findings"] for one in answer["chains"].values()):
            raise SystemExit(EXIT_FOUND)

    def _chains(self, wanted: str | None, tenants: set[int]) -> dict[int, str]:
        if wanted:
            return {0: OPERATORS} if wanted == OPERATORS else {self.tenant(wanted).pk: wanted}
        slugs = dict(Tenant.objects.filter(pk__in=tenants).values_list("pk", "slug"))
        return {one: slugs.get(one, f"#{one}") if one else OPERATORS for one in sorted(tenants)}


def _with_rows(conn: Any) -> set[int]:
    """Tenants that have rows: a chain may have been removed as a whole."""
    query = """
    WITH RECURSIVE found AS (
        SELECT (SELECT min(tenant_id) FROM audit_auditevent) AS id
        UNION ALL
        SELECT (SELECT min(e.tenant_id) FROM audit_auditevent e WHERE e.tenant_id > f.id) FROM found f
        WHERE f.id IS NOT NULL)
    SELECT id FROM found WHERE id IS NOT NULL
    UNION ALL SELECT 0 WHERE EXISTS (SELECT 1 FROM audit_auditevent WHERE tenant_id IS NULL)
    """
    return {row[0] for row in conn.execute(query)}


def _read(path: Path) -> dict[str, Head]:
    """The last links of an earlier answer."""
    try:
        chains = orjson.loads(path.read_bytes())["chains"]
        links = {name: (int(one["links"]), bytes.fromhex(one["head"])) for name, one in chains.items()}
    except OSError as error:
        raise NotFound(f"{path} can't be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError):
        raise InvalidInput([], f"{path} is no answer of audit_verify --format json.") from None
    return {name: Head(number, head, None) for name, (number, head) in links.items() if number}


def _shown(report: Report) -> dict[str, Any]:
    return {
        "links": report.links, "head": report.head.hex(), "waiting": report.waiting, "erased": report.erased,
        "cut_short": report.cut_short, "findings": [_finding(one) for one in report.findings],
    }  # fmt: skip


def _finding(one: Finding) -> dict[str, Any]:
    return {"kind": one.kind, "detail": one.detail, "number": one.number, "event": one.event}


def _text(answer: dict[str, Any]) -> str:
    lines = []
    for name, chain in answer["chains"].items():
        lines.append(f"{name}: {chain['links']} links, {chain['waiting']} rows wait, head {chain['head']}")
        lines += [f"  {_line(one)}" for one in chain["findings"]]
        if chain["cut_short"]:
            lines.append("  and more")
    lines += [_line(one) for one in answer["findings"]]
    return "\n".join(lines) or "There is nothing in the trail."


def _line(one: dict[str, Any]) -> str:
    where = "".join(f" {name} {one[name]}" for name in ("number", "event") if one[name] is not None)
    return f"{one['kind']}{where}: {one['detail']}"
