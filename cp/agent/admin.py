"""A client of Envoy's admin interface, at the address that the bootstrap configuration says."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, Final

_PATIENCE: Final = 1.0


class EnvoyAdmin:
    """The admin interface of one Envoy."""

    def __init__(self, bootstrap: str) -> None:
        self._address: Mapping[str, Any] = json.loads(bootstrap)["admin"]["address"]

    @property
    def where(self) -> str:
        """The curl command that calls it."""
        if "pipe" in self._address:
            return f"curl --unix-socket {self._address['pipe']['path']} http://envoy/"
        host, port = self._host_and_port()
        return f"curl http://{f'[{host}]' if ':' in host else host}:{port}/"

    def get(self, path: str, patience: float = _PATIENCE) -> bytes | None:
        """The answer at a path; None if it is not 200, or if there is no answer."""
        return self._ask("GET", path, patience)

    def post(self, path: str) -> bool:
        """Send a command. Returns whether it succeeded."""
        return self.answer_to_post(path) is not None

    def answer_to_post(self, path: str) -> bytes | None:
        """As `get`, of a command."""
        return self._ask("POST", path, _PATIENCE)

    @contextmanager
    def opened(self, path: str, patience: float) -> Iterator[http.client.HTTPResponse]:
        """An answer of which nothing was read yet. Raises `OSError` or `HTTPException`."""
        with closing(self._connection(patience)) as connection:
            connection.request("GET", path)
            with closing(connection.getresponse()) as answer:
                yield answer

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
