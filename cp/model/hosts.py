"""How a host is written: as an IP address, or by a name."""

from __future__ import annotations

from ipaddress import ip_address


def is_ip(host: str) -> bool:
    """Whether a host is an IP address and not a name. An IPv6 address in brackets is none."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
