"""Which targets may be saved and called. Decisions only: no resolver, no network."""

from ipaddress import IPv6Address, ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.addressrules import USUAL, is_allowed, is_public, parse_host_address
from kernel.httprules import TargetRefused, check_url, parse_url, validate_target
from tests.executors.works import LOOPBACK, case

URL = "https://hooks.example.com/a"


@pytest.mark.parametrize("id_", ["E02", "E04", "E08"])
def test_urls_of_public_cases(id_: str) -> None:
    given_case = case("http", id_)
    allowed = [not validate_target({"url": url}) for url in given_case["urls"]]
    assert allowed == given_case["expected"]["allowed"]


def test_headers_of_public_case_e14() -> None:
    given_case = case("http", "E14")
    faults = [validate_target({"url": URL, "headers": dict([pair])}) for pair in given_case["pairs"]]
    # "café" is our choice where the case leaves one: accepted, and sent as UTF-8.
    expected = [valid is True or isinstance(valid, str) for valid in given_case["expected"]["valid"]]
    assert [not fault for fault in faults] == expected
    assert all(fault[0].pointer.startswith("/headers/") for fault in faults if fault)


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.255", "168.63.129.16"),
        *("169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.0.192", "192.0.2.1", "192.88.99.1"),
        *("192.168.0.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255"),
        *("240.0.0.1", "255.255.255.255", "::", "::1", "::7f00:1", "::ffff:10.0.0.1", "::ffff:127.0.0.1"),
        *("::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1", "100::1", "2001::1"),
        *("2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::", "2002:808:808::", "3fff::1"),
        *("5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "ff0e::1", "4000::1"),
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "172.32.0.1", "11.0.0.1", "100.128.0.1", "2606:4700::1", "::ffff:8.8.8.8"]
)
def test_addresses_that_are_public(address: str) -> None:
    assert is_public(ip_address(address))


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_judged_the_same_in_ipv6_clothes(address: Any) -> None:
    assert is_public(IPv6Address(f"::ffff:{address}")) == is_public(address)
    assert not is_public(IPv6Address(f"64:ff9b::{address}"))
    assert not is_public(IPv6Address((0x2002 << 112) | (int(address) << 80)))


@given(st.ip_addresses(v=4))
def test_every_notation_leads_to_the_same_address(address: Any) -> None:
    a, b, c, d = address.packed
    number = int(address)
    for text in (
        str(number),
        hex(number),
        f"0{a:o}.0{b:o}.0{c:o}.0{d:o}",
        f"{a}.{b}.{number & 0xFFFF}",
        f"{a:#x}.{b}.{c}.{d}",
    ):
        assert parse_host_address(text) == address
        assert parse_url(f"http://{text}/").host == str(address)


@given(st.text(max_size=60))
def test_reading_any_text_gives_a_url_or_a_refusal(text: str) -> None:
    for candidate in (text, f"http://{text}", f"http://{text}.example/{text}", f"http://h.example/{text}"):
        try:
            url = parse_url(candidate)
        except TargetRefused:
            continue
        assert str(url).isascii()
        assert parse_url(str(url)) == url


@pytest.mark.parametrize(
    ("url", "code"),
    [
        (None, "required"),
        ("", "required"),
        (7, "required"),
        ("https://" + "a" * 5_000, "too_long"),
        ("https://a.example/a b", "invalid"),
        (" https://a.example/", "invalid"),
        ("https://a.example/\n", "invalid"),
        ("https://a.example/\ud800", "invalid"),
        ("//a.example/", "scheme_not_allowed"),
        ("javascript:alert(1)", "scheme_not_allowed"),
        ("https://", "invalid_host"),
        ("https://a..example/", "invalid_host"),
        ("https://-a.example/", "invalid_host"),
        ("https://exa%6dple.com/", "invalid_host"),
        ("https://[fe80::1%25eth0]/", "invalid_host"),
        ("https://[::1/", "invalid"),
        ("https://1.2.3.4.5/", "invalid_host"),
        ("https://4294967296/", "invalid_host"),
        ("https://a.example:0/", "port_not_allowed"),
        ("https://a.example:65536/", "port_not_allowed"),
        ("https://a.example:25/", "port_not_allowed"),
        ("https://a.example:6379/", "port_not_allowed"),
        ("https://a.example:5432/", "port_not_allowed"),
        ("https://:secret@a.example/", "user_in_url"),
        ("https://localhost/", "address_not_public"),
        ("https://api.localhost./", "address_not_public"),
        ("https://LOCALHOST/", "address_not_public"),
        ("https://127。0。0。1/", "address_not_public"),
        ("https://[::ffff:169.254.169.254]/", "address_not_public"),
    ],
)
def test_refused_urls_say_why(url: Any, code: str) -> None:
    faults = validate_target({"url": url}, base="/target")
    assert [(fault.pointer, fault.code) for fault in faults] == [("/target/url", code)]
    assert faults[0].detail.endswith(".")


