"""How a host is written: as an IP address, by a name, or as a pattern of names (`*.example.com`, `*`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv6Address, ip_address
from typing import Final

LOOPBACK: Final = "127.0.0.1"

_WITH_PORT: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::([0-9]{1,5}))?")
_LARGEST_PORT: Final = 65535


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


def hosts_with_ports(text: str, port: int) -> tuple[tuple[str, int], ...]:
    """The hosts in a list with commas, each with its port or, if it has none, the usual one. Raises `ValueError`.

    An IPv6 address that has a port is in brackets: `koguma`, `koguma:5678`, `::1`, `[::1]:5678`.
    """
    parts = filter(None, map(str.strip, text.split(",")))
    return tuple(dict.fromkeys(_host_with_port(part, port) for part in parts))


def _host_with_port(text: str, port: int) -> tuple[str, int]:
    if is_ip(text):
        return text, port
    match = _WITH_PORT.fullmatch(text)
    if match is None or not _is_host(match[1], match[2]) or int(match[3] or 0) > _LARGEST_PORT:
        *user, host = text.rsplit("@", 1)  # where somebody took it for a URL there may be a password
        raise ValueError(f"`{'[redacted]@' if user else ''}{host}` is no host")
    return match[1] or match[2].lower(), int(match[3] or port)


def _is_host(address: str | None, name: str) -> bool:
    return is_ip(address) if address else "" not in name.removesuffix(".").split(".")


ANY_HOST: Final = "*"
"""The pattern that every host fits."""


def covers(wider: str, narrower: str) -> bool:
    """Whether each host that fits the one pattern fits the other too. A `*` stands for one or more parts of a name."""
    if ANY_HOST in {wider, narrower}:
        return wider == ANY_HOST
    return wider == narrower or (wider.startswith("*.") and narrower.removeprefix("*").endswith(wider[1:]))


def common(pattern: str, second: str) -> str | None:
    """The pattern of the hosts that fit both patterns; None if there is no such host."""
    if covers(pattern, second):
        return second
    return pattern if covers(second, pattern) else None


def covering(pattern: str) -> Iterator[str]:
    """Every pattern that covers a pattern, the narrowest first: itself, and those with a `*` in front."""
    yield pattern
    name = pattern.removeprefix("*.")
    parts = () if pattern == ANY_HOST else name.split(".")
    yield from (f"*.{'.'.join(parts[index:])}" for index in range(1, len(parts)))
    if pattern != ANY_HOST:
        yield ANY_HOST
