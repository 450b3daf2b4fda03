"""How a host is written: as an IP address, or by a name."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Final

LOOPBACK: Final = "127.0.0.1"


def is_ip(host: str) -> bool:
    """Whether a host is an IP address and not a name. An IPv6 address in brackets is none."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host: 127.0.0.0/8, ::1 or `localhost`."""
    if not is_ip(host):
        return host.lower() == "localhost"
    address = ip_address(host)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