def test_an_allow_list_opens_what_it_names_and_no_more() -> None:
    for url in ("http://127.0.0.1:8000/", "http://127.1:8000/", "http://localhost:8000/", "http://[::1]:8000/"):
        assert not validate_target({"url": url}, LOOPBACK)
        assert validate_target({"url": url}, ("10.0.0.0/8",))
    assert validate_target({"url": "http://10.0.0.1/"}, LOOPBACK)
    assert is_allowed(ip_address("::ffff:127.0.0.1"), 8000, LOOPBACK)


def test_what_is_sent_is_what_was_written() -> None:
    url = check_url("HTTPS://Bücher.Example:8443/a%2Fb/~x/../ü?sig=%2B+%20&a[]=1#part", USUAL)
    assert str(url) == "https://xn--bcher-kva.example:8443/a%2Fb/~x/../%C3%BC?sig=%2B+%20&a[]=1"


@pytest.mark.parametrize(
    ("target", "pointer", "code"),
    [
        ("https://a.example/", "", "invalid"),
        ({"url": URL, "method": "TRACE"}, "/method", "invalid"),
        ({"url": URL, "method": 1}, "/method", "invalid"),
        ({"url": URL, "retries": 3}, "/retries", "unknown_field"),
        ({"url": URL, "a/b~": 3}, "/a~1b~0", "unknown_field"),
        ({"url": URL, "headers": ["X-A: 1"]}, "/headers", "invalid"),
        ({"url": URL, "headers": {"X-A": 1}}, "/headers/X-A", "invalid_value"),
        ({"url": URL, "headers": {"X-A": "1", "x-a": "2"}}, "/headers/x-a", "duplicate"),
        ({"url": URL, "headers": {"X-A": "a" * 10_000}}, "/headers/X-A", "too_long"),
        ({"url": URL, "headers": {f"X-{n}": "a" * 7_000 for n in range(5)}}, "/headers", "too_long"),
        ({"url": URL, "headers": {f"X-{n}": "" for n in range(51)}}, "/headers", "too_many"),
        ({"url": URL, "headers": {"Idempotency-Key": "mine"}}, "/headers/Idempotency-Key", "reserved"),
        ({"url": URL, "headers": {"webhook-id": "mine"}}, "/headers/webhook-id", "reserved"),
        ({"url": URL, "headers": {"Shardbeat-Attempt": "1"}}, "/headers/Shardbeat-Attempt", "reserved"),
        ({"url": URL, "headers": {"Proxy-Authorization": "x"}}, "/headers/Proxy-Authorization", "reserved"),
        ({"url": URL, "success_status": []}, "/success_status", "invalid"),
        ({"url": URL, "success_status": [200, 99]}, "/success_status", "invalid"),
        ({"url": URL, "success_status": [True]}, "/success_status", "invalid"),
        ({"url": URL, "success_status": "2xx"}, "/success_status", "invalid"),
    ],
)
def test_refused_targets_point_at_the_fault(target: Any, pointer: str, code: str) -> None:
    assert [(fault.pointer, fault.code) for fault in validate_target(target)] == [(pointer, code)]


def test_all_faults_are_told_at_once() -> None:
    faults = validate_target({"url": "ftp://x", "method": "BREW", "headers": {"Host": "x"}, "nope": 1})
    assert {fault.pointer for fault in faults} == {"/url", "/method", "/headers/Host", "/nope"}


def test_a_full_target_is_fine() -> None:
    target = {
        "url": URL,
        "method": "put",
        "headers": {"Authorization": "Bearer x", "Content-Type": "application/xml", "X-Name": "café"},
        "body": {"any": ["json", None]},
        "success_status": [200, 302, 404],
    }
    assert validate_target(target) == []
