"""Checks that no other Envoy listens on a proxy's ports: Envoys share a port without any warning."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cp.client.problem import Problem

_LOOPBACK: Final = "127.0.0.1"


def must_not_be_shared(dataplane: Mapping[str, Any]) -> None:
    """Raise `Problem` if another Envoy already listens on an address of a Dataplane."""
    taken = [_shown(host, port) for host, port in _addresses(dataplane) if _would_be_shared(host, port)]
    if taken:
        hint = "Is it the Envoy of another koguma dp run? `ss -ltnp` shows which process it is; end it first."
        raise Problem(f"another proxy listens on {', '.join(taken)}, and would keep taking connections there", hint)


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _addresses(dataplane: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    networking = dataplane.get("networking") or {}
    for kind, usual in (("inbound", networking.get("address")), ("outbound", _LOOPBACK)):
        for entry in networking.get(kind) or ():
            host, port = entry.get("address") or usual, entry.get("port")
            if isinstance(host, str) and isinstance(port, int):
                yield host, port


def _would_be_shared(host: str, port: int) -> bool:
    """Whether only a socket that shares its port (SO_REUSEPORT) could bind. Envoy itself reports all other errors."""
    return _fault(host, port, shares=False) == errno.EADDRINUSE and _fault(host, port, shares=True) is None


def _fault(host: str, port: int, *, shares: bool) -> int | None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shares:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            return error.errno if isinstance(error, OSError) and error.errno else errno.EINVAL
    return None
