"""Envoy's admin interface, wherever a bootstrap configuration puts it."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from typing import Any, Final

_PATIENCE: Final = 1.0


class EnvoyAdmin:
    """Asks one Envoy."""

    def __init__(self, bootstrap: str) -> None:
        self._address: Mapping[str, Any] = json.loads(bootstrap)["admin"]["address"]

    @property
    def where(self) -> str:
        """How to reach it from a shell."""
        if "pipe" in self._address:
            return f"curl --unix-socket {self._address['pipe']['path']} http://envoy/"
        host, port = self._host_and_port()
        return f"curl http://{f'[{host}]' if ':' in host else host}:{port}/"

    def get(self, path: str, patience: float = _PATIENCE) -> bytes | None:
        """What a path answers; nothing where that is not 200, or nobody answers."""
        return self._ask("GET", path, patience)

    def post(self, path: str) -> bool:
        """Have something done. Whether it was."""
        return self._ask("POST", path, _PATIENCE) is not None

    def _ask(self, method: str, path: str, patience: float) -> bytes | None:
        connection = self._connection(patience)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.read() if answer.status == http.client.OK else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def _connection(self, patience: float) -> http.client.HTTPConnection:
        if "pipe" in self._address:
            return _OverSocket(self._address["pipe"]["path"], patience)
        host, port = self._host_and_port()
        return http.client.HTTPConnection(host, port, timeout=patience)

    def _host_and_port(self) -> tuple[str, int]:
        return self._address["socketAddress"]["address"], self._address["socketAddress"]["portValue"]


class _OverSocket(http.client.HTTPConnection):
    """HTTP over a socket in the file system."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("envoy", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
