"""Answers questions about the Envoy beside the agent, from its admin interface, without keys and tokens.

An answer is compressed while it is read, line by line, so that a long one takes little memory here.

See record 0085.
"""

from __future__ import annotations

import gzip
import http.client
import io
import json
import time
from collections.abc import Iterable, Iterator
from http.client import HTTPResponse
from typing import Final
from urllib.parse import urlencode

from cp.agent.admin import EnvoyAdmin
from cp.agent.log_level import LogLevel
from cp.model.envoy_questions import (
    DUMPED_TYPES,
    LARGEST_ANSWER,
    LARGEST_SENT,
    LEVELS,
    LONGEST_FILTER,
    LONGEST_LEVEL,
    WARMING_TYPES,
    AgentFault,
    EnvoyQuestion,
    EnvoySubject,
)
from cp.model.envoy_secrets import redacted_lines

_LINE: Final = 64 * 1024
"""Bytes of a line. A longer one is looked through in pieces."""

_LESS: Final = "ask for less, with a filter or for one type"
_LEVEL: Final = 6
_SHOWN: Final = 200


def answer_to(admin: EnvoyAdmin, log_level: LogLevel, question: EnvoyQuestion, within: float) -> bytes:
    """The answer as it is sent: compressed JSON. Raises `AgentFault`."""
    deadline = time.monotonic() + within
    if question.subject is EnvoySubject.LOG_LEVEL:
        return _compressed([_log_level(log_level, question)], deadline)
    try:
        with admin.opened(_path(question), within) as answer:
            if answer.status != http.client.OK:
                raise AgentFault(f"Envoy answers {answer.status}: {_beginning(answer)}")
            lines = redacted_lines(_lines(answer, deadline))
            return _compressed(_as_json_string(lines) if question.as_text else lines, deadline)
    except (OSError, http.client.HTTPException) as error:
        raise AgentFault(f"Envoy's admin interface does not answer: {str(error) or type(error).__name__}") from None


def fault(reason: str) -> bytes:
    """What is sent in the place of an answer."""
    return gzip.compress(json.dumps({"fault": reason}).encode())


def _log_level(log_level: LogLevel, question: EnvoyQuestion) -> str:
    if question.level:
        if question.level not in LEVELS:
            raise AgentFault(f"there is no level {question.level[:_SHOWN]}")
        log_level.change(question.level, max(0.0, min(question.seconds, LONGEST_LEVEL)))
    return json.dumps(log_level.as_data())


def _path(question: EnvoyQuestion) -> str:
    if len(question.filter) > LONGEST_FILTER:
        raise AgentFault(f"the filter has more than {LONGEST_FILTER} characters")
    form = {} if question.as_text else {"format": "json"}
    match question.subject:
        case EnvoySubject.CLUSTERS:
            return _url("/clusters", form)
        case EnvoySubject.STATS:
            return _url("/stats", form | _given(filter=question.filter), "usedonly")
        case EnvoySubject.CONFIG_DUMP:
            resource = (DUMPED_TYPES | WARMING_TYPES).get(question.type, "")
            return _url("/config_dump", _given(resource=resource, name_regex=question.filter), "include_eds")
        case EnvoySubject.LISTENERS:
            return _url("/listeners", form)
        case _:
            return f"/{question.subject.value}"


def _given(**parameters: str) -> dict[str, str]:
    return {name: value for name, value in parameters.items() if value}


def _url(path: str, parameters: dict[str, str], *flags: str) -> str:
    query = "&".join(filter(None, (*flags, urlencode(parameters))))
    return f"{path}?{query}" if query else path


def _lines(answer: HTTPResponse, deadline: float) -> Iterator[str]:
    size = 0
    while line := answer.readline(_LINE):
        size += len(line)
        if size > LARGEST_ANSWER:
            raise AgentFault(f"Envoy's answer has more than {LARGEST_ANSWER >> 20} MiB; {_LESS}")
        if time.monotonic() > deadline:
            raise AgentFault(f"Envoy's answer takes too long; {_LESS}")
        yield line.decode(errors="replace")


def _as_json_string(lines: Iterable[str]) -> Iterator[str]:
    yield '"'
    for line in lines:
        yield json.dumps(line)[1:-1]
    yield '"'


def _compressed(pieces: Iterable[str], deadline: float) -> bytes:
    """An object with the answer in it."""
    content = io.BytesIO()
    with gzip.GzipFile(fileobj=content, mode="wb", compresslevel=_LEVEL, mtime=0) as file:
        file.write(b'{"answer":')
        for piece in pieces:
            file.write(piece.encode())
            if content.tell() > LARGEST_SENT or time.monotonic() > deadline:
                raise AgentFault(f"Envoy's answer is too long to be sent; {_LESS}")
        file.write(b"}")
    return content.getvalue()


def _beginning(answer: HTTPResponse) -> str:
    return answer.read(_SHOWN).decode(errors="replace").strip()
