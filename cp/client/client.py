"""A client of the control plane's HTTP API. Every failure is a `Problem` that says what to do."""

from __future__ import annotations

import json
import ssl
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.client import HTTPResponse
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs, urlencode, urlsplit

from cp.client.credentials import NO_CREDENTIALS, Credentials
from cp.client.http import NO_ANSWER, HttpAnswer, HttpRequest, KeptConnection, NotConnected, answer_to, read
from cp.client.problem import Problem

T = TypeVar("T")

NOT_FOUND: Final = 404
CREATED: Final = 201
_ERROR: Final = 300
"""From here on nothing was done. A control plane does not send its clients elsewhere, and a token goes nowhere else."""

_REVISION: Final = "koguma-revision"
_OWNER: Final = "koguma-owner"
_GRACE: Final = 10.0
_NEXT_AFTER: Final = 5.0
"""Seconds after which a control plane to which one cannot connect is given up, where there is another one."""

_OF_THE_INSTANCE: Final = frozenset({502, 503, 504})
"""Answers of a control plane that starts, ends or has too much to do, or of what is in front of it."""

_SILENCE: Final = 30.0
"""Seconds for which a feed may be silent. A control plane sends a comment twice in them."""

_EVENT: Final = b"event:"
_PAGE: Final = "1000"
_LARGEST: Final = 128 * 1024 * 1024
"""The most bytes of an answer, or of all pages of a list. A control plane sends less."""

_LARGEST_ERROR: Final = 64 * 1024
_MOST_PAGES: Final = 10_000
_CHECK: Final = "Check the address: the HTTP API is on port 5681."
_OF_ANOTHER_NAME: Final = frozenset({62, 64})
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH of OpenSSL."""


class Unreachable(Problem):
    """Nothing answers at the control plane's address."""


class NoAnswer(Unreachable):
    """A control plane was asked, and did not answer to the end: it may have done what it was asked."""


class Untrusted(Problem):
    """What answers at the control plane's address cannot be verified, or does not speak TLS. Waiting does not help."""


class NoControlPlane(Problem):
    """What answers at the control plane's address does so as no control plane does."""

    def __init__(self, address: str, path: str, reason: str) -> None:
        super().__init__(f"{address} does not answer as a control plane does: {path} {reason}", _CHECK)


