"""Loopback addresses of one test process's own, so that tests side by side never meet on a port."""

import itertools
import os
import socket
from functools import cache
from typing import Final, NamedTuple

LOCK_PORT: Final = 20999
SAME_PORT: Final = 20998
"""Given away to nobody: for what has one port on several hosts."""

FIRST_PORT: Final = 21000
LAST_PORT: Final = 32000
"""Below the ports that the kernel gives to outgoing connections."""


class Address(NamedTuple):
    """Where something listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self}"


@cache
def _block() -> tuple[str, socket.socket]:
    """The first three numbers of 250 addresses of this process alone, and the socket that reserves them."""
    for attempt in range(1000):
        second, third = divmod((os.getpid() + attempt * 251) % (128 * 256), 256)
        prefix = f"127.{second + 64}.{third}"
        lock = socket.socket()
        try:
            lock.bind((f"{prefix}.254", LOCK_PORT))
        except OSError:
            lock.close()
        else:
            return prefix, lock
    raise RuntimeError("no block of loopback addresses is free")


def own_network() -> str:
    """The first three numbers of all addresses that this process uses."""
    return _block()[0]


_hosts = itertools.cycle(range(1, 251))
_ports = itertools.cycle(range(FIRST_PORT, LAST_PORT))


def new_host() -> str:
    """A loopback address that nobody else in this test run uses."""
    return f"{own_network()}.{next(_hosts)}"


def free_port(host: str, kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    for port in itertools.islice(_ports, LAST_PORT - FIRST_PORT):
        with socket.socket(type=kind) as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no port is free on {host}")


def new_address(host: str | None = None) -> Address:
    host = host or new_host()
    return Address(host, free_port(host))
