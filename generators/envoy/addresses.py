"""Addresses as text."""

from __future__ import annotations

import ipaddress


def is_ip(text: str) -> bool:
    """Whether a text is an IP address, and no name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
