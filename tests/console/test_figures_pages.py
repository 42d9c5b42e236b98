"""Tenants beside each other, and dead letters by cause: over all tenants and in one."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.console.letters import bars
from apps.usage.figures import Cause
from tests.console.conftest import HOSTILE, Named, Strict
from tests.console.test_verbs import hidden, of_role, trail
from tests.fixtures_flow import make_job

Conn = psycopg.Connection[Any]
START = datetime(2027, 3, 1, tzinfo=UTC)


@given(st.lists(st.tuples(st.integers(0, 6_000), st.integers(0, 99), st.integers(0, 9))), st.integers(1, 40))
def test_the_bars_of_a_time_hold_all_that_happened_in_it(rows: list[tuple[int, int, int]], count: int) -> None:
    series = [(START + timedelta(minutes=minute), attempts, letters) for minute, attempts, letters in rows]
    found = bars(series, start=START, end=START + timedelta(minutes=6_000), count=count)
    assert len(found) == count
    assert sum(one[1] for one in found) == sum(row[1] for row in rows)
    assert sum(one[2] for one in found) == sum(row[2] for row in rows)


@pytest.fixture
def failing(conn: Conn, acme: Any, globex: Any) -> str:
    """Dead letters of one cause in acme, failures of it in both, another cause in globex. Returns its fingerprint."""
    from apps.deadletters.store import Letter, add
    from apps.usage import deltas
    from apps.usage.figures import Tally
    from apps.usage.rolling import roll_up
    from kernel.clock import utc_now
    from kernel.ids import uuid7

    now, fingerprint, job = utc_now(), "ab" * 32, make_job(acme)
    tally = Tally()
    cause = Cause(fingerprint, "HttpStatus", "503", "down.example", HOSTILE)
    executions = [uuid7() for _ in range(3)]
    tally.failed(acme.pk, cause, execution_id=executions[0], attempts=7, letters=3)
    tally.failed(globex.pk, cause, execution_id=uuid7(), attempts=2)
    tally.failed(globex.pk, Cause("cd" * 32, "Timeout"), execution_id=uuid7(), letters=1)
    deltas.add(conn, tally, now=now - timedelta(minutes=5))
    while roll_up(conn):
        pass
    error = '{"class": "HttpStatus", "status": 503, "message": "<script>alert(1)</script> down"}'
    letters = [Letter(uuid7(), one, job, None, fingerprint, error, 3, now) for one in executions]
    add(conn, acme.schema_name, letters)
    return fingerprint


def html_of(client: Any, path: str) -> str:
    found = client.get(path)
    html: str = found.content.decode()
    assert found.status_code == 200, f"{path} {found.status_code}"
    assert "<script>alert" not in html and "<img src=x" not in html
    for parser in (Strict(), Named()):
        parser.feed(html)
        assert not parser.found, f"{path} {parser.found}"
    return html


def test_what_fails_is_seen_by_cause_over_all_tenants_and_in_each(acme: Any, globex: Any, failing: str) -> None:
    viewer = of_role("viewer")
    listed = html_of(viewer, "/admin/dead-letters/")
    assert "4 dead letters and 10 failed attempts of 2 tenants" in listed
    assert f'href="/t/acme/admin/dead-letters/causes/{failing}/"' in listed and "down.example" in listed
    assert listed.index("HttpStatus") < listed.index("Timeout")
    everything = "/admin/dead-letters/?what=failures&window=1h"
    assert "and 9 failed attempts of 2 tenants" in html_of(viewer, f"{everything}&host=down.example&q=httpstatus")
    assert "Timeout" not in html_of(viewer, f"{everything}&host=down.example")
    assert "HttpStatus" not in html_of(viewer, f"{everything}&q=timeout")
    assert "No attempt failed in this time that fits" in html_of(viewer, f"{everything}&tenant=acme&q=timeout")
    assert "There is no such tenant" in html_of(viewer, f"{everything}&tenant=nobody%00")
    cause = html_of(viewer, f"/admin/dead-letters/{failing}/?window=7d")
    assert "3 dead letters and 9 failed attempts of 2 tenants" in cause and "Your role may not do this" in cause
    assert viewer.get(f"/admin/dead-letters/{'0' * 64}/").status_code == 404
    assert viewer.get("/admin/dead-letters/no'such/").status_code == 404

    groups = html_of(viewer, "/t/acme/admin/dead-letters/")
    assert "3 dead letters of 1 cause" in groups and "nobody" in groups
    assert "No dead letter is open" in html_of(viewer, "/t/globex/admin/dead-letters/")
    in_acme = html_of(viewer, f"/t/acme/admin/dead-letters/causes/{failing}/")
    assert "3 dead letters are open" in in_acme and "3 dead letters and 7 failed attempts" in in_acme
    in_globex = html_of(viewer, f"/t/globex/admin/dead-letters/causes/{failing}/")
    assert "None is open" in in_globex and "0 dead letters and 2 failed attempts" in in_globex
    assert viewer.get(f"/t/globex/admin/dead-letters/causes/{'0' * 64}/").status_code == 404
    one_by_one = "/t/acme/admin/dead-letters/list/"
    rows = viewer.get(one_by_one).context["listed"].rows
    assert len(rows) == 3 and html_of(viewer, f"{one_by_one}?status=all&window=7d&class=HttpStatus&cause={failing}")
    assert "No dead letter fits" in html_of(viewer, f"{one_by_one}?status=replayed")
    letter = html_of(viewer, f"/t/acme/admin/dead-letters/{rows[0].letter.pk}/")
    assert "Nothing yet." in letter
    assert viewer.get(f"/t/globex/admin/dead-letters/{rows[0].letter.pk}/").status_code == 404


def done(client: Any, url: str, **given: str) -> str:
    """Does a verb after a look; the receipt."""
    looked = client.post(url, {**hidden(client.get(url).content.decode()), **given, "look": "1", "reason": "why"})
    answer = client.post(url, {**hidden(looked.content.decode()), **given, "reason": "seen to"})
    assert answer.status_code == 303, answer.content.decode()
    html: str = client.get(answer["Location"]).content.decode()
    return html


def test_dead_letters_are_seen_to(conn: Conn, acme: Any, globex: Any, failing: str) -> None:
    from apps.operations.models import Operation
    from tenants.work import in_tenant

    responder, operator = of_role("responder"), of_role("operator")
    viewer, base = of_role("viewer"), "/t/acme/admin/do"
    assign = f"{base}/deadletters.assign/{failing}/"
    assert "responder sees to it" in done(responder, assign, operator="responder")
    assert responder.post(assign, {"operator": "viewer", "reason": "x"}).status_code == 200, "that one may not"
    assert "?operator=responder" in done(responder, assign, operator="operator"), "the way back is whose it was"
    done(responder, assign, operator="responder")
    assert "<bdi>responder</bdi> sees to it" in html_of(viewer, f"/t/acme/admin/dead-letters/causes/{failing}/")
    assert ">responder</bdi>" in html_of(viewer, "/admin/dead-letters/")
    assert "Nobody in particular" in done(responder, f"{base}/deadletters.unassign/{failing}/")
    assert [row[1] for row in trail(conn, "deadletters.assign")] == [True] * 3
    assert [row[1] for row in trail(conn, "deadletters.unassign")] == [True]
    assert responder.get(f"/t/globex/admin/do/deadletters.assign/{failing}/").status_code == 404

    rows = responder.get("/t/acme/admin/dead-letters/list/").context["listed"].rows
    url = f"{base}/deadletter.resolve/{rows[0].letter.pk}/"
    assert "resolved without a run" in done(responder, url)
    page = html_of(responder, f"/t/acme/admin/dead-letters/{rows[0].letter.pk}/")
    assert "seen to" in page and "It was resolved already." in page
    assert "It was resolved already." in responder.get(url).content.decode()
    replay = f"{base}/deadletters.replay/{failing}/"
    assert responder.post(replay, {"reason": "all"}).status_code == 403
    look = operator.get(replay).content.decode()
    assert "<bdi>2 dead letters</bdi>" in look
    assert "works them off" in done(operator, replay, rate_per_s="5", canary="1")
    assert "is at work on this cause already" in operator.get(replay).content.decode()
    (made,) = in_tenant(acme, lambda: list(Operation.objects.all()))
    assert (made.action, made.filter, made.rate_per_s, made.canary, made.reason) == (
        "replay", {"fingerprint": failing}, 5.0, 1, "seen to",
    )  # fmt: skip
    assert operator.get(f"{base}/deadletters.resolve/{uuid.uuid4().hex * 2}/").status_code == 404


def test_tenants_are_put_beside_each_other(conn: Conn, new_tenant: Any) -> None:
    from apps.usage import loads
    from apps.usage.loads import TenantLoad
    from tenants.models import Tenant

    viewer = of_role("viewer")
    assert "Nobody has measured the load yet" in html_of(viewer, "/admin/tenants/")
    near, late = new_tenant("near", max_runs_per_day=100, max_running=10), new_tenant("late")
    Tenant.objects.filter(pk=late.pk).update(name=HOSTILE, dispatch_paused=True)
    Tenant.objects.filter(pk=near.pk).update(schema_version="older")
    conn.execute("INSERT INTO usage_daycount VALUES (%s, (now() AT TIME ZONE 'UTC')::date, 85)", [near.pk])
    measured = {
        near.pk: TenantLoad(near.pk, ready=10, running=3, ended=9, attempts=9, released=9, dispatch_p99_s=0.5),
        late.pk: TenantLoad(late.pk, due=30, oldest_due_s=75, attempts=20, attempts_failed=10, released=1,
                              dispatch_p99_s=30.0),
        99: TenantLoad(99, ready=1),
    }  # fmt: skip
    loads.write(conn, measured, due_is_exact=True, every_s=2)

    def slugs(query: str = "") -> list[str]:
        html_of(viewer, f"/admin/tenants/{query}")
        found = [row.slug for row in viewer.get(f"/admin/tenants/{query}").context["rows"]]
        return [slug for slug in found if slug in ("near", "late")]

    assert slugs() == slugs("?sort=tenant") == ["late", "near"] and slugs("?sort=running") == ["near", "late"]
    assert slugs("?sort=lateness") == slugs("?sort=failing") == ["late", "near"] and slugs("?sort=quota")[0] == "near"
    assert [slugs(f"?show={one}") for one in ("late", "failing", "stopped")] == [["late"]] * 3
    assert slugs("?show=near") == slugs("?show=schema") == slugs("?q=NeAr") == ["near"]
    assert slugs("?show=x&sort=x&page=x") == slugs("?page=999") == ["late", "near"] and slugs("?q=zzz") == []
    html = html_of(viewer, "/admin/tenants/")
    assert "73 %" in html and "85 of 100 runs today" in html and "1 min 15 s old" in html
    conn.execute("UPDATE usage_load SET measured_at = now() - interval '1 h'")
    assert "no dispatcher measures it any more" in html_of(viewer, "/admin/tenants/")
