"""Operations below /t/<slug>/: how far they are, their items, and what an operator does to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.console.conftest import HOSTILE, do_many, hidden_of
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

    def looks(verb: str, *operations: Any) -> Any:
        return page.post(path, {"action": verb, "_selected_action": [str(one.pk) for one in operations]})

    def does(looked: Any) -> str:
        return str(page.post(do_many(looked), {**hidden_of(looked), "reason": "to see"}).content.decode())

    assert "It is paused: 0 are not begun." in does(looks("operation.pause", second))
    assert read(acme, second.pk).state == "paused"
    looked = looks("operation.undo", first, second)
    assert "Undo: 1 of 2" in looked.content.decode()
    assert "It has done nothing yet." in looked.content.decode()
    assert "It is being taken back, 2 items." in does(looked)
    assert work_off(acme, first.pk).undone == 2
    assert "It is cancelled" in does(looks("operation.cancel", second))
    assert "It is cancelled." in looks("operation.resume", second).content.decode()
    assert page.get(f"/t/globex/admin/operations/operation/{first.pk}/change/").status_code == 302
