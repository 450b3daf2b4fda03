"""A gRPC service that says who it is, and how it is doing."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, Self

import grpc

from tests.support.loopback import Address, new_address

NAME: Final = "/koguma.test.Names/Name"
HEALTH: Final = "/grpc.health.v1.Health/Check"
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
"""A HealthCheckResponse, as the health checking protocol of gRPC has it on the wire."""


class GrpcService:
    """Answers every call of `NAME` with its name, and health checks with what the test wants."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.address = new_address()
        self.health = SERVING
        self.delay = 0.0
        """How long it takes to say its name."""

        self._closing = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers((_Handler(self),))
        self._server.add_insecure_port(str(self.address))
        self._server.start()

    def wait(self) -> None:
        self._closing.wait(self.delay)

    def answer(self, method: str) -> bytes | None:
        return {NAME: self.name.encode(), HEALTH: self.health}.get(method)

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
        if self._service.answer(method) is None:
            return None

        def answer(_request: bytes, _context: grpc.ServicerContext) -> bytes | None:
            if method == NAME:
                self._service.wait()
            return self._service.answer(method)

        return grpc.unary_unary_rpc_method_handler(answer)


def who(address: Address, times: int) -> list[str]:
    """Who answers so many calls, one after the other; the status of those that fail."""
    with grpc.insecure_channel(str(address)) as channel:
        name: Callable[..., bytes] = channel.unary_unary(NAME)
        return [_named(name) for _ in range(times)]


def _named(name: Callable[..., bytes]) -> str:
    try:
        return name(b"", timeout=5).decode()
    except grpc.RpcError as error:
        return str(error.code())
