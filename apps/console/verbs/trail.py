"""What is done with the audit trail: its newest links are held against its rows."""

from __future__ import annotations

from apps.audit.chain import chain_key, head_of
from apps.audit.services import record
from apps.audit.verifying import verify_newest, verify_whole
from apps.console.roles import AUDIT
from apps.console.verbs.base import Ask, Line, Preview, Receipt, Verb, version_of
from apps.console.verbs.pausing import known_tenant, tenant_named
from apps.console.verbs.registry import register
from apps.presenting.shown import moment
from kernel.errors import Conflict
from kernel.sealing import Unreadable
from tenants import door
from tenants.models import Tenant

LINKS_MOST = 10_000
FINDINGS_SHOWN = 20
OPERATORS = "operators"
PAGE = "/admin/audit/"


@register
class VerifyChain(Verb):
    """Looks for rows that were changed, removed or put in. The target is a tenant's slug, or `operators`."""

    name, label, level, key = "audit.verify", "Check the chain", AUDIT, "v"

    def concerns(self, ask: Ask) -> Tenant | None:
        return known_tenant(ask.target)

    def look(self, ask: Ask) -> Preview:
        tenant_id = _tenant_id(ask)
        head = head_of(door.raw(), tenant_id or 0)
        lines = [
            Line("Chain", ask.target),
            Line("Links", f"{head.number:,}" if head else "none"),
            Line("Last link made", f"{moment(head.sealed_at)} UTC" if head and head.sealed_at else "-"),
        ]
        refused = "" if head else "Nothing of it has been sealed yet."
        return Preview(
            f"Check the audit chain of {ask.target}", lines, version_of(ask.target),
            [f"It looks at the newest {LINKS_MOST:,} links. manage.py audit_verify looks at all of them."], refused,
            PAGE,
        )  # fmt: skip

    def do(self, ask: Ask) -> Receipt:
        conn = door.raw()
        tenant_id = _tenant_id(ask)
        try:
            key = chain_key(conn)
        except Unreadable:
            key = None
        if key is None:
            raise Conflict("The key of the chains can't be read here: see SECRETS_KEYS.")
        report, checked = verify_newest(conn, tenant_id, key=key, most=LINKS_MOST)
        findings = [*report.findings, *verify_whole(conn, key=key)]
        record(
            actor=ask.actor, action="audit.verify", object_type="chain", object_id=ask.target, now=ask.now,
            tenant_id=tenant_id, after={"links": checked, "findings": len(findings)}, reason=ask.reason,
        )  # fmt: skip
        text = (
            f"{checked:,} links fit their rows; {report.waiting:,} rows wait to be sealed."
            if not findings
            else f"{len(findings):,} findings in {checked:,} links: somebody has changed the trail. Keep the database"
            " as it is, and see docs/audit.md."
        )
        lines = [
            Line(one.kind.replace("_", " "), f"{one.detail} Link {one.number or '-'}, row {one.event or '-'}.")
            for one in findings[:FINDINGS_SHOWN]
        ]
        return Receipt(text, PAGE, lines=lines, bad=bool(findings))


def _tenant_id(ask: Ask) -> int | None:
    return None if ask.target == OPERATORS else tenant_named(ask.target).pk
