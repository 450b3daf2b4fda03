"""By which names and addresses this control plane is called: those in the settings, and those of the machine."""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cp.model.hosts import ANY_HOST, is_ip
from cp.settings import Settings

_ANYWHERE: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104  # compared with, not bound to
_IPV6_ADDRESSES: Final = Path("/proc/net/if_inet6")
_LIST_IPV4_ADDRESSES: Final = 0x8912
"""SIOCGIFCONF of Linux: it fills a buffer with rows (netdevice(7))."""

_ROWS: Final = 64 * 1024
_ROW: Final = struct.Struct("@16s4x4s16x")
_LINK_LOCAL: Final = "fe80:"


def named_hosts(settings: Settings) -> frozenset[str]:
    """The names and addresses in the settings by which it may be called, and the machine's; `*` may be among them."""
    own = {settings.bind, settings.http_bind, settings.https_bind, socket.gethostname()}
    among_instances = urlsplit(settings.instance_address).hostname or ""
    for_proxies = (host for host, _ in settings.xds_hosts)
    of_api = settings.api_hosts.split(",")
    return frozenset(filter(None, map(str.strip, (*own, among_instances, *for_proxies, *of_api))))


def own_names(settings: Settings) -> frozenset[str]:
    """By which names and addresses clients may reach it: what its certificate has to be for."""
    names = named_hosts(settings) - _ANYWHERE - {ANY_HOST}
    addresses = {address for address in _addresses() if not address.startswith(_LINK_LOCAL)}
    return frozenset(map(normal_name, names | addresses | {"localhost", "127.0.0.1", "::1"}))


def normal_name(name: str) -> str:
    """A host name in lower case, or an address in the shortest of its forms."""
    return str(ip_address(name)) if is_ip(name) else name.lower()


def _addresses() -> Iterator[str]:
    """The addresses of this machine by which others may reach it, as far as it tells them."""
    with suppress(OSError):
        yield from (str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None))
    with suppress(OSError):
        yield from _ipv4_addresses()
    with suppress(OSError):
        rows = map(str.split, _IPV6_ADDRESSES.read_text().splitlines())
        yield from (str(IPv6Address(bytes.fromhex(row[0]))) for row in rows)


def _ipv4_addresses() -> Iterator[str]:
    buffer = array.array("B", bytes(_ROWS))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        filled = fcntl.ioctl(probe, _LIST_IPV4_ADDRESSES, struct.pack("iL", _ROWS, buffer.buffer_info()[0]))
    (size,) = struct.unpack_from("i", filled)
    yield from (socket.inet_ntoa(address) for _, address in _ROW.iter_unpack(buffer.tobytes()[:size]))
