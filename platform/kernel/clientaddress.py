"""Whose request it is, by address: the one that our own proxy has seen, never one that the caller may choose.

Each proxy adds to the end of X-Forwarded-For the address that it was called from. Of that header only the last entries,
one for each proxy of ours, were written by somebody we trust; what stands before them is the caller's own text.
"""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

UNKNOWN = "unknown"
IPV6_PREFIX = 64  # whoever has one address has at least the whole network of this length


def client_address(*, remote: str, forwarded: str, proxies: int) -> str:
    """The caller's address: `remote` (of the connection) without proxies, else what the outermost of ours added.

    `forwarded` is the whole X-Forwarded-For, several headers joined with commas. With fewer entries than proxies the
    request came in behind the outer ones, and the first entry is what an inner one added. An entry that is no address
    is none that a proxy adds: then it is the connection's.
    """
    seen = _read(forwarded.rsplit(",", proxies)[-proxies:][0]) if proxies else None
    seen = seen or _read(remote)
    return str(seen) if seen else UNKNOWN


def counted_as(address: str) -> str:
    """What attempts of this address are counted under: an IPv4 address itself, an IPv6 one's network."""
    seen = _read(address)
    return str(IPv6Network((seen, IPV6_PREFIX), strict=False)) if isinstance(seen, IPv6Address) else address


def _read(text: str) -> IPv4Address | IPv6Address | None:
    """An address, also with a port or in brackets; None when it is none. IPv4 written as IPv6 is IPv4."""
    text = text.strip().strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found
