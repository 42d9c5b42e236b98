"""Masks in an operator's form of a schedule."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from apps.console.schedules.payload import unmasked
from apps.console.shown import masked

NAMES = st.sampled_from(["token", "Authorization", "n", "api_key", "plain"])
PAYLOADS = st.recursive(
    st.none() | st.integers() | st.text(max_size=8) | st.just("https://me:hush@x/?token=hush"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=12,
)  # fmt: skip


@given(PAYLOADS)
def test_what_is_sent_back_as_it_was_shown_stays(payload: Any) -> None:
    assert unmasked(masked(payload), payload) == payload


def test_what_is_changed_beside_a_mask_is_taken() -> None:
    stored = {"token": "hush", "n": 1, "of": [{"secret": "a", "k": 1}, {"k": 2}]}
    sent = {"token": "***", "n": 2, "of": [{"secret": "***", "k": 3}], "new": "***"}
    assert unmasked(sent, stored) == {"token": "hush", "n": 2, "of": [{"secret": "a", "k": 3}], "new": "***"}
    assert unmasked({"token": "other"}, stored) == {"token": "other"}
    assert unmasked("***", {"a": 1}) == "***"


def test_names_of_secrets_and_ordinary_words() -> None:
    secret = {
        "private_key": "a", "accessKey": "b", "pwd": "c", "jwt": "d", "session_id": "e", "X-Auth": "f", "apiKey": "g",
        "SSH_PASSPHRASE": "h", "author_token": "i", "Authorization": "j", "sig": "k", "client-key": ["l"],
    }  # fmt: skip
    assert set(masked(secret).values()) == {"***"}
    plain = {"author": "Ada", "authors": ["Ada"], "key": "order", "code": "http_status", "keyboard": 1, "token": ""}
    assert masked(plain) == plain
    for text, shown in (
        ('{"access_token": "a\\"b", "n": 1}', '{"access_token": "***", "n": 1}'), ('{"pwd":77}', '{"pwd":"***"}'),
        ('{"n": [1], "token": {"a": "b"}, "key": "k"}',) * 2, ("a=1&password=x%20y", "a=1&password=***"),
        ('cut {"refresh_token": "ab', 'cut {"refresh_token": "***"'), ("see https://x/?token=a", "see https://x/?token=***"),
        ("Set-Cookie: none, a == b", "Set-Cookie: none, a == b"),
    ):  # fmt: skip
        assert masked(text) == shown
    auth = {"auth": {"type": "bearer", "token": {"secret": "NAME"}}}
    assert masked(auth) == auth, "how it proves who it is may be seen"
