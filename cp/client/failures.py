"""What keeps a client of the HTTP API from an answer, each as a `Problem` that says what to do."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from cp.client.http import HttpAnswer
from cp.client.problem import Problem
from cp.model.hosts import is_loopback

NOT_FOUND: Final = 404

_OF_THE_INSTANCE: Final = frozenset({502, 503, 504})
"""Answers of a control plane that starts, ends or has too much to do, or of what is in front of it."""

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

    def __init__(self, status_code: int, message: str, hint: str = "", *, retry_after: float | None = None) -> None:
        self.status_code = status_code
        self.retry_after = retry_after
        """The seconds after which the same request may succeed, according to the control plane; None: it may never."""

        super().__init__(message, hint)

    @property
    def may_pass(self) -> bool:
        return self.retry_after is not None


def unreachable(address: str, cause: BaseException, address_option: str) -> Unreachable:
    """`address_option` is how a command line names the control plane; empty: without an option."""
    hint = _where_to_find(address, address_option)
    return Unreachable(f"no control plane answers at {address} ({_reason(cause)})", hint)


def _where_to_find(address: str, option: str) -> str:
    """What to do if nothing listens at an address."""
    url = urlsplit(address)
    host = url.hostname or ""
    if not option:
        return "Is the address right, and does it run?"
    if url.scheme == "http" and not is_loopback(host):  # there Kuma's control plane answers in plain text
        in_url = f"[{host}]" if ":" in host else host
        return (
            f"Does it run, and is it at https://{in_url}:5682? In plain text it answers its own machine alone, unless "
            f"its settings say otherwise. {option} or KOGUMA_ADDRESS names another."
        )
    return f"Start one with `koguma run`, or say where it is with {option} or KOGUMA_ADDRESS."


def untrusted(address: str, fault: ssl.SSLError, authority_option: str) -> Untrusted:
    """`authority_option` is how a command line names the authority that signed the certificate."""
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


def rejected(answer: HttpAnswer, address: str) -> RequestRejected:
    """What an answer with an error says."""
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
    return RequestRejected(answer.status_code, text, retry_after=_retry_after(answer.headers.get("retry-after")))


def _retry_after(text: str | None) -> float | None:
    """Seconds. A date is a form of it too (RFC 9110, 10.2.3), which no control plane writes."""
    return None if text is None else float(text) if text.isdecimal() else 0.0


def _fault(fault: Mapping[str, Any]) -> str:
    location = f"{fault['file']}:{fault['line']}: " if fault.get("file") and fault.get("line") else ""
    field = f"{fault['field']}: " if fault.get("field") else ""
    hint = f"; {fault['hint']}" if fault.get("hint") else ""
    return f"{location}{field}{fault.get('reason', '')}{hint}"


def is_of_the_instance(problem: Problem) -> bool:
    """Whether another control plane may answer differently."""
    if isinstance(problem, RequestRejected):
        return problem.status_code in _OF_THE_INSTANCE
    return isinstance(problem, Unreachable | Untrusted)


def common_problem(problems: Sequence[Problem]) -> Problem:
    """What to say if no control plane has answered. It may pass, unless none of them can be trusted."""
    if len(problems) == 1:
        return problems[0]
    is_final = all(isinstance(problem, Untrusted) for problem in problems)
    telling = next((problem for problem in problems if is_final or not isinstance(problem, Untrusted)), problems[0])
    message = f"no control plane answers: {'; '.join(problem.message for problem in problems)}"
    return (Untrusted if is_final else Unreachable)(message, telling.hint)


def _reason(error: BaseException) -> str:
    text = str(error)
    return text.partition("] ")[2].lower() if text.startswith("[Errno") else text or type(error).__name__
