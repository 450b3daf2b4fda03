"""Why an address cannot be listened on, and what an operator can do about it."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from typing import Final

_HINTS: Final[Mapping[int | None, str]] = {
    errno.EADDRINUSE: (
        "Another control plane may run already. Choose other ports with --ads-port, --http-port and --diagnostics-port."
    ),
    errno.EADDRNOTAVAIL: "This machine does not have that address. Name one of its own with --bind, or 0.0.0.0.",
    errno.EACCES: "Choose a port above 1023, or run it as a user who may listen on this one.",
    errno.EPERM: "Choose a port above 1023, or run it as a user who may listen on this one.",
}
_OTHERWISE: Final = "Name an IP address of this machine with --bind; for the ports see koguma run --help."


class CannotListen(OSError):
    """An address is taken, is none of this machine, or is not allowed."""

    def __init__(self, host: str, port: int, error: OSError) -> None:
        self.hint = _HINTS.get(error.errno, _OTHERWISE)
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        super().__init__(f"cannot listen on {address}: {error.strerror or error}")


def bind(listener: socket.socket, host: str, port: int) -> None:
    """Give a socket its address. Raises `CannotListen`."""
    try:
        listener.bind((host, port))
    except OSError as error:
        raise CannotListen(host, port, error) from error


def reason_not_bound(host: str, port: int, library_error: Exception) -> CannotListen:
    """Why a library could not listen, where its error does not tell: found out by another attempt."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        try:
            probe.bind((host, port))
        except OSError as error:
            return CannotListen(host, port, error)
    return CannotListen(host, port, OSError(str(library_error)))
