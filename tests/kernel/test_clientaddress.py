"""Which address a request is said to come from."""

from __future__ import annotations

import pytest

from kernel.clientaddress import UNKNOWN, client_address, counted_as

REMOTE = "192.0.2.9"


@pytest.mark.parametrize(
    ("proxies", "forwarded", "address"),
    [
        (0, "", REMOTE),
        (0, "203.0.113.1", REMOTE),
        (1, "203.0.113.1", "203.0.113.1"),
        (1, "10.1.1.1, 203.0.113.1", "203.0.113.1"),
        (1, "10.1.1.1,,, ,203.0.113.1 ", "203.0.113.1"),
        (2, "10.1.1.1, 203.0.113.1, 192.0.2.1", "203.0.113.1"),
        (2, "203.0.113.1", "203.0.113.1"),  # came in behind the outer proxy
        (1, "", REMOTE),
        (2, " ", REMOTE),
        (1, "10.1.1.1, unknown", REMOTE),
        (1, "10.1.1.1,", REMOTE),
        (1, "\x00, \x7f'; DROP TABLE x", REMOTE),
        (1, "1.2.3", REMOTE),
        (1, "203.0.113.1:4711", "203.0.113.1"),
        (1, '"[2001:db8::1]:4711"', "2001:db8::1"),
        (1, "2001:DB8:0::1", "2001:db8::1"),
        (1, "fe80::1%eth0", "fe80::1"),
        (1, "::ffff:203.0.113.1", "203.0.113.1"),
        (1, ", ".join(["10.0.0.1"] * 10_000), "10.0.0.1"),
    ],
)
def test_only_what_our_own_proxies_added_counts(proxies: int, forwarded: str, address: str) -> None:
    assert client_address(remote=REMOTE, forwarded=forwarded, proxies=proxies) == address


@pytest.mark.parametrize("remote", ["", "unix:", "nonsense"])
def test_a_connection_without_an_address_is_one_caller(remote: str) -> None:
    assert client_address(remote=remote, forwarded="", proxies=0) == UNKNOWN


def test_an_ipv6_network_is_one_caller() -> None:
    assert counted_as("2001:db8::1") == counted_as("2001:db8:0:0:ffff::2") == "2001:db8::/64"
    assert counted_as("2001:db8:0:1::1") != counted_as("2001:db8::1")
    assert (counted_as("203.0.113.1"), counted_as(UNKNOWN)) == ("203.0.113.1", UNKNOWN)
