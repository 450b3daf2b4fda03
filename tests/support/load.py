"""Steady calls over every protocol at once, of which none may be lost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

import grpc

from tests.support.client import Conversation, Traffic
from tests.support.grpc_service import NAME
from tests.support.loopback import Address
from tests.support.waiting import eventually

_PAUSE: Final = 0.04
_MOST: Final = 5_000
_MORE: Final = 5


class Calls:
    """Calls from a thread, one after the other; who answered each, or what went wrong."""

    def __init__(self, call: Callable[[], str], pause: float = _PAUSE) -> None:
        self._call, self._pause = call, pause
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.answers: Counter[str] = Counter()
        self.failures: list[str] = []

    def _run(self) -> None:
        for _ in range(_MOST):
            try:
                self.answers[self._call()] += 1
            except Exception as error:  # noqa: BLE001  # whatever it is, the call was lost
                self.failures.append(f"{type(error).__name__}: {error}")
            if self._stopping.wait(self._pause):
                return

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(10)


class Load:
    """HTTP/1 on a connection that is kept, HTTP/2 and gRPC on one, TCP on a new connection for each call."""

    def __init__(self, http: Address, http2: Address, grpc_: Address, tcp: Address) -> None:
        self._stack = ExitStack()
        self._traffic = Traffic(http, per_second=1 / _PAUSE)
        self._calls = {
            "http2": Calls(self._over_grpc(http2)),
            "grpc": Calls(self._over_grpc(grpc_)),
            "tcp": Calls(lambda: _greeted(tcp)),
        }

    def _over_grpc(self, address: Address) -> Callable[[], str]:
        channel = self._stack.enter_context(grpc.insecure_channel(str(address), [("grpc.enable_retries", 0)]))
        name: Callable[..., bytes] = channel.unary_unary(NAME)
        return lambda: name(b"", timeout=5).decode()

    @property
    def counts(self) -> dict[str, int]:
        counts = {name: sum(calls.answers.values()) + len(calls.failures) for name, calls in self._calls.items()}
        return {"http": len(self._traffic.outcomes), **counts}

    @property
    def failures(self) -> dict[str, list[str]]:
        by_name = {name: calls.failures for name, calls in self._calls.items()}
        by_name["http"] = [f"{outcome.status} {outcome.error}" for outcome in self._traffic.failures]
        return {name: failures for name, failures in by_name.items() if failures}

    def answers(self, protocol: str) -> Counter[str]:
        return self._calls[protocol].answers

    def goes_on(self) -> None:
        """Until some more calls of each kind have ended."""
        before = self.counts
        eventually(lambda: all(count >= before[name] + _MORE for name, count in self.counts.items()), within=20)

    def __enter__(self) -> Self:
        self._stack.enter_context(self._traffic)
        for calls in self._calls.values():
            self._stack.enter_context(calls)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def _greeted(address: Address) -> str:
    """The name with which a TCP service greets, once it has echoed a line too."""
    with Conversation(address) as conversation:
        name = conversation.hear()
        conversation.say("echo\n")
        heard = conversation.hear()
    if not name or not heard:
        raise ConnectionError(f"closed after {name!r}, {heard!r}")
    return name
