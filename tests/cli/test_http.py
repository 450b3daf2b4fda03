"""Requests of the command line and the agent, with the standard library."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn
from urllib.parse import urlsplit

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest  # type: ignore[import-untyped]

from cp.agent.otlp import send
from cp.client.client import Client
from cp.client.failures import NoControlPlane, Unreachable
from cp.client.http import HttpRequest, NotConnected, whole_answer
from cp.client.problem import Problem
from cp.model.pushing import MetricCollector
from tests.cli.conftest import Koguma

PATIENCE = 20.0


@contextmanager
def saying(answer: bytes, asked: list[bytes] | None = None) -> Iterator[str]:
    """A server that reads the first bytes of a request, says this, and closes the connection."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            text = connection.recv(1024)
            if asked is not None:
                asked.append(text)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(PATIENCE)


def test_names_and_parameters_are_quoted() -> None:
    asked = list[bytes]()
    with saying(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", asked) as address:
        Client(address).get("/meshes/é x", name=["a&b", "c"])

    assert asked[0].startswith(b"GET /meshes/%C3%A9%20x?name=a%26b&name=c HTTP/1.1\r\n")


def test_lines_are_read_as_they_come() -> None:
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (b'{"a"', b": 1}\n\n", b'{"b": 2}\n'))
    with saying(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n") as address:
        assert list(Client(address).lines("/_delivery", {}, 1)) == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize("answer", [b"hello\r\n", b"", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n{}"])
def test_what_is_no_whole_answer_in_http_is_told(answer: bytes) -> None:
    with saying(answer) as address, pytest.raises(Unreachable, match="does not speak HTTP"):
        Client(address).get("/")


def as_page(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body)


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"[]", b"{}", b"null"])
@pytest.mark.parametrize(
    "command",
    [
        ["history"],
        ["diff", "1"],
        ["diff", "1", "--proxies"],
        ["rollback", "1"],
        ["export"],
        ["get", "meshes"],
        ["get", "mesh", "default"],
        ["get", "dataplanes"],
        ["lint"],
        ["render", "web-1"],
        ["apply", "-f", "-"],
    ],
    ids=" ".join,
)
def test_a_web_server_is_told_from_a_control_plane(command: list[str], body: bytes) -> None:
    with saying(as_page(body)) as address:
        ended = Koguma(address)(*command, stdin="type: Mesh\nname: default\n")

    assert (ended.status, "does not answer as a control plane does" in ended.err) == (1, True), ended.err


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"[]\n"])
def test_what_a_web_server_says_to_an_agent_is_told(body: bytes) -> None:
    asked: tuple[Callable[[Client], object], ...] = (
        lambda client: client.put("/meshes/default", ""),
        lambda client: list(client.lines("/_delivery", {}, 1)),
    )
    for question in asked:
        with saying(as_page(body)) as address, pytest.raises(NoControlPlane):
            question(Client(address))


@pytest.mark.parametrize("body", [b'{"status": 404, "error": "Not Found"}', b'"no"', b"", b"<html>"])
def test_a_refusal_of_another_server_is_told_as_one(body: bytes) -> None:
    with saying(as_page(body, b"404 Not Found")) as address:
        ended = Koguma(address)("history")

    assert (ended.status, "answers 404, and not as a control plane does" in ended.err) == (1, True), ended.err


def test_a_revision_that_is_no_number_is_none() -> None:
    with saying(b"HTTP/1.1 200 OK\r\nkoguma-revision: x\r\ncontent-length: 2\r\n\r\n{}") as address:
        assert Client(address).put("/meshes/default", "").revision is None


@pytest.mark.parametrize("status", [b"307 Temporary Redirect", b"302 Found", b"404 Not Found"])
def test_metrics_that_a_collector_does_not_take_are_told(status: bytes) -> None:
    with saying(as_page(b"", status)) as address:
        url = urlsplit(address)
        collector = MetricCollector(url.hostname or "", url.port or 0, 1.0, is_http=True)
        assert status[:3].decode() in send(collector, ExportMetricsServiceRequest())


def test_a_server_that_says_nothing_is_not_waited_for_forever() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Unreachable, match="takes too long to answer"):
            Client(address, timeout=0.05).get("/")


@pytest.mark.parametrize("address", ["cp:5681", "http://", "http://cp:http", "http://cp:0", "http://[::1"])
def test_what_is_no_address_is_told(address: str) -> None:
    with pytest.raises(Problem, match="is no address of a control plane"):
        Client(address)


def test_a_name_that_nobody_has_is_nobody_to_connect_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> NoReturn:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(NotConnected):
        whole_answer(HttpRequest("GET", "http://no.such.host.invalid:1/", 1.0))


def test_what_is_no_name_is_nobody_to_connect_to() -> None:
    with pytest.raises(NotConnected):
        whole_answer(HttpRequest("GET", f"http://{'a' * 70}.example:1/", 1.0))


def test_of_several_addresses_of_a_name_the_first_is_taken_that_can_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    with saying(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}") as address:
        port = int(address.rpartition(":")[2])
        resolved = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in ("127.255.255.254", "127.0.0.1")
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: resolved)

        assert Client(f"http://control-planes.example:{port}").get("/") == {}
