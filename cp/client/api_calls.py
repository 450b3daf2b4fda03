"""`ApiCalls`: requests to a control plane, or to the first of several on one store that can be reached."""

from __future__ import annotations

import json
import ssl
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from http import HTTPStatus
from http.client import HTTPResponse
from typing import Any, Final, TypeVar
from urllib.parse import urlencode, urlsplit

from cp.client.credentials import Credentials
from cp.client.failures import (
    NoAnswer,
    NoControlPlane,
    Unreachable,
    Untrusted,
    common_problem,
    is_of_the_instance,
    rejected,
    unreachable,
    untrusted,
)
from cp.client.http import NO_ANSWER, HttpAnswer, HttpRequest, KeptConnection, NotConnected, answer_to, read
from cp.client.problem import Problem

T = TypeVar("T")

LARGEST: Final = 128 * 1024 * 1024
"""The most bytes of an answer, or of all pages of a list. A control plane sends less."""

_LARGEST_ERROR: Final = 64 * 1024
_ERROR: Final = 300
"""From here on nothing was done. A control plane does not send its clients elsewhere, and a token goes nowhere else."""

_GRACE: Final = 10.0
_NEXT_AFTER: Final = 5.0
"""Seconds after which a control plane to which one cannot connect is given up, where there is another one."""


