"""Dead letters below /t/<slug>/: those that are ticked, and many of a cause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.console.conftest import tick
from tests.fixtures_flow import letters_of, make_job, ticket_of
from tests.operations.fixtures import work_off
from tests.operations.test_letters import deaths

if TYPE_CHECKING:
    from tenants.models import Tenant

LIST = "/t/acme/admin/deadletters/deadletter/"


def test_an_operator_replays_and_resolves(page: Any, acme: Tenant, conn: Any, registry: Any) -> None:
    first, second, *many = deaths(conn, registry, acme, make_job(acme), 5)
    letters = letters_of(conn, acme)

    def act(verb: str, *executions: Any) -> str:
        return str(tick(page, LIST, verb, [letters[one]["id"] for one in executions]).content.decode())

    told = act("deadletter.replay", first)
    assert "runs again." in told and "Cancel: 1 row" in told, "the way back"
    assert ticket_of(conn, first)["state"] == "ready"
    assert "Done to 1 of 1" in act("deadletter.resolve", first, second), "the first was left out when it was looked at"
    assert "Done to 1 of 1" in act("deadletter.reopen", second)
    assert "Done to 1 of 1" in act("deadletter.resolve", second)
    whole = {"action": "deadletter.resolve", "_selected_action": [letters[second]["id"]], "select_across": "1"}
    of_all = page.post(f"{LIST}?made=week&q={letters[first]['fingerprint']}", whole)
    assert "/replay/?" in of_all["Location"] and "created_after=" in of_all["Location"]
    form = page.get(of_all["Location"]).context["form"]
    shown = page.post(of_all["Location"], {**form.initial, "reason": "all of it"}).content.decode()
    assert "<strong>3 open dead letters</strong>" in shown
    assert page.post(f"{LIST}?resolution=replayed", whole)["Location"].endswith("?resolution=replayed")
    shown = page.get(f"{LIST}{letters[first]['id']}/change/").content.decode()
    cause = f"{LIST}replay/?fingerprint={letters[first]['fingerprint']}"
    assert cause in shown
    given = {**page.get(cause).context["form"].initial, "action": "replay", "canary": "2", "reason": "up again"}
    assert "canary" in page.post(cause, {**given, "canary": "0"}).context["form"].errors
    looked = page.post(cause, given)
    assert "<strong>3 open dead letters</strong>" in looked.content.decode()
    given["seen"] = looked.context["form"]["seen"].value()
    assert "Do it to 3" in page.post(cause, {**given, "canary": "1"}).content.decode(), "that was not looked at"
    done = page.post(cause, given)
    assert done.status_code == 302
    one = work_off(acme, done["Location"].rstrip("/").split("/")[-2], most=3)
    assert (one.running, one.canary, one.reason) == (2, 2, "up again")
    assert sum(ticket_of(conn, key) is not None for key in many) == 2
    assert page.get(LIST.replace("acme", "nobody") + "replay/").status_code == 404
