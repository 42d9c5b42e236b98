"""Verifying a chain: which rows were changed, removed, put in or moved since they were sealed.

Each statement is a transaction of its own and looks at a bounded number of rows, so that a long trail holds up nobody.
After a link that does not fit the next one is held against the stored link, so that every finding is about its own row.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg

from apps.audit.chain import DIGEST, FIRST, NO_TENANT, STATE_COLUMNS, Head, State, heads, link, state_of
from apps.audit.sealing import ALARM

Conn = psycopg.Connection[Any]
CHUNK = 5_000
FINDINGS_MOST = 1_000  # of one chain: who finds more needs a backup, not a list
ERASED = "person.erase"
DELETED = "tenant.deleted"
ALL = "*"

_LINKS = f"""
SELECT s.number, s.event_id, s.head, s.sealed_at, CASE WHEN e.id IS NOT NULL THEN {DIGEST} END
FROM public.audit_seal s LEFT JOIN public.audit_auditevent e ON e.id = s.event_id
WHERE s.tenant_id = %s AND s.number > %s ORDER BY s.number LIMIT %s
"""
_EVENTS = """
SELECT e.id, e.txid, s.event_id IS NOT NULL,
       CASE WHEN e.personal IS NOT NULL AND k.id IS NULL THEN e.subject END,
       CASE WHEN e.about_personal IS NOT NULL AND a.id IS NULL THEN e.about END
FROM public.audit_auditevent e LEFT JOIN public.audit_seal s ON s.event_id = e.id
LEFT JOIN public.audit_subjectkey k ON k.id = encode(substring(e.personal FROM 1 FOR 16), 'hex')::uuid
LEFT JOIN public.audit_subjectkey a ON a.id = encode(substring(e.about_personal FROM 1 FOR 16), 'hex')::uuid
WHERE e.tenant_id IS NOT DISTINCT FROM %s AND e.id > %s ORDER BY e.id LIMIT %s
"""
# The link before the newest ones, and the least row of those.
_START = """
SELECT b.number, b.head, (SELECT min(n.event_id) FROM public.audit_seal n WHERE n.tenant_id = b.tenant_id
                          AND n.number > b.number)
FROM public.audit_seal b WHERE b.tenant_id = %s AND b.number = (
    SELECT number FROM public.audit_seal WHERE tenant_id = %s ORDER BY number DESC OFFSET %s LIMIT 1) - 1
"""
_STATE = f"SELECT {STATE_COLUMNS}, pg_snapshot_xmax(pg_current_snapshot())::text::bigint FROM public.audit_sealstate"
_ALARMS = f"SELECT id, at, reason FROM public.audit_auditevent WHERE action = '{ALARM}' ORDER BY id"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. `number` is the link's, `event` the row's own number in the database."""

    kind: str
    detail: str
    number: int | None = None
    event: int | None = None


@dataclass(slots=True)
class Report:
    """One chain. `waiting` rows are not sealed yet; `erased` rows have lost their personal fields, as they should."""

    links: int = 0
    head: bytes = FIRST
    waiting: int = 0
    erased: int = 0
    findings: list[Finding] = field(default_factory=list)
    cut_short: bool = False

    def add(self, finding: Finding) -> None:
        if len(self.findings) < FINDINGS_MOST:
            self.findings.append(finding)
        else:
            self.cut_short = True


def verify(conn: Conn, tenant_id: int | None, *, key: bytes | None) -> Report:
    """One tenant's chain against its rows; None is the chain of rows without a tenant."""
    report = Report()
    if key is not None:
        _walk_links(conn, tenant_id, key, report)
    _walk_events(conn, tenant_id, report)
    return report


def verify_newest(conn: Conn, tenant_id: int | None, *, key: bytes, most: int) -> tuple[Report, int]:
    """The newest links of one chain, at most so many, and what was written since; also how many links these were.

    For whoever waits for the answer: what lies before is taken as it stands, and only `verify` looks at all of it.
    """
    scope = NO_TENANT if tenant_id is None else tenant_id
    report, after = Report(), -(2**63)
    row = conn.execute(_START, [scope, scope, most - 1]).fetchone()
    if row is not None:
        report.links, report.head, after = row[0], bytes(row[1]), row[2] - 1
    before = report.links
    _walk_links(conn, tenant_id, key, report)
    _walk_events(conn, tenant_id, report, after=after)
    return report, report.links - before


def verify_whole(conn: Conn, *, key: bytes | None) -> list[Finding]:
    """What no single chain shows: ends that were cut off, and what the sealer itself has found."""
    findings = [
        Finding("alarm", f"{reason} (found by the sealer at {at:%Y-%m-%dT%H:%M:%SZ})", event=event_id)
        for event_id, at, reason in conn.execute(_ALARMS)
    ]
    if key is None:
        if heads(conn):
            findings.append(Finding("key_gone", "There are seals, but the key of the chains is gone."))
        return findings
    with conn.transaction():  # state and ends as of one moment
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        row = conn.execute(_STATE).fetchone()
        sealed = sum(one.number for one in heads(conn).values())
    if row is None or state_of(row[:7]).signed(key) != state_of(row[:7]).mac:
        findings.append(Finding("state_changed", "The sealer's own row was changed."))
    elif state_of(row[:7]).total != sealed:
        told = state_of(row[:7]).total
        findings.append(Finding("cut_off", f"The chains have {sealed} links and should have {told}."))
    return findings


