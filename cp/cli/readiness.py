"""Whether an Envoy has its first configuration, so that whoever starts a proxy hears of it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

_EVERY: Final = 0.05
_HINT_AFTER: Final = 10.0
_PATIENCE: Final = 1.0
_HINT: Final = "Envoy runs, but has no configuration yet. Does it reach the control plane's port for proxies?"

Say = Callable[[str], None]


@contextmanager
def announced(bootstrap: str, say: Say) -> Iterator[None]:
    """While this lasts: say when the Envoy of this bootstrap configuration is ready, or why it may not be."""
    ended = threading.Event()
    watching = threading.Thread(target=_watch, args=(_address(bootstrap), say, ended), name="readiness")
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()


def where(bootstrap: str) -> str:
    """How to reach Envoy's admin interface from a shell."""
    address = _address(bootstrap)
    if "pipe" in address:
        return f"curl --unix-socket {address['pipe']['path']} http://envoy/"
    host, port = _host_and_port(address)
    return f"curl http://{f'[{host}]' if ':' in host else host}:{port}/"


class _OverSocket(http.client.HTTPConnection):
    """HTTP over a socket in the file system."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("envoy", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _watch(address: Mapping[str, Any], say: Say, ended: threading.Event) -> None:
    begun, hinted = time.monotonic(), False
    while not _is_ready(address):
        if ended.wait(_EVERY):
            return
        if not hinted and time.monotonic() - begun > _HINT_AFTER:
            say(_HINT)
            hinted = True
    say(f"ready after {time.monotonic() - begun:.1f} s")


def _is_ready(address: Mapping[str, Any]) -> bool:
    connection = _connection(address)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _connection(address: Mapping[str, Any]) -> http.client.HTTPConnection:
    if "pipe" in address:
        return _OverSocket(address["pipe"]["path"], _PATIENCE)
    host, port = _host_and_port(address)
    return http.client.HTTPConnection(host, port, timeout=_PATIENCE)


def _address(bootstrap: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(bootstrap)["admin"]["address"]
    return found


def _host_and_port(address: Mapping[str, Any]) -> tuple[str, int]:
    return address["socketAddress"]["address"], address["socketAddress"]["portValue"]