class RequestRejected(Problem):
    """The control plane rejects a request, with a reason."""

    def __init__(self, status_code: int, message: str, hint: str = "", *, may_pass: bool = False) -> None:
        self.status_code = status_code
        self.may_pass = may_pass
        """Whether the same request may succeed soon, according to the control plane."""

        super().__init__(message, hint)


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The outcome of a write."""

    is_new: bool
    warnings: tuple[str, ...]
    revision: int | None
    """The revision that the write made; None where it changed nothing."""


class Client:
    """The HTTP API of a control plane, or of several on one store, of which it asks the first that can be reached.

    It stays with that one until that one cannot be reached, or answers that it cannot serve now.
    """

    def __init__(self, address: str, timeout: float = 60.0, credentials: Credentials = NO_CREDENTIALS) -> None:
        """The address may be several, separated by commas."""
        self._addresses = deque(addresses_in(address))
        self._timeout, self._authority_option = timeout, credentials.authority_option
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

    def get(self, path: str, **parameters: str | list[str]) -> Any:
        return self._data(path, self._send("GET", path, params=parameters))

    def answer(self, path: str, fields: Collection[str], **parameters: str | list[str]) -> Mapping[str, Any]:
        """An answer that has these fields, at the least."""
        return self._object(path, self._send("GET", path, params=parameters), fields)

    def all_pages(self, path: str, **parameters: str) -> dict[str, Any]:
        """A whole list, read page by page."""
        items: list[dict[str, Any]] = []
        offsets: dict[str, None] = {}
        left, parameters = _LARGEST, {**parameters, "size": _PAGE}
        for _ in range(_MOST_PAGES):
            answer = self._send("GET", path, params=parameters, largest=left)
            left -= len(answer.content)
            page = self._data(path, answer)
            items += self._items(path, page)
            if not page.get("next"):
                return {**page, "total": len(items), "items": items, "next": None}
            offset = _offset(page["next"])
            if not offset or offset in offsets:
                raise NoControlPlane(self.address, path, "has a page whose next one is none, or one before it")
            offsets[offset] = None
            parameters = {**parameters, "offset": offset}
        raise NoControlPlane(self.address, path, f"has more than {_MOST_PAGES} pages")

    def put(self, path: str, text: str, location: str = "", owner: str = "") -> WriteResult:
        """Write a resource as YAML.

        The location (file and line) is what the control plane names in its findings. The owner is a run of a proxy:
        the resource is removed when that run has ended.
        """
        headers = {"content-type": "application/yaml"} | ({"koguma-source": _ascii(location)} if location else {})
        headers |= {_OWNER: owner} if owner else {}
        answer = self._send("PUT", path, content=text.encode(), headers=headers)
        warnings = self._object(path, answer).get("warnings", ())
        return WriteResult(answer.status_code == CREATED, tuple(warnings), _revision(answer))

    def put_data(self, path: str, data: Any) -> Mapping[str, Any]:
        """Ask for something that is no resource. Returns what came of it."""
        return self._object(path, self._send("PUT", path, content=json.dumps(data).encode()))

    def roll_out(
        self,
        resources: Sequence[tuple[str, str]],
        order: Mapping[str, str],
        *,
        managed_by: str = "",
        prune: bool = False,
        preflight: bool | None = None,
    ) -> Mapping[str, Any]:
        """Have resources rolled out. Returns their outcomes and, unless nothing is to change, the rollout."""
        pieces = [{"text": text, "place": location} for text, location in resources]
        body = {"resources": pieces, "managedBy": managed_by, "prune": prune, "rollout": order}
        parameters = _of_preflight(is_asked=preflight)
        answer = self._send("POST", "/_apply", json.dumps(body).encode(), params=parameters, is_repeatable=False)
        return self._object("/_apply", answer, ["resources"])

    def steer_rollout(self, mesh: str, action: str, number: int) -> Mapping[str, Any]:
        """Pause, continue or abort the rollout of a mesh, if it is still the one with this number."""
        path, content = f"/meshes/{mesh}/_rollout", json.dumps({"action": action, "number": number}).encode()
        return self._object(path, self._send("POST", path, content, is_repeatable=False), ["course", "number"])

    def apply(  # what can be asked of a write
        self,
        resources: Sequence[tuple[str, str]],
        *,
        dry_run: bool = False,
        managed_by: str = "",
        prune: bool = False,
        preflight: bool | None = None,
    ) -> tuple[Sequence[Mapping[str, Any]], int | None]:
        """Write resources in one request, each as YAML with its location. Returns their outcomes and the revision.

        A dry run writes nothing and returns the outcomes that a write would have. `prune` deletes what is managed by
        the same name and is not among them. Warnings about all of them stand with the first.
        """
        content = _pushed(resources, managed_by, prune=prune)
        parameters = ({"dryRun": "true"} if dry_run else {}) | _of_preflight(is_asked=preflight)
        answer = self._send("POST", "/_apply", content, params=parameters, is_repeatable=dry_run)
        data = self._object("/_apply", answer, ["resources"])
        outcomes, warnings = list(data["resources"]), data.get("warnings", ())
        if outcomes and warnings:
            outcomes[0] = {**outcomes[0], "warnings": [*outcomes[0].get("warnings", ()), *warnings]}
        return outcomes, _revision(answer)

    def plan(
        self, resources: Sequence[tuple[str, str]], *, managed_by: str = "", prune: bool = False, **further: str
    ) -> Mapping[str, Any]:
        """What it would do to write resources, as `apply` takes them: their outcomes, the plan, and what is asked for
        by further parameters."""
        content = _pushed(resources, managed_by, prune=prune)
        parameters = {"dryRun": "true", "plan": "true", **further}
        return self._object("/_apply", self._send("POST", "/_apply", content, params=parameters), ["resources", "plan"])

    def rollback(
        self, revision: int, choice: Mapping[str, Any], *, dry_run: bool = False, preflight: bool | None = None
    ) -> tuple[Mapping[str, Any], int | None]:
        """Bring the resources of a choice back. Returns what became of them, and the revision that this made."""
        content = json.dumps({"revision": revision, **choice}).encode()
        parameters = ({"dryRun": "true"} if dry_run else {}) | _of_preflight(is_asked=preflight)
        answer = self._send("POST", "/_rollback", content, params=parameters, is_repeatable=dry_run)
        return self._object("/_rollback", answer, ["resources", "leftOut", "rolledBackTo"]), _revision(answer)

    def delete(self, path: str, *, preflight: bool | None = None, **parameters: str) -> WriteResult:
        """Delete a resource."""
        answer = self._send("DELETE", path, params=parameters | _of_preflight(is_asked=preflight), is_repeatable=False)
        warnings = self._object(path, answer).get("warnings", ()) if answer.content else ()
        return WriteResult(is_new=False, warnings=tuple(warnings), revision=_revision(answer))

    def take_away(self, path: str, owner: str) -> None:
        """Delete the Dataplane that a run of a proxy registered, unless it has another owner by now."""
        self._send("DELETE", path, headers={_OWNER: owner})

    def readiness(self, path: str, owner: str, *, ready: bool) -> int | None:
        """Say whether callers may call a proxy. Returns the revision that this made."""
        return _revision(
            self._send("POST", f"{path}/_readiness", json.dumps({"owner": owner, "ready": ready}).encode())
        )

    def lines(self, path: str, data: Any, seconds: float) -> Iterator[Any]:
        """The answer to a question, line by line. The control plane may take so many seconds for it."""
        with ExitStack() as stack:
            content = json.dumps(data).encode()
            answer = self._of_first(lambda: self._opened(stack, self.request("POST", path, content), seconds))
            with self._reaching():
                for line in filter(None, map(bytes.strip, answer)):
                    yield self.object_of(path, line)

    def converse(self, talk: Callable[[Conversation], T]) -> T:
        """What comes of requests on one connection, to the first control plane that can be reached."""

        def attempt() -> T:
            with closing(KeptConnection(self._context)) as connection:
                return talk(Conversation(self, connection))

        return self._of_first(attempt)

    def events(self, path: str) -> Iterator[str]:
        """The names of events as a control plane sends them, until it ends the answer."""
        with ExitStack() as stack:
            answer = self._of_first(lambda: self._opened(stack, self.request("GET", path), _SILENCE))
            with self._reaching():
                for line in answer:
                    if line.startswith(_EVENT):
                        yield line.removeprefix(_EVENT).decode(errors="replace").strip()

    def post(self, path: str, data: Any, **headers: str) -> str:
        return self._send("POST", path, content=json.dumps(data).encode(), headers=headers).text

    def _send(  # noqa: PLR0913  # what a request has
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str | list[str]] | None = None,
        *,
        is_repeatable: bool = True,
        largest: int = _LARGEST,
    ) -> HttpAnswer:
        query = f"?{urlencode(params, doseq=True)}" if params else ""

        def attempt() -> HttpAnswer:
            return self._answer(self.request(method, path + query, content, headers), path, largest)

        return self._of_first(attempt, is_repeatable=is_repeatable)

    def _of_first(self, attempt: Callable[[], T], *, is_repeatable: bool = True) -> T:
        """What the first control plane answers that can be reached. What was asked is asked again only if it may be."""
        problems = list[Problem]()
        for _ in tuple(self._addresses):
            try:
                return attempt()
            except Problem as problem:
                if not _is_of_the_instance(problem):
                    raise
                problems.append(problem)
                self._addresses.rotate(-1)
                if not (is_repeatable or isinstance(problem, Untrusted) or type(problem) is Unreachable):
                    raise
        raise _common(problems)

    def _answer(self, request: HttpRequest, path: str, largest: int) -> HttpAnswer:
        with self._reaching(), answer_to(request, self._context) as streamed:
            answer = read(streamed, largest + 1)
        if len(answer.content) > largest:
            raise NoControlPlane(self.address, path, f"has more than {_LARGEST >> 20} MiB")
        if answer.status_code >= _ERROR:
            raise _rejected(answer, self.address)
        return answer

    def _opened(self, stack: ExitStack, request: HttpRequest, seconds: float) -> HTTPResponse:
        """An answer of which no line has been read yet."""
        question = replace(request, answer_patience=seconds + _GRACE)
        with self._reaching():
            answer = stack.enter_context(answer_to(question, self._context))
            if answer.status < _ERROR:
                return answer
            content = read(answer)
        raise _rejected(content, self.address)

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
                raise _rejected(read(answer, _LARGEST_ERROR), self.address)
            yield answer

    def _data(self, path: str, answer: HttpAnswer) -> Any:
        try:
            return json.loads(answer.content, parse_constant=_no_number)
        except (ValueError, RecursionError):
            raise NoControlPlane(self.address, path, "is answered with something else than JSON") from None

    def _object(self, path: str, answer: HttpAnswer, fields: Collection[str] = ()) -> dict[str, Any]:
        data = self._data(path, answer)
        if not isinstance(data, dict):
            raise NoControlPlane(self.address, path, "is answered with something else than an object")
        if missing := [name for name in fields if name not in data]:
            raise NoControlPlane(self.address, path, f"is answered without `{missing[0]}`")
        return data

    def object_of(self, path: str, line: bytes) -> dict[str, Any]:
        """What a line of an answer says."""
        return self._object(path, HttpAnswer(HTTPStatus.OK, {}, line))

    def _items(self, path: str, page: Any) -> list[dict[str, Any]]:
        items = page.get("items") if isinstance(page, dict) else None
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise NoControlPlane(self.address, path, "is answered with something else than a list of resources")
        return items

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except NotConnected as error:
            cause = error.__cause__ or error
            if isinstance(cause, ssl.SSLError):
                raise _untrusted(self.address, cause, self._authority_option) from None
            hint = "Start one with `koguma run`, or say where it is with --address or KOGUMA_ADDRESS."
            raise Unreachable(f"no control plane answers at {self.address} ({_reason(cause)})", hint) from None
        except TimeoutError:
            raise NoAnswer(f"the control plane at {self.address} takes too long to answer") from None
        except NO_ANSWER as error:
            hint = "Is it the port of the HTTP API (5681, or 5682 with https)? Proxies have another one (5678)."
            raise NoAnswer(f"{self.address} does not speak HTTP: {error}", hint) from None


class Conversation:
    """Requests to one control plane, all on one connection."""

    def __init__(self, client: Client, connection: KeptConnection) -> None:
        self._client, self._connection = client, connection

    def lines(self, path: str, data: Any, silence: float) -> Iterator[dict[str, Any]]:
        """The objects of an answer, line by line. It may take any time, but say nothing for so many seconds alone."""
        question = replace(self._client.request("POST", path, json.dumps(data).encode()), answer_patience=silence)
        with self._client.on_connection(self._connection, question) as answer:
            for line in filter(None, map(bytes.strip, answer)):
                yield self._client.object_of(path, line)

    def post(self, path: str, content: bytes, headers: Mapping[str, str]) -> None:
        with self._client.on_connection(
            self._connection, self._client.request("POST", path, content, headers)
        ) as answer:
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


@contextmanager
def connect(address: str, timeout: float = 60.0, credentials: Credentials = NO_CREDENTIALS) -> Iterator[Client]:
    """A client of the control plane at an address, closed at the end."""
    yield Client(address, timeout, credentials)


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _offset(link: Any) -> str:
    """Where the next page begins; empty if a link does not say it."""
    try:
        return parse_qs(urlsplit(str(link)).query).get("offset", [""])[0]
    except ValueError:
        return ""


def _is_of_the_instance(problem: Problem) -> bool:
    """Whether another control plane may answer differently."""
    if isinstance(problem, RequestRejected):
        return problem.status_code in _OF_THE_INSTANCE
    return isinstance(problem, Unreachable | Untrusted)


def _common(problems: Sequence[Problem]) -> Problem:
    """What to say if no control plane has answered. It may pass, unless none of them can be trusted."""
    if len(problems) == 1:
        return problems[0]
    is_final = all(isinstance(problem, Untrusted) for problem in problems)
    telling = next((problem for problem in problems if is_final or not isinstance(problem, Untrusted)), problems[0])
    message = f"no control plane answers: {'; '.join(problem.message for problem in problems)}"
    return (Untrusted if is_final else Unreachable)(message, telling.hint)


def _untrusted(address: str, fault: ssl.SSLError, authority_option: str) -> Problem:
    if not isinstance(fault, ssl.SSLCertVerificationError):
        hint = "Is it the port for https (5682)? Without TLS, write the address with http://."
        return Untrusted(f"{address} does not speak TLS as a control plane does ({fault.reason or fault})", hint)
    if fault.verify_code in _OF_ANOTHER_NAME:
        hint = "Call it by a name of its certificate, or add this one with KOGUMA_API_HOSTS and start it again."
        return Untrusted(f"the certificate of {address} is for another name: {fault.verify_message}", hint)
    hint = (
        "Copy koguma-cp-ca.crt from the work folder of the control plane, or the authority that signed its "
        f"certificate, and name the file with {authority_option}."
    )
    return Untrusted(f"the certificate of {address} is not trusted: {fault.verify_message}", hint)


def _pushed(resources: Sequence[tuple[str, str]], managed_by: str, *, prune: bool) -> bytes:
    """The body of what is written together."""
    pieces = [{"text": text, "place": location} for text, location in resources]
    name = {"managedBy": managed_by} if managed_by else {}
    return json.dumps({"resources": pieces, **name, **({"prune": True} if prune else {})}).encode()


def _of_preflight(*, is_asked: bool | None) -> dict[str, str]:
    """What a request says of preflight. If it says nothing the control plane does as it is set up."""
    return {} if is_asked is None else {"preflight": "true" if is_asked else "false"}


def _revision(answer: HttpAnswer) -> int | None:
    text = answer.headers.get(_REVISION, "")
    return int(text) if text.isdecimal() else None


def _rejected(answer: HttpAnswer, address: str) -> RequestRejected:
    try:
        body = answer.json()
    except ValueError:
        body = None
    detail = (body.get("detail") or body.get("title")) if isinstance(body, Mapping) and "status" in body else None
    if not isinstance(detail, str):
        message = f"{address} answers {answer.status_code}, and not as a control plane does"
        return RequestRejected(answer.status_code, message, _CHECK)
    named = [fault for fault in body.get("invalid_parameters") or () if isinstance(fault, Mapping)]
    faults = [_fault(fault) for fault in named if str(fault.get("reason", "")) not in detail]
    text = "\n".join([detail, *(f"  {fault}" for fault in faults)])
    return RequestRejected(answer.status_code, text, may_pass="retry-after" in answer.headers)


def _fault(fault: Mapping[str, Any]) -> str:
    location = f"{fault['file']}:{fault['line']}: " if fault.get("file") and fault.get("line") else ""
    field = f"{fault['field']}: " if fault.get("field") else ""
    hint = f"; {fault['hint']}" if fault.get("hint") else ""
    return f"{location}{field}{fault.get('reason', '')}{hint}"


def _reason(error: BaseException) -> str:
    text = str(error)
    return text.partition("] ")[2].lower() if text.startswith("[Errno") else text or type(error).__name__


def _ascii(location: str) -> str:
    return location.encode("ascii", "backslashreplace").decode()
