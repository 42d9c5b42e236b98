"""How many statements a page takes: every one behind the login, the stores' own counted with the ORM's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.fixtures_flow import actor
from tests.portal.stock import stock
from tests.portal.test_people import made_key
from tests.portal.test_webhooks import made
from tests.workflows.rows import ASKS

if TYPE_CHECKING:
    from tenants.models import Tenant

MOST_STATEMENTS = 12
NO_QUERIES = ("SET ", "SAVEPOINT", "RELEASE SAVEPOINT", "BEGIN", "COMMIT")  # they read nothing
FILTERED = (
    "executions?state=dead&job={job_id}&trigger=api&window=all", "executions?schedule={schedule_id}&window=7d",
    "jobs?name=nightly&kind=http&status=active", "schedules?name=nightly&status=active&job={job_id}",
    "schedules?status=completed", "dead-letters?status=all&job={job_id}", "dead-letters?status=resolved",
    "usage?step=day", "webhooks/{webhook_id}?state=dead", "audit?action=job.create&allowed=true",
)  # fmt: skip


def test_no_page_takes_more_than_twelve(
    acme: Tenant, conn: Any, registry: Any, console_of: Any, statements: list[str]
) -> None:
    from apps.portal.urls_pages import urlpatterns

    kept, browser = stock(acme, conn, registry), console_of(acme)
    ids = _ids(kept, browser)
    paths = [str(pattern.pattern) for pattern in urlpatterns]
    for kind in ("uuid:", "slug:", "str:", ""):
        paths = [_filled(path, ids, kind) for path in paths]
    assert not [path for path in paths if "<" in path]
    taken = {}
    for path in [*paths, *(one.format(**ids) for one in FILTERED)]:
        statements.clear()
        status = browser.client.get(f"/console/{path}").status_code
        assert status in (200, 409), (path, status)  # 409: that verb has no sense in its state
        found = [one for one in statements if not one.startswith(NO_QUERIES)]
        if len(found) > MOST_STATEMENTS:
            taken[path] = found
    assert not taken, {path: (len(found), found) for path, found in taken.items()}


def _ids(kept: Any, browser: Any) -> dict[str, Any]:
    """One of each thing that a page is about."""
    from apps.operations.backfill.services import backfill_ask
    from apps.operations.models import Operation
    from tenants.models import Invitation
    from tenants.work import database_now

    backfill = backfill_ask(
        tenant=kept.tenant, actor=actor(kept.tenant), schedule_id=kept.schedule, now=database_now(),
        data={"from": "2026-03-01", "to": "2026-03-08"},
    )  # fmt: skip
    assert isinstance(backfill, Operation)
    hook = made(browser)
    browser.post(f"{hook}/test", {"revision": "1"})
    (delivery,) = browser.get(hook).context["listed"].rows
    browser.post("/console/members/invite", {"email": "new@example.com", "role": "viewer"}, status=200)
    return {
        "job_id": kept.job, "schedule_id": kept.schedule, "execution_id": kept.dead, "letter_id": kept.letter,
        "operation_id": kept.operation, "backfill_id": backfill.pk, "run_id": kept.run, "step": ASKS,
        "key_id": made_key(browser)[1].rpartition("/")[2], "member_id": browser.member.uid,
        "webhook_id": hook.rpartition("/")[2], "delivery_id": delivery["id"],
        "invitation_id": Invitation.objects.filter(tenant=kept.tenant).values_list("pk", flat=True)[0],
    }  # fmt: skip


def _filled(path: str, ids: dict[str, Any], kind: str) -> str:
    for name, one in ids.items():
        path = path.replace(f"<{kind}{name}>", str(one))
    return path