class ApiCalls:
    """Each goes to the control plane that answered the last one, until that cannot be reached or cannot serve now."""

    def __init__(self, address: str, timeout: float, credentials: Credentials) -> None:
        """The address may be several, separated by commas."""
        self._addresses = deque(addresses_in(address))
        self._timeout, self._authority_option = timeout, credentials.authority_option
        self._address_option = credentials.address_option
        # To read what a machine trusts takes a while, and without TLS nothing of it is needed.
        is_over_tls = any(url.startswith("https://") for url in self._addresses)
        self._context = credentials.context() if is_over_tls else None
        self._headers = {"accept": "*/*", "user-agent": "koguma", **credentials.headers()}

    @property
    def address(self) -> str:
        """The one that is asked next."""
        return self._addresses[0]

    @property
    def hosts(self) -> list[str]:
        """Where control planes are."""
        return list(dict.fromkeys(urlsplit(address).hostname or "" for address in self._addresses))

    def send(  # noqa: PLR0913  # what a request has
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str | list[str]] | None = None,
        *,
        is_repeatable: bool = True,
        largest: int = LARGEST,
    ) -> HttpAnswer:
        """The answer to a request. Unless it is repeatable, no two control planes are asked it."""
        query = f"?{urlencode(params, doseq=True)}" if params else ""

        def attempt() -> HttpAnswer:
            return self._answer(self.request(method, path + query, content, headers), path, largest)

        return self._of_first(attempt, is_repeatable=is_repeatable)

    @contextmanager
    def lines(self, method: str, path: str, content: bytes | None, silence: float) -> Iterator[Iterable[bytes]]:
        """The lines of an answer, which are read in the block. It may say nothing for about so many seconds."""
        with ExitStack() as stack:
            answer = self._of_first(lambda: self._opened(stack, self.request(method, path, content), silence))
            with self._reaching():
                yield answer

    def converse(self, talk: Callable[[Conversation], T]) -> T:
        """What comes of requests on one connection, to the first control plane that can be reached."""

        def attempt() -> T:
            with closing(KeptConnection(self._context)) as connection:
                return talk(Conversation(self, connection))

        return self._of_first(attempt)

    def _of_first(self, attempt: Callable[[], T], *, is_repeatable: bool = True) -> T:
        """What the first control plane answers that can be reached. What was asked is asked again only if it may be."""
        problems = list[Problem]()
        for _ in tuple(self._addresses):
            try:
                return attempt()
            except Problem as problem:
                if not is_of_the_instance(problem):
                    raise
                problems.append(problem)
                self._addresses.rotate(-1)
                if not (is_repeatable or isinstance(problem, Untrusted) or type(problem) is Unreachable):
                    raise
        raise common_problem(problems)

    def _answer(self, request: HttpRequest, path: str, largest: int) -> HttpAnswer:
        with self._reaching(), answer_to(request, self._context) as streamed:
            answer = read(streamed, largest + 1)
        if len(answer.content) > largest:
            raise NoControlPlane(self.address, path, f"has more than {LARGEST >> 20} MiB")
        if answer.status_code >= _ERROR:
            raise rejected(answer, self.address)
        return answer

    def _opened(self, stack: ExitStack, request: HttpRequest, seconds: float) -> HTTPResponse:
        """An answer of which no line has been read yet."""
        question = replace(request, answer_patience=seconds + _GRACE)
        with self._reaching():
            answer = stack.enter_context(answer_to(question, self._context))
            if answer.status < _ERROR:
                return answer
            content = read(answer)
        raise rejected(content, self.address)

    def request(
        self, method: str, path: str, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> HttpRequest:
        of_content = {} if content is None else {"content-type": "application/json"}
        all_headers = self._headers | of_content | dict(headers or {})
        patience = self._timeout if len(self._addresses) == 1 else min(self._timeout, _NEXT_AFTER)
        return HttpRequest(method, self.address + path, patience, content, all_headers, self._timeout)

    @contextmanager
    def on_connection(self, connection: KeptConnection, request: HttpRequest) -> Iterator[HTTPResponse]:
        """An answer on a connection, which is none of an error."""
        with self._reaching(), connection.answer_to(request) as answer:
            if answer.status >= _ERROR:
                raise rejected(read(answer, _LARGEST_ERROR), self.address)
            yield answer

    def data_of(self, path: str, answer: HttpAnswer) -> Any:
        """What an answer says as JSON. Raises `NoControlPlane`."""
        try:
            return json.loads(answer.content, parse_constant=_no_number)
        except (ValueError, RecursionError):
            raise NoControlPlane(self.address, path, "is answered with something else than JSON") from None

    def object_of(self, path: str, answer: HttpAnswer, fields: Collection[str] = ()) -> dict[str, Any]:
        """What an answer says that is an object with these fields, at the least. Raises `NoControlPlane`."""
        data = self.data_of(path, answer)
        if not isinstance(data, dict):
            raise NoControlPlane(self.address, path, "is answered with something else than an object")
        if missing := [name for name in fields if name not in data]:
            raise NoControlPlane(self.address, path, f"is answered without `{missing[0]}`")
        return data

    def object_of_line(self, path: str, line: bytes) -> dict[str, Any]:
        """What a line of an answer says, which is an object. Raises `NoControlPlane`."""
        return self.object_of(path, HttpAnswer(HTTPStatus.OK, {}, line))

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except NotConnected as error:
            cause = error.__cause__ or error
            if isinstance(cause, ssl.SSLError):
                raise untrusted(self.address, cause, self._authority_option) from None
            raise unreachable(self.address, cause, self._address_option) from None
        except TimeoutError:
            raise NoAnswer(f"the control plane at {self.address} takes too long to answer") from None
        except NO_ANSWER as error:
            hint = "Is it the port of the HTTP API (5681, or 5682 with https)? Proxies have another one (5678)."
            reason = f": {error}" if str(error).isprintable() else ""  # or it is what a port for proxies says, in bytes
            raise NoAnswer(f"{self.address} does not speak HTTP{reason}", hint) from None


class Conversation:
    """Requests to one control plane, all on one connection."""

    def __init__(self, calls: ApiCalls, connection: KeptConnection) -> None:
        self._calls, self._connection = calls, connection

    def lines(self, path: str, data: Any, silence: float) -> Iterator[dict[str, Any]]:
        """The objects of an answer, line by line. It may take any time, but say nothing for so many seconds alone."""
        question = replace(self._calls.request("POST", path, json.dumps(data).encode()), answer_patience=silence)
        with self._calls.on_connection(self._connection, question) as answer:
            for line in filter(None, map(bytes.strip, answer)):
                yield self._calls.object_of_line(path, line)

    def post(self, path: str, content: bytes, headers: Mapping[str, str]) -> None:
        with self._calls.on_connection(self._connection, self._calls.request("POST", path, content, headers)) as answer:
            answer.read()


def addresses_in(text: str) -> tuple[str, ...]:
    """The addresses in a list with commas. Raises `Problem` if one is none, without a word of a password."""
    if "@" in text:
        hint = "Leave it out, and say who calls with --token or --token-file."
        raise Problem("an address of a control plane has a user or a password in it, which are not sent", hint)
    addresses = tuple(dict.fromkeys(part.strip().rstrip("/") for part in text.split(",")))
    for address in addresses:
        if not _is_address(address):
            hint = "Write it as http://HOST:5681, and several with commas between them."
            raise Problem(f"`{address}` is no address of a control plane", hint)
    return addresses


def _is_address(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in {"http", "https"} and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        return False


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")
