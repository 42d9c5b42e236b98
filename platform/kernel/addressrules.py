"""Which addresses and ports a tenant's call may reach. Pure: the caller resolves names and passes addresses.

An address is public when it is unicast, routed in the open internet, and carries no second address inside itself.
`ipaddress.is_global` is not that question: it says yes to multicast, 6to4 and NAT64 forms. So the ranges are written
out here, from the IANA special-purpose registries.

Ports 80 and 443 of public addresses are open. Everything else is said by rules, the operator's and the tenant's:

    "10.1.0.0/16"               these addresses too, at the usual ports
    "10.1.0.7/32 25"            this address at port 25
    "10.1.0.0/16 5000-5010"     the usual ones of these ports
    "* 8443", "* 1024-65535"    public addresses at these ports
    "!203.0.113.0/24"           never these addresses, whatever other rules say
    "!* 8443", "!*"             no public address at that port; no public address that no rule names

The usual ports are 80, 443 and all from 1024 on, without those whose servers speak something else and act on what they
are sent. A port outside of them has to be named by itself.
"""

import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
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
OPEN_PORTS = frozenset({80, 443})
MIN_FREE_PORT, MAX_PORT = 1_024, 65_535
# Ports above 1023 whose servers speak something else and act on what they are sent, or steer machines.
DENIED_PORTS = frozenset(
    {1433, 1521, 1719, 1720, 1723, 2049, 2375, 2376, 2379, 2380, 2525, 3306, 3389, 3659, 4045, 4190, 5060, 5061, 5432}
    | {5672, 5900, 6000, 6379, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 9042, 9092, 10080, 10250, 10255, 11211}
    | {27017}
)
USUAL = ("* 1024-65535",)  # what an operator allows who says nothing
_RULE = re.compile(
    r"\s*(?P<never>!)?\s*(?P<where>\*|[0-9A-Fa-f:.]+(?:/[0-9]{1,3})?)"
    r"(?:\s+(?P<first>[0-9]{1,5})(?:-(?P<last>[0-9]{1,5}))?)?\s*",
    re.ASCII,
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


def is_allowed(address: Address, port: int, network: Iterable[str]) -> bool:
    """True when this address may be called at this port under the rules of `network` (see above).

    Rules that name addresses go before those for all public ones; where several match, a forbidding one wins.
    Raises ValueError when an entry of `network` is no rule.
    """
    rules = read_rules(tuple(network))
    address = plain_address(address)
    named = [rule for rule in rules if rule.names(address) and rule.has_port(port)]
    if named:
        return all(rule.allows for rule in named)
    if not is_public(address):
        return False
    of_all = [rule for rule in rules if rule.network is None and rule.has_port(port)]
    return all(rule.allows for rule in of_all) if of_all else port in OPEN_PORTS


def is_port_possible(port: int, network: Iterable[str]) -> bool:
    """True when there may be an address that can be called at this port: what can be said before a name is resolved."""
    rules = read_rules(tuple(network))
    return port in OPEN_PORTS or any(rule.allows and rule.has_port(port) for rule in rules)


def is_usual_port(port: int) -> bool:
    """80, 443 and the ports from 1024 on, without those that do harm."""
    return port in OPEN_PORTS or (MIN_FREE_PORT <= port <= MAX_PORT and port not in DENIED_PORTS)


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


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; without a network it is for all public addresses, without ports for the usual ones or for all."""

    allows: bool
    network: Network | None
    ports: range | None

    def names(self, address: Address) -> bool:
        network = self.network
        return network is not None and address.version == network.version and address in network

    def has_port(self, port: int) -> bool:
        if self.ports is None:
            return is_usual_port(port) or not self.allows
        return port in self.ports and (len(self.ports) == 1 or is_usual_port(port) or not self.allows)


@lru_cache(maxsize=1024)
def read_rules(network: tuple[str, ...]) -> tuple[Rule, ...]:
    """The rules as objects. Host bits of networks are cut off. Raises ValueError."""
    return tuple(map(_read_rule, network))


def plain_rule(text: str) -> str:
    """A rule as it is kept: without host bits and needless blanks. Raises ValueError."""
    rule = _read_rule(text)
    where = "*" if rule.network is None else str(rule.network)
    ports = "" if rule.ports is None else f" {rule.ports[0]}" + (f"-{rule.ports[-1]}" if len(rule.ports) > 1 else "")
    return ("" if rule.allows else "!") + where + ports


def _read_rule(text: str) -> Rule:
    matched = _RULE.fullmatch(text) if isinstance(text, str) else None
    if matched is None:
        raise ValueError(f"{text!r} is no rule such as 10.0.0.0/8 or * 8443")
    allows, where = not matched["never"], matched["where"]
    ports = None
    if matched["first"]:
        first, last = int(matched["first"]), int(matched["last"] or matched["first"])
        if not 1 <= first <= last <= MAX_PORT:
            raise ValueError(f"{text!r} has no ports from 1 to {MAX_PORT}")
        ports = range(first, last + 1)
    if where == "*" and allows and ports is None:
        raise ValueError("a rule for all public addresses names a port")
    return Rule(allows, None if where == "*" else ip_network(where, strict=False), ports)


def _looks_like_number(label: str) -> bool:
    return label.isdigit() or (label[:2].lower() == "0x" and all(c in "0123456789abcdefABCDEF" for c in label[2:]))