def compare(conn: Conn, tenant_id: int, expected: Head) -> Finding | None:
    """Whether a link that was noted down earlier is still there."""
    row = conn.execute(
        "SELECT head FROM public.audit_seal WHERE tenant_id = %s AND number = %s", [tenant_id, expected.number]
    ).fetchone()
    if row is None:
        return Finding("cut_off", "The chain had this link and does not have it any more.", number=expected.number)
    if bytes(row[0]) != expected.head:
        return Finding("rewritten", "This link is another one than was noted down.", number=expected.number)
    return None


def _walk_links(conn: Conn, tenant_id: int | None, key: bytes, report: Report) -> None:
    scope = NO_TENANT if tenant_id is None else tenant_id
    while rows := conn.execute(_LINKS, [scope, report.links, CHUNK]).fetchall():
        misfits: dict[int, tuple[Any, ...]] = {}
        for number, event_id, head, sealed_at, digest in rows:
            if number != report.links + 1:
                gap = f"Links {report.links + 1} to {number - 1} are gone."
                report.add(Finding("seal_removed", gap, number=report.links + 1))
            elif digest is None:
                report.add(Finding("removed", "The row of this link is gone.", number, event_id))
            elif bytes(head) != link(
                key, report.head, tenant_id=scope, number=number, sealed_at=sealed_at, digest=bytes(digest)
            ):
                misfits[number] = (event_id, bytes(head), sealed_at, bytes(digest), report.head)
            report.links, report.head = number, bytes(head)
        _explain(key, scope, misfits, report)


def _explain(key: bytes, scope: int, misfits: dict[int, tuple[Any, ...]], report: Report) -> None:
    """A link that fits the row of another one was moved; else the row, or the link itself, was changed."""
    digests = [one[3] for one in misfits.values()][:100]
    for number, (event_id, head, sealed_at, _, former) in misfits.items():
        moved = any(
            head == link(key, former, tenant_id=scope, number=number, sealed_at=sealed_at, digest=digest)
            for digest in digests
        )
        kind, detail = ("moved", "The row was exchanged with another.") if moved else (
            "changed", "The row, or its link, is not what was sealed.",
        )  # fmt: skip
        report.add(Finding(kind, detail, number, event_id))


def _walk_events(conn: Conn, tenant_id: int | None, report: Report, *, after: int = -(2**63)) -> None:
    row = conn.execute(_STATE).fetchone()
    state, end = (state_of(row[:7]), row[7]) if row else (State(0, 0, 0, (), None, 0), 0)
    gone = Counter[str]()
    while rows := conn.execute(_EVENTS, [tenant_id, after, CHUNK]).fetchall():
        for event_id, txid, has_seal, subject, about in rows:
            gone.update(one for one in (subject, about) if one is not None)
            if has_seal:
                continue
            if _should_be_sealed(state, event_id, txid):
                report.add(Finding("inserted", "The row was put in past the sealer.", event=event_id))
            elif txid > end and state.rescan_id is None and not _is_running(conn, txid):
                report.add(Finding("inserted", "The row names a transaction that there was not.", event=event_id))
            else:
                report.waiting += 1
        after = rows[-1][0]
    erased = set(_erased(conn, tenant_id))
    for subject, count in gone.items():
        if ALL in erased or subject in erased:
            report.erased += count
        else:
            report.add(
                Finding("key_gone", f"The key of {subject!r} is gone, and nobody has erased them: {count} rows.")
            )


def _should_be_sealed(state: State, event_id: int, txid: int) -> bool:
    if state.rescan_id is not None or txid in state.late:
        return False
    return (txid, event_id) <= (state.at_txid, state.at_id)


def _is_running(conn: Conn, txid: int) -> bool:
    """Whether the transaction may have begun since the walk did."""
    row = conn.execute("SELECT %s < pg_snapshot_xmax(pg_current_snapshot())::text::bigint", [txid]).fetchone()
    return bool(row and row[0])


def _erased(conn: Conn, tenant_id: int | None) -> Iterator[str]:
    """Subjects that were erased here; all of them when the tenant was deleted."""
    query = """SELECT DISTINCT action, object_id FROM public.audit_auditevent
               WHERE action IN (%s, %s) AND tenant_id IS NOT DISTINCT FROM %s"""
    for action, object_id in conn.execute(query, [ERASED, DELETED, tenant_id]):
        yield ALL if action == DELETED else object_id
