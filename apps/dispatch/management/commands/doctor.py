"""Looks whether the parts of an installation are there and fit each other."""

from typing import Any

import psycopg
from django.conf import settings

from apps.dispatch.examining import examine, without_database
from tenants import door
from tenants.commands import EXIT_FOUND, no_answer
from tenants.commands import Command as Base


class Command(Base):
    help = "Look at the database, its schemas, the clock, the broker, dispatchers and workers. Exit 1 when one is bad."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            with door.connect("doctor", guarded=False) as conn:
                findings = list(examine(conn, settings.BROKER_URL))
        except psycopg.OperationalError as error:
            if not door.is_away(error):
                raise
            findings = list(without_database(no_answer(error), settings.BROKER_URL))
        width = max(len(one.name) for one in findings)
        text = "\n".join(f"{'ok ' if one.ok else 'BAD'}  {one.name:{width}}  {one.detail}" for one in findings)
        answer = [{"name": one.name, "ok": one.ok, "detail": one.detail} for one in findings]
        self.show(answer, text, as_json=options["format"] == "json")
        if not all(one.ok for one in findings):
            raise SystemExit(EXIT_FOUND)
