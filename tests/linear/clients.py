"""Clients that write and read the same few documents through several control planes, and note what they are told."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import Any, Final

from tests.linear.history import ABSENT, GONE, NEVER, NO_VALUE, Operation, Outcome, Sighting
from tests.support.loopback import Address

NAMES: Final = ("a", "b", "c")
KIND: Final = "MeshTimeout"
_PATH: Final = "/meshes/default/meshtimeouts"

_PATIENCE: Final = 30.0
_PAUSE: Final = 0.002
_UNCERTAIN: Final = "before you repeat it"
"""What is said of a write of which the control plane does not know whether it was made."""

_ACTUAL: Final = re.compile(r"(is at revision (?P<revision>\d+)|does not exist), not at")
_OK: Final = (200, 201)
_MISSING, _CONFLICT, _UNAVAILABLE, _BUSY = 404, 412, 503, 429


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def tag(self) -> int:
        return int(self.headers["etag"].strip('"'))


class Client:
    """One operation after the other, each at one of several control planes."""

    def __init__(self, name: str, addresses: Sequence[Address], values: Iterator[int], chance: Random) -> None:
        self._name, self._addresses, self._chance, self._values = name, addresses, chance, values
        self._known: dict[str, int] = {}  # the revision that it saw last
        self.history: list[Operation] = []
        self.odd: list[str] = []
        """Answers that no client should ever get."""

    def run(self, ending: threading.Event) -> None:
        actions = [self._read, self._list, self._put, self._replace, self._create, self._apply, self._delete]
        while not ending.is_set():
            operation = self._chance.choice(actions)()
            self.history.append(operation)
            if operation.outcome is not Outcome.DONE:
                ending.wait(_PAUSE)  # else a database that is away is all that there is in a history

    def _read(self) -> Operation:
        name = self._chance.choice(NAMES)
        return self._asked("GET", name, Operation(self._name, 0, 0, Outcome.DONE, saw={name: Sighting()}))

    def _list(self) -> Operation:
        return self._asked("GET", "", Operation(self._name, 0, 0, Outcome.DONE, saw=dict.fromkeys(NAMES, Sighting())))

    def _put(self) -> Operation:
        return self._written(self._chance.choice(NAMES), None)

    def _replace(self) -> Operation:
        name = self._chance.choice(NAMES)
        return self._written(name, self._known.get(name, ABSENT))

    def _create(self) -> Operation:
        return self._written(self._chance.choice(NAMES), ABSENT)

    def _apply(self) -> Operation:
        value = str(next(self._values))
        writes = dict.fromkeys(self._chance.sample(NAMES, 2), value)
        return self._asked("POST", "", Operation(self._name, 0, 0, Outcome.DONE, writes))

    def _delete(self) -> Operation:
        name = self._chance.choice(NAMES)
        return self._asked("DELETE", name, Operation(self._name, 0, 0, Outcome.DONE, {name: NO_VALUE}))

    def _written(self, name: str, based_on: int | None) -> Operation:
        writes = {name: str(next(self._values))}
        return self._asked("PUT", name, Operation(self._name, 0, 0, Outcome.DONE, writes, based_on=based_on))

    def _asked(self, method: str, name: str, operation: Operation) -> Operation:
        """The operation with how it went."""
        connection = http.client.HTTPConnection(*self._chance.choice(self._addresses), timeout=_PATIENCE)
        operation = replace(operation, began=time.monotonic())
        try:
            connection.connect()
        except OSError:
            return self._ended(operation, Outcome.REFUSED)  # nobody heard of it
        try:
            answer = _answer(connection, method, name, operation)
        except (OSError, http.client.HTTPException):
            return self._ended(operation, Outcome.UNCERTAIN)
        finally:
            connection.close()
        return self._told(self._ended(operation, Outcome.DONE), name, answer)

    def _ended(self, operation: Operation, outcome: Outcome) -> Operation:
        ended = NEVER if outcome is Outcome.UNCERTAIN else time.monotonic()
        saw = operation.saw if outcome is Outcome.DONE else {}
        return replace(operation, ended=ended, outcome=outcome, saw=saw)

    def _told(self, operation: Operation, name: str, answer: Answer) -> Operation:
        if answer.status in _OK:
            return self._written_at(operation, answer) if operation.writes else self._shown(operation, name, answer)
        if answer.status == _MISSING:
            return replace(operation, outcome=Outcome.REFUSED, saw={name: GONE})
        if answer.status == _CONFLICT and (actual := _ACTUAL.search(answer.body["detail"])):
            revision = int(actual["revision"] or ABSENT)
            return replace(operation, outcome=Outcome.REFUSED, saw={name: Sighting(revision=revision)})
        return self._failed(operation, answer)

    def _failed(self, operation: Operation, answer: Answer) -> Operation:
        detail = answer.body.get("detail", "")
        if answer.status not in {_UNAVAILABLE, _BUSY}:
            self.odd.append(f"{answer.status} {detail}: {operation}")
        is_uncertain = _UNCERTAIN in detail or answer.status not in {_UNAVAILABLE, _BUSY}
        return self._ended(operation, Outcome.UNCERTAIN if is_uncertain else Outcome.REFUSED)

    def _written_at(self, operation: Operation, answer: Answer) -> Operation:
        revision = int(answer.headers["koguma-revision"])
        self._known |= {name: revision for name, value in operation.writes.items() if value != NO_VALUE}
        return replace(operation, revision=revision)

    def _shown(self, operation: Operation, name: str, answer: Answer) -> Operation:
        if name:
            self._known[name] = answer.tag
            return replace(operation, saw={name: Sighting(value_of(answer.body), answer.tag)})
        values = {item["name"]: Sighting(value_of(item)) for item in answer.body["items"]}
        return replace(operation, saw={name: values.get(name, GONE) for name in NAMES})


def _answer(connection: http.client.HTTPConnection, method: str, name: str, operation: Operation) -> Answer:
    path, body = _request(method, name, operation)
    connection.request(method, path, body, {"content-type": "application/json", **_precondition(operation)})
    response = connection.getresponse()
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, json.loads(response.read()))


def _request(method: str, name: str, operation: Operation) -> tuple[str, str | None]:
    if method == "POST":
        texts = [{"text": json.dumps(_document(*write))} for write in operation.writes.items()]
        return "/_apply", json.dumps({"resources": texts})
    path = f"{_PATH}/{name}" if name else _PATH
    return path, json.dumps(_document(name, operation.writes[name])) if method == "PUT" else None


def _precondition(operation: Operation) -> dict[str, str]:
    if operation.based_on is None:
        return {}
    return {"if-none-match": "*"} if operation.based_on == ABSENT else {"if-match": f'"{operation.based_on}"'}


def _document(name: str, value: str) -> dict[str, Any]:
    spec = {"to": [{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": f"{value}ms"}}]}
    return {"type": KIND, "mesh": "default", "name": name, "spec": spec}


def value_of(document: Mapping[str, Any]) -> str:
    timeout: str = document["spec"]["to"][0]["default"]["connectionTimeout"]
    return timeout.removesuffix("ms")


class Clients:
    """Several of them, in threads of their own."""

    def __init__(self, addresses: Sequence[Address], number: int, chance: Random) -> None:
        values = count(1)
        self._clients = [Client(f"client-{n}", addresses, values, Random(chance.random())) for n in range(number)]

    @contextmanager
    def busy(self) -> Iterator[None]:
        """They ask until the block ends."""
        ending = threading.Event()
        threads = [threading.Thread(target=client.run, args=(ending,), daemon=True) for client in self._clients]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ending.set()
            for thread in threads:
                thread.join(2 * _PATIENCE)

    @property
    def history(self) -> list[Operation]:
        return [operation for client in self._clients for operation in client.history]

    @property
    def odd(self) -> list[str]:
        return [answer for client in self._clients for answer in client.odd]

    @property
    def counts(self) -> Counter[str]:
        """What there was, for whoever asks whether it was anything at all."""
        return Counter(f"{'write' if op.writes else 'read'} {op.outcome.value}" for op in self.history)
