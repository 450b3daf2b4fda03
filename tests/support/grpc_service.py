"""A gRPC service that does as it is told, counts, and says how it is doing."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self

import grpc

from tests.support.loopback import Address, new_address

NAME: Final = "/koguma.test.Names/Name"
HEALTH: Final = "/grpc.health.v1.Health/Check"
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
"""A HealthCheckResponse, as the health checking protocol of gRPC has it on the wire."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How a method is answered: after how long, and how many times with a failure before it succeeds."""

    delay: float = 0.0
    failures: int = 0
    failure: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE


class GrpcService:
    """Answers calls of `NAME`, and of methods it was told of, with its name, and health checks with what it is told."""

    def __init__(self, name: str, tls: grpc.ServerCredentials | None = None) -> None:
        self.name = name
        self.address = new_address()
        self.health = SERVING
        self._behaviours = {NAME: Behaviour()}
        self._hits: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers((_Handler(self),))
        if tls is None:
            self._server.add_insecure_port(str(self.address))
        else:
            self._server.add_secure_port(str(self.address), tls)
        self._server.start()

    def on(
        self,
        method: str,
        *,
        delay: float = 0.0,
        failures: int = 0,
        failure: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE,
    ) -> None:
        """What to do with calls of a method from now on."""
        with self._lock:
            self._behaviours[method] = Behaviour(delay, failures, failure)
            self._hits[method] = 0

    def hits(self, method: str) -> int:
        """How many calls of a method came here since it was last told what to do with them."""
        with self._lock:
            return self._hits[method]

    def knows(self, method: str) -> bool:
        return method == HEALTH or method in self._behaviours

    def answer(self, method: str, context: grpc.ServicerContext) -> bytes:
        if method == HEALTH:
            return self.health
        with self._lock:
            self._hits[method] += 1
            behaviour = self._behaviours[method]
            if behaviour.failures:
                self._behaviours[method] = replace(behaviour, failures=behaviour.failures - 1)
        self._closing.wait(behaviour.delay)
        if behaviour.failures:
            context.abort(behaviour.failure, f"{self.name} was told to fail")
        return self.name.encode()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.stop(0).wait(5)


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, service: GrpcService) -> None:
        self._service = service

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        method = handler_call_details.method
        if not self._service.knows(method):
            return None

        def answer(_request: bytes, context: grpc.ServicerContext) -> bytes:
            return self._service.answer(method, context)

        return grpc.unary_unary_rpc_method_handler(answer)


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back for one call, and after how long."""

    code: grpc.StatusCode
    seconds: float
    name: str = ""


def answering_names(address: Address, times: int) -> list[str]:
    """Who answers so many calls, one after the other; the status of those that fail."""
    with grpc.insecure_channel(str(address)) as channel:
        replies = [_reply(channel, NAME) for _ in range(times)]
    return [reply.name or str(reply.code) for reply in replies]


def reply(address: Address, method: str = NAME) -> Reply:
    """Call a method once, on a connection of its own. The caller itself tries nothing again."""
    with grpc.insecure_channel(str(address), [("grpc.enable_retries", 0)]) as channel:
        return _reply(channel, method)


def _reply(channel: grpc.Channel, method: str) -> Reply:
    called: Callable[..., bytes] = channel.unary_unary(method)
    begun = time.monotonic()
    try:
        name = called(b"", timeout=5)
    except grpc.RpcError as error:
        return Reply(error.code(), time.monotonic() - begun)
    return Reply(grpc.StatusCode.OK, time.monotonic() - begun, name.decode())
