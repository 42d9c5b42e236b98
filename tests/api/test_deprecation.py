"""Operations that will go say so: in the document, and with every answer (RFC 9745, RFC 8594)."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory

from apps.api.deprecation import Deprecated
from apps.api.endpoint import Endpoint
from apps.api.jobs import JobList
from apps.api.openapi import operation
from tests.fixtures_api import Api

GOING = Deprecated(since=date(2026, 12, 1), sunset=date(2027, 6, 1), link="https://example.com/docs/changes")


def test_the_dates_are_written_as_the_standards_want() -> None:
    assert GOING.headers() == {
        "Deprecation": "@1796083200",
        "Sunset": "Tue, 01 Jun 2027 00:00:00 GMT",
        "Link": '<https://example.com/docs/changes>; rel="deprecation"; type="text/html"',
    }
    assert Deprecated(since=date(2026, 12, 1)).headers() == {"Deprecation": "@1796083200"}


def test_nothing_goes_before_it_is_deprecated() -> None:
    with pytest.raises(ValueError, match="before it is deprecated"):
        Deprecated(since=date(2027, 1, 1), sunset=date(2026, 1, 1))


class Old(Endpoint):
    """Two methods; one will go."""

    authentication_classes = []
    permission_classes = []

    @operation("old_read", "Old", tag="old", deprecated=GOING)
    def get(self, request: Request) -> Response:
        return Response({})

    @operation("old_write", "Not old", tag="old")
    def post(self, request: Request) -> Response:
        return Response({})


def test_only_the_answers_of_what_will_go_say_so() -> None:
    make = APIRequestFactory()
    assert Old.as_view()(make.get("/"))["Deprecation"] == "@1796083200"
    assert "Deprecation" not in Old.as_view()(make.post("/"))


def test_refusals_say_so_too_and_the_document_knows(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from apps.api.deprecation import ATTRIBUTE

    monkeypatch.setattr(JobList.get, ATTRIBUTE, GOING, raising=False)
    for answer in (api.get("jobs"), api.get("jobs?no=1"), Api(None).get("jobs")):
        assert (answer.headers["Deprecation"], answer.headers["Sunset"]) == (
            "@1796083200", "Tue, 01 Jun 2027 00:00:00 GMT",
        )  # fmt: skip
    assert "Deprecation" not in api.post("jobs", {}).headers


def test_it_is_in_the_document() -> None:
    from apps.api.deprecation import describe_deprecation

    found: dict[str, Any] = {"paths": {"/old": {"get": {"deprecated": True, "responses": {"200": {}, "204": {}}}}}}
    describe_deprecation(found)
    for answer in found["paths"]["/old"]["get"]["responses"].values():
        assert {"Deprecation", "Sunset", "Link"} <= set(answer["headers"])
