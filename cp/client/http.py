"""HTTP requests, each on a connection of its own, with the standard library alone.

Larger libraries take as much memory as all the rest of an agent, and there is an agent beside each Envoy (record 0081).
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead
from typing import Any, Final
from urllib.parse import quote, urlsplit

from cp.calling import OutgoingConnection, connection_to, ended_within

OK: Final = 200
NO_ANSWER: Final = (OSError, HTTPException, ValueError)
"""What a request may raise, `NotConnected` apart."""

_AS_THEY_ARE: Final = "/%:@!$&'()*+,;=~?"


class NotConnected(Exception):
    """There is nobody at the address, or TLS with whoever is there fails. The cause says why."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request, and how many seconds it may take to connect and to wait for each part of the answer."""

    method: str
    url: str
    patience: float
    content: bytes | None = None
    headers: Mapping[str, str] | None = None
    answer_patience: float | None = None
    """None: the same as to connect."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The whole answer to a request."""

    status_code: int
    headers: Mapping[str, str]
    """Their names in lower case."""

    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")

    def json(self) -> Any:
        """Raises `ValueError` if it is something else."""
        return json.loads(self.content)


def whole_answer(request: HttpRequest) -> HttpAnswer:
    """Send a request and read the answer to its end, all within `patience`.

    Raises `NotConnected`, or one of `NO_ANSWER`.
    """
    connection = _connection(request, None)
    within = ended_within(connection, request.patience)
    with closing(connection), within, closing(_sent(connection, request)) as answer:
        return read(answer)


def read(answer: HTTPResponse, most: int | None = None) -> HttpAnswer:
    """An answer with its body, of which so many bytes are read at the most."""
    headers = {name.lower(): value for name, value in answer.getheaders()}
    content = answer.read(most)
    if answer.length and (most is None or len(content) < most):  # with a limit, an early end would go unnoticed
        raise IncompleteRead(content, answer.length)
    return HttpAnswer(answer.status, headers, content)


@contextmanager
def answer_to(request: HttpRequest, context: ssl.SSLContext | None = None) -> Iterator[HTTPResponse]:
    """Send a request; what is read of the answer is read in the block. Raises as `whole_answer`."""
    # The socket is the answer's own, where it is the last on it.
    with closing(_connection(request, context)) as connection, closing(_sent(connection, request)) as answer:
        yield answer


class KeptConnection:
    """One connection for several requests, one after the other: who answers the first answers all of them."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._context = context
        self._connection: HTTPConnection | None = None

    @contextmanager
    def answer_to(self, request: HttpRequest) -> Iterator[HTTPResponse]:
        """As the function of that name. It has to be read to its end."""
        with closing(self._answer(request)) as answer:
            yield answer

    def _answer(self, request: HttpRequest) -> HTTPResponse:
        if self._connection is not None:
            with suppress(ConnectionError):  # the other end has closed it meanwhile, as it may
                return _sent(self._connection, request)
            self._connection.close()
        self._connection = _connection(request, self._context)
        return _sent(self._connection, request)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _sent(connection: HTTPConnection, request: HttpRequest) -> HTTPResponse:
    """The answer to a request on a connection, of which nothing was read yet."""
    if connection.sock is None:
        try:
            connection.connect()
        except (OSError, UnicodeError) as error:
            raise NotConnected(str(error)) from error
    connection.sock.settimeout(request.answer_patience or request.patience)
    url = urlsplit(request.url)
    target = quote(url._replace(scheme="", netloc="", fragment="").geturl() or "/", safe=_AS_THEY_ARE)
    with suppress(BrokenPipeError, ConnectionResetError):  # who refuses a body answers before the end of it
        connection.request(request.method, target, request.content, dict(request.headers or {}))
    return connection.getresponse()


def _connection(request: HttpRequest, context: ssl.SSLContext | None) -> OutgoingConnection:
    return connection_to(request.url, request.patience, context)
