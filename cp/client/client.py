"""A client of the control plane's HTTP API. Every failure is a `Problem` that says what to do."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import httpx

from cp.client.credentials import NO_CREDENTIALS, Credentials
from cp.client.problem import Problem

NOT_FOUND: Final = 404
CREATED: Final = 201
_ERROR: Final = 400
_REVISION: Final = "koguma-revision"
_OWNER: Final = "koguma-owner"
_GRACE: Final = 10.0
_PAGE: Final = "1000"
_OF_ANOTHER_NAME: Final = frozenset({62, 64})
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH of OpenSSL."""


class Unreachable(Problem):
    """Nothing answers at the control plane's address."""


class Untrusted(Problem):
    """What answers at the control plane's address cannot be verified, or does not speak TLS. Waiting does not help."""


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
    """A control plane's HTTP API."""

    def __init__(
        self,
        address: str,
        timeout: float = 60.0,
        transport: httpx.BaseTransport | None = None,
        credentials: Credentials = NO_CREDENTIALS,
    ) -> None:
        self.address = address.rstrip("/")
        if not self.address.startswith(("http://", "https://")):
            raise Problem(f"`{address}` is no address of a control plane", "Write it as http://HOST:5681.")
        self._timeout = timeout
        # To read what a machine trusts takes a while, and without TLS nothing of it is needed.
        context = credentials.context() if self.address.startswith("https://") else False
        self._http = httpx.Client(
            base_url=self.address, timeout=timeout, transport=transport, headers=credentials.headers(), verify=context
        )

    def get(self, path: str, **parameters: str | list[str]) -> Any:
        return self._send("GET", path, params=parameters).json()

    def all_pages(self, path: str) -> dict[str, Any]:
        """A whole list, read page by page."""
        page = self.get(path, size=_PAGE)
        items = list(page["items"])
        while page["next"]:
            page = self.get(path, size=_PAGE, offset=parse_qs(urlsplit(page["next"]).query)["offset"][0])
            items += page["items"]
        return {"total": len(items), "items": items, "next": None}

    def put(self, path: str, text: str, location: str = "", owner: str = "") -> WriteResult:
        """Write a resource as YAML.

        The location (file and line) is what the control plane names in its findings. The owner is a run of a proxy:
        the resource is removed when that run has ended.
        """
        headers = {"content-type": "application/yaml"} | ({"koguma-source": _ascii(location)} if location else {})
        headers |= {_OWNER: owner} if owner else {}
        answer = self._send("PUT", path, content=text.encode(), headers=headers)
        return WriteResult(answer.status_code == CREATED, tuple(answer.json().get("warnings", ())), _revision(answer))

    def apply(
        self, resources: Sequence[tuple[str, str]], *, dry_run: bool = False
    ) -> tuple[Sequence[Mapping[str, Any]], int | None]:
        """Write resources in one request, each as YAML with its location. Returns their outcomes and the revision.

        A dry run writes nothing and returns the outcomes that a write would have.
        """
        pieces = [{"text": text, "place": location} for text, location in resources]
        parameters = {"dryRun": "true"} if dry_run else {}
        answer = self._send("POST", "/_apply", json={"resources": pieces}, params=parameters)
        return answer.json()["resources"], _revision(answer)

    def delete(self, path: str, **parameters: str) -> int | None:
        """Delete a resource. Returns the revision that this made, or None if nothing changed."""
        return _revision(self._send("DELETE", path, params=parameters))

    def take_away(self, path: str, owner: str) -> None:
        """Delete the Dataplane that a run of a proxy registered, unless it has another owner by now."""
        self._send("DELETE", path, headers={_OWNER: owner})

    def readiness(self, path: str, owner: str, *, ready: bool) -> int | None:
        """Say whether callers may call a proxy. Returns the revision that this made."""
        return _revision(self._send("POST", f"{path}/_readiness", json={"owner": owner, "ready": ready}))

    def lines(self, path: str, data: Any, seconds: float) -> Iterator[Any]:
        """The answer to a question, line by line. The control plane may take so many seconds for it."""
        timeout = httpx.Timeout(self._timeout, read=seconds + _GRACE)
        with self._reaching(), self._http.stream("POST", path, json=data, timeout=timeout) as answer:
            if answer.status_code >= _ERROR:
                answer.read()
                raise _rejected(answer, self.address)
            yield from map(json.loads, filter(None, answer.iter_lines()))

    def post(self, path: str, data: Any, **headers: str) -> str:
        return self._send("POST", path, json=data, headers=headers).text

    def close(self) -> None:
        self._http.close()

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        with self._reaching():
            answer = self._http.request(method, path, **options)
        if answer.status_code >= _ERROR:
            raise _rejected(answer, self.address)
        return answer

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            if (fault := _tls_fault(error)) is not None:
                raise _untrusted(self.address, fault) from None
            hint = "Start one with `koguma run`, or say where it is with --address or KOGUMA_ADDRESS."
            raise Unreachable(f"no control plane answers at {self.address} ({_reason(error)})", hint) from None
        except httpx.TimeoutException:
            raise Unreachable(f"the control plane at {self.address} takes too long to answer") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            hint = "Is it the port of the HTTP API (5681, or 5682 with https)? Proxies have another one (5678)."
            raise Unreachable(f"{self.address} does not speak HTTP: {error}", hint) from None


