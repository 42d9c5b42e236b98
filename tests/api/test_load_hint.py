"""What an answer says of the minutes in which a schedule runs, when a forecast is there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg

from kernel.clock import utc_now
from tests.api.makers import Makers
from tests.fixtures_api import Api

Conn = psycopg.Connection[Any]


def test_creating_and_changing_say_what_the_runs_meet(api: Api, make: Makers, conn: Conn) -> None:
    from apps.due import forecast
    from apps.schedules.loads import glance

    now = utc_now()
    hour = now.replace(minute=0, second=0, microsecond=0)
    full = hour + timedelta(hours=3)
    minutes = [500 if number == 180 else 10 for number in range(1_500)]
    forecast.write(conn, forecast.Total(hour, now, now, 64, 1, minutes, [600] * 171, [], []))
    glance.forget()
    body = {"name": "full", "job": make.job()["id"], "trigger": {"cron": f"0 {full.hour} * * *"}}
    made = api.post("schedules", body)
    told = made.body["load_hint"]
    assert (told["level"], told["minute"]) == ("crowded", f"{full:%Y-%m-%dT%H:%M:%SZ}")
    moved = told["quieter"]["change"]
    changed = api.patch(f"schedules/{made.body['id']}", moved, **{"If-Match": "*"})
    assert changed.body["load_hint"]["level"] == "calm" and changed.body["load_hint"]["quieter"] is None
    back = api.put(f"schedules/{made.body['id']}", {**made.body, "name": "sent back"}, **{"If-Match": "*"})
    assert (back.status, back.body["load_hint"]["level"]) == (200, "crowded")
    conn.execute("DELETE FROM due_forecast")
    glance.forget()
    assert "load_hint" not in api.post("schedules", {**body, "name": "nothing is known"}).body
