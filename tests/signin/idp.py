"""An identity provider on loopback HTTP, which can be made to do everything wrong."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

CLIENT, SECRET = "shardbeat", "s3cret:/?+ %"


@dataclass
class Idp:
    """What it says; tests change it. `claims` go into the next ID token over the right ones."""

    issuer: str
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "k1"}, private=True))
    algorithm: str = "RS256"
    about: dict[str, Any] = field(default_factory=dict)
    claims: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, Callable[[], tuple[int, bytes]]] = field(default_factory=dict)  # by path
    token: str | None = None  # instead of the right one
    seen: list[tuple[str, dict[str, str], dict[str, str]]] = field(default_factory=list)  # path, form, headers
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def authorize(self, location: str) -> dict[str, str]:
        """A person signs in there: the query that the browser brings back."""
        asked = dict(parse_qsl(urlsplit(location).query))
        assert asked["response_type"] == "code" and asked["code_challenge_method"] == "S256"
        code = f"code{len(self.codes)}"
        self.codes[code] = asked
        return {"code": code, "state": asked["state"]}

    def document(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            **self.about,
        }

    def keys(self) -> dict[str, Any]:
        return {"keys": [{**self.key.as_dict(private=False), "use": "sig"}]}

    def exchange(self, form: dict[str, str], headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """As RFC 6749 and 7636 say: the code once, by whoever asked for it."""
        asked = self.codes.pop(form.get("code", ""), None)
        user, _, word = (
            base64.b64decode(headers.get("Authorization", "").removeprefix("Basic ")).decode().partition(":")
        )
        proved = (unquote(user), unquote(word)) == (CLIENT, SECRET) or form.get("client_secret") == SECRET
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if asked is None or not proved or challenge != asked["code_challenge"]:
            return 400, {"error": "invalid_grant"}
        assert form["redirect_uri"] == asked["redirect_uri"]
        now = int(time.time())
        claims = {
            "iss": self.issuer, "aud": CLIENT, "sub": "s-1", "exp": now + 300, "iat": now, "nonce": asked["nonce"],
            "email": "ada@acme.test", "email_verified": True, "name": "Ada", **self.claims,
        }  # fmt: skip
        claims = {name: value for name, value in claims.items() if value is not None}
        return 200, {"access_token": "a", "token_type": "Bearer", "id_token": self.token or self.signed(claims)}

    def signed(self, claims: dict[str, Any]) -> str:
        return jwt.encode({"alg": self.algorithm, "kid": "k1"}, claims, self.key, algorithms=[self.algorithm])

    def forged(self, claims: dict[str, Any], *, algorithm: str, key: Any) -> str:
        return jwt.encode({"alg": algorithm, "kid": "k1"}, claims, key, algorithms=[algorithm])


@contextmanager
def running() -> Iterator[Idp]:
    """The provider, listening on a port of its own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    idp = Idp(issuer=f"http://127.0.0.1:{server.server_address[1]}")
    server.idp = idp  # type: ignore[attr-defined]  # for the handler
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield idp
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def secret_of(text: str) -> OctKey:
    return OctKey.import_key(text)


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self._answer({name: values[0] for name, values in parse_qs(raw, keep_blank_values=True).items()})

    def _answer(self, form: dict[str, str]) -> None:
        idp: Idp = self.server.idp  # type: ignore[attr-defined]  # `running` set it
        path, headers = urlsplit(self.path).path, dict(self.headers.items())
        idp.seen.append((path, form, headers))
        if path in idp.answers:
            status, body = idp.answers[path]()
        elif path == "/token":
            status, found = idp.exchange(form, headers)
            body = json.dumps(found).encode()
        else:
            known = {"/.well-known/openid-configuration": idp.document, "/keys": idp.keys}
            status, body = (200, json.dumps(known[path]()).encode()) if path in known else (404, b"{}")
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", body.decode())
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            return

    def log_message(self, format: str, *args: Any) -> None:
        return
