"""A receiver of webhooks, with nothing but Python's standard library.

    SHARDBEAT_WEBHOOK_SECRET=whsec_... python3 webhook_receiver.py 127.0.0.1:9000 events.db

It answers 204 when an event is stored, 400 when the signature does not fit, and handles each event once: its id is the
primary key of the table, so what is sent again (after a lost answer, or in a replay) changes nothing. While a secret is
being changed put both into the variable, with a blank between them.

    SHARDBEAT_KEY=sb_... python3 webhook_receiver.py --catch-up http://127.0.0.1:8000 events.db

reads what it has not read yet, for instance after a day without network.
"""

import base64
import hashlib
import hmac
import json
import os
import sqlite3
import sys
import time
import urllib.request
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlencode

TOLERANCE_S = 300  # an older message may be one that somebody has recorded and sends again
BODY_MAX_BYTES = 1_000_000


class NotGenuine(Exception):
    """The message was not signed with a secret of ours, or too long ago."""


def verify(body: bytes, headers: Mapping[str, str], secrets: Iterable[str], *, now_s: float) -> Any:
    """The event in a genuine message. The body must be the bytes as they came, before anything has parsed them."""
    try:
        message_id, sent_at = headers["webhook-id"], headers["webhook-timestamp"]
        signatures = headers["webhook-signature"].split()
        age_s = abs(now_s - int(sent_at))
    except (KeyError, ValueError) as error:
        raise NotGenuine(f"the headers are not complete: {error}") from None
    if age_s > TOLERANCE_S:
        raise NotGenuine("it was sent too long ago")
    signed = f"{message_id}.{sent_at}.".encode() + body
    for secret in secrets:
        key = base64.b64decode(secret.removeprefix("whsec_"))
        expected = "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
        for signature in signatures:
            if hmac.compare_digest(expected.encode(), signature.encode()):  # takes the same time wherever they differ
                return json.loads(body)
    raise NotGenuine("no signature fits")


def opened(path: str) -> sqlite3.Connection:
    """The database of events, with a place that says how far `catch_up` has read."""
    connection = sqlite3.connect(path, timeout=10)
    connection.execute("CREATE TABLE IF NOT EXISTS event (id TEXT PRIMARY KEY, type TEXT, data TEXT)")
    connection.execute("CREATE TABLE IF NOT EXISTS place (one INTEGER PRIMARY KEY CHECK (one = 1), event TEXT)")
    return connection


def store(connection: sqlite3.Connection, event: Mapping[str, Any]) -> bool:
    """Stores an event; False when it was there already. What you do with it belongs into the same transaction."""
    row = (event["id"], event["type"], json.dumps(event["data"]))
    return connection.execute("INSERT OR IGNORE INTO event VALUES (?, ?, ?)", row).rowcount == 1


def receive(address: str, path: str, secrets: list[str]) -> None:
    """Serves until it is ended."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(size) if size <= BODY_MAX_BYTES else b""
            try:
                headers = {name.lower(): value for name, value in self.headers.items()}
                event = verify(body, headers, secrets, now_s=time.time())
            except NotGenuine as error:
                print("refused:", error, flush=True)
                self.send_response(400)
                self.end_headers()
                return
            new = True
            if event["type"] != "webhook.test":
                with closing(opened(path)) as connection, connection:  # committed before the answer
                    new = store(connection, event)
            print(event["type"], event["id"], "new" if new else "seen before", flush=True)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    host, _, port = address.rpartition(":")
    with ThreadingHTTPServer((host, int(port)), Handler) as server:
        print("listening", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def catch_up(base: str, path: str, key: str) -> int:
    """Stores the events that came after the last one that was read here; how many were new.

    The place is the last event of a page, in the order of the API. The newest event that a webhook brought would not
    do: deliveries have no order, and one before it may still be on its way.
    """
    count = 0
    with closing(opened(path)) as connection:
        found = connection.execute("SELECT event FROM place").fetchone()
        parameters = {"page_size": "500", **({"after": found[0]} if found else {})}
        while True:
            request = urllib.request.Request(f"{base}/api/v1/events?{urlencode(parameters)}")
            request.add_header("Authorization", f"Bearer {key}")
            with urllib.request.urlopen(request, timeout=30) as answer:
                page = json.load(answer)
            if not page["items"]:
                return count
            with connection:
                new = [event for event in page["items"] if store(connection, event)]
                parameters["after"] = page["items"][-1]["id"]
                connection.execute("INSERT OR REPLACE INTO place VALUES (1, ?)", (parameters["after"],))
            count += len(new)
            for event in new:
                print(event["type"], event["id"], "caught up", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--catch-up":
        catch_up(sys.argv[2].rstrip("/"), sys.argv[3], os.environ["SHARDBEAT_KEY"])
    else:
        receive(sys.argv[1], sys.argv[2], os.environ["SHARDBEAT_WEBHOOK_SECRET"].split())