@contextmanager
def connect(address: str, timeout: float = 60.0, credentials: Credentials = NO_CREDENTIALS) -> Iterator[Client]:
    """A client of the control plane at an address, closed at the end."""
    client = Client(address, timeout, credentials=credentials)
    try:
        yield client
    finally:
        client.close()


def _tls_fault(error: BaseException) -> ssl.SSLError | None:
    """The fault of TLS that is behind an error of the library."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    return cause


def _untrusted(address: str, fault: ssl.SSLError) -> Problem:
    if not isinstance(fault, ssl.SSLCertVerificationError):
        hint = "Is it the port for https (5682)? Without TLS, write the address with http://."
        return Untrusted(f"{address} does not speak TLS as a control plane does ({fault.reason or fault})", hint)
    if fault.verify_code in _OF_ANOTHER_NAME:
        hint = "Call it by a name of its certificate, or add this one with KOGUMA_API_HOSTS and start it again."
        return Untrusted(f"the certificate of {address} is for another name: {fault.verify_message}", hint)
    hint = (
        "Copy koguma-cp-ca.crt from the work folder of the control plane, or the authority that signed its "
        "certificate, and name the file with --ca-cert-file."
    )
    return Untrusted(f"the certificate of {address} is not trusted: {fault.verify_message}", hint)


def _revision(answer: httpx.Response) -> int | None:
    text = answer.headers.get(_REVISION)
    return None if text is None else int(text)


def _rejected(answer: httpx.Response, address: str) -> RequestRejected:
    try:
        body = answer.json()
    except ValueError:
        body = None
    if not isinstance(body, Mapping) or "status" not in body:
        message = f"{address} answers {answer.status_code}, and not as a control plane does"
        return RequestRejected(answer.status_code, message, "Check the address: the HTTP API is on port 5681.")
    detail = str(body.get("detail") or body.get("title"))
    faults = [_fault(fault) for fault in body.get("invalid_parameters", ()) if fault.get("reason", "") not in detail]
    text = "\n".join([detail, *(f"  {fault}" for fault in faults)])
    return RequestRejected(answer.status_code, text, may_pass="retry-after" in answer.headers)


def _fault(fault: Mapping[str, Any]) -> str:
    location = f"{fault['file']}:{fault['line']}: " if fault.get("file") and fault.get("line") else ""
    field = f"{fault['field']}: " if fault.get("field") else ""
    hint = f"; {fault['hint']}" if fault.get("hint") else ""
    return f"{location}{field}{fault.get('reason', '')}{hint}"


def _reason(error: Exception) -> str:
    text = str(error)
    return text.partition("] ")[2].lower() if text.startswith("[Errno") else text or type(error).__name__


def _ascii(location: str) -> str:
    return location.encode("ascii", "backslashreplace").decode()
