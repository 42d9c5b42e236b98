"""Which addresses a tenant's call may reach. Pure: the caller resolves names and passes addresses.

An address is public when it is unicast, routed in the open internet, and carries no second address inside itself.
`ipaddress.is_global` is not that question: it says yes to multicast, 6to4 and NAT64 forms. So the ranges are written
out here, from the IANA special-purpose registries.
"""

import socket
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

REFUSED_IPV4 = tuple(
    IPv4Network(cidr)
    for cidr in (
        "0.0.0.0/8",  # this network; Linux connects 0.0.0.0 to itself
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT, also one cloud's metadata service
        "127.0.0.0/8",
        "168.63.129.16/32",  # public by number, but the platform service of one cloud
        "169.254.0.0/16",  # link-local, metadata services
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved and broadcast
    )
)
# Everything outside of 2000::/3 is refused as a whole: loopback, ::, unique local, link-local, site-local, multicast,
# NAT64 (64:ff9b::/96, 64:ff9b:1::/48), IPv4-compatible, discard-only, segment routing.
PUBLIC_IPV6 = IPv6Network("2000::/3")
REFUSED_IPV6 = tuple(
    IPv6Network(cidr)
    for cidr in (
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarks
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, an IPv4 address inside
        "3fff::/20",  # documentation
    )
)


def is_public(address: Address) -> bool:
    """True for an address that any tenant may call. An IPv4-mapped address counts as the IPv4 address in it."""
    address = plain_address(address)
    if isinstance(address, IPv4Address):
        return not any(address in network for network in REFUSED_IPV4)
    if getattr(address, "scope_id", None):
        return False
    return address in PUBLIC_IPV6 and not any(address in network for network in REFUSED_IPV6)


def is_allowed(address: Address, network: Iterable[str]) -> bool:
    """True when `address` is public or inside one of the CIDRs in `network`, the allow-list of the tenant.

    Raises ValueError when an entry of `network` is not a CIDR.
    """
    if is_public(address):
        return True
    address = plain_address(address)
    return any(address.version == allowed.version and address in allowed for allowed in parse_networks(tuple(network)))


def plain_address(address: Address) -> Address:
    """The address that a socket really talks to: ::ffff:1.2.3.4 is 1.2.3.4."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def parse_host_address(host: str) -> Address | None:
    """The address that resolvers make of `host`, or None when it is a name.

    Takes the decimal, octal, hex and shortened forms of IPv4 that `getaddrinfo` takes: 2130706433, 0x7f.1, 127.1.
    Raises ValueError for what looks like a number and is no address, so that nobody further down reads it differently.
    """
    if ":" in host:
        return ip_address(host)
    if not _looks_like_number(host.rpartition(".")[2]):
        return None
    try:
        return IPv4Address(socket.inet_aton(host))
    except OSError:
        raise ValueError(f"{host!r} is not an IPv4 address") from None


@lru_cache(maxsize=1024)
def parse_networks(network: tuple[str, ...]) -> tuple[Network, ...]:
    """The CIDRs as objects. Host bits are cut off. Raises ValueError."""
    return tuple(ip_network(cidr, strict=False) for cidr in network)


def _looks_like_number(label: str) -> bool:
    return label.isdigit() or (label[:2].lower() == "0x" and all(c in "0123456789abcdefABCDEF" for c in label[2:]))
