"""Operations below /t/<slug>/: how far they are, their items, and what an operator does to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.console.conftest import HOSTILE
from tests.fixtures_flow import make_job
from tests.operations.fixtures import ask, read, work_off

if TYPE_CHECKING:
    from tenants.models import Tenant


def test_an_operator_sees_pauses_and_undoes_an_operation(page: Any, acme: Tenant) -> None:
    jobs = [make_job(acme, name=f"import {n}") for n in range(2)]
    first = ask(acme, "pause", "jobs", {"name": "import"}, reason=HOSTILE)
    work_off(acme, first.pk)
    second = ask(acme, "pause", "jobs", {"name": "import"})
    path = "/t/acme/admin/operations/operation/"
    detail = page.get(f"{path}{first.pk}/change/").content.decode()
    assert str(jobs[0]) in detail and "succeeded" in detail and "<script>alert" not in detail

    def does(action: str, *operations: Any) -> str:
        sent = {"action": action, "_selected_action": [str(one.pk) for one in operations]}
        return str(page.post(path, sent, follow=True).content.decode())

    assert "1 paused." in does("pause", second)
    assert read(acme, second.pk).state == "paused"
    told = does("undo", first, second)
    assert "1 being undone." in told and "Nothing was done that could be taken back." in told
    assert work_off(acme, first.pk).undone == 2
    assert "1 cancelled." in does("cancel", second)
    assert "The operation is cancelled." in does("resume", second)
    assert page.get(f"/t/globex/admin/operations/operation/{first.pk}/change/").status_code == 302
