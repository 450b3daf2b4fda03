"""Of several control planes on one store the first is asked that can be reached."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from cp.agent.joining import MeshJoin, bootstrap
from cp.agent.membership import Membership
from cp.agent.retrying import RetryTime
from cp.cli.connection import warn_of_plain_text
from cp.cli.dp import _in_any_order
from cp.client.api_calls import addresses_in
from cp.client.client import Client
from cp.client.credentials import Credentials, authority_in
from cp.client.failures import NoAnswer, RequestRejected, Unreachable, Untrusted
from cp.client.problem import Problem
from tests.cli.test_credentials import answering as answering_over_tls
from tests.support.loopback import new_address

PATIENCE: Final = 20.0
SILENT: Final = 0
"""In place of a status: the connection is closed without an answer."""


class Instance:
    """A control plane that gives one answer after the other, the last again and again, and what it was asked."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.asked: list[tuple[str, str]] = []
        self.bodies: list[bytes] = []
        self.address = ""

    def status(self) -> int:
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]


@contextmanager
def running(*statuses: int) -> Iterator[Instance]:
    instance = Instance(*statuses)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            instance.asked.append((self.command, self.path))
            instance.bodies.append(self.rfile.read(int(self.headers.get("content-length", "0"))))
            if (status := instance.status()) == SILENT:
                return
            body = json.dumps({"status": status, "title": "no", "resources": [], "revisions": []}).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.do_GET()

        def do_DELETE(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Nobody reads it."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        instance.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield instance
        finally:
            server.shutdown()
            thread.join(PATIENCE)


def nobody() -> str:
    """An address on which nobody listens."""
    return new_address().url


def several(*addresses: str) -> Client:
    return Client(", ".join(addresses), timeout=PATIENCE)


def test_the_next_one_is_asked_when_one_is_gone_and_further_questions_stay_there() -> None:
    with running(200) as first, running(200) as second:
        client = several(nobody(), first.address, second.address)
        client.get("/a")
        client.get("/b")

    assert first.asked == [("GET", "/a"), ("GET", "/b")]
    assert second.asked == []


@pytest.mark.parametrize("answer", [503, 502, SILENT])
def test_the_next_one_is_asked_when_one_cannot_serve_now(answer: int) -> None:
    with running(answer) as first, running(200) as second:
        several(first.address, second.address).readiness("/proxy", "owner", ready=True)

    assert first.asked == second.asked == [("POST", "/proxy/_readiness")]


@pytest.mark.parametrize("status", [400, 401, 404, 412])
def test_an_answer_that_all_would_give_is_final(status: int) -> None:
    with running(status) as first, running(200) as second, pytest.raises(RequestRejected):
        several(first.address, second.address).get("/")

    assert second.asked == []


@pytest.mark.parametrize("status", [301, 307])
def test_who_sends_elsewhere_has_done_nothing(status: int) -> None:
    """As something in front of a control plane does that wants TLS."""
    with running(status) as there:
        client = several(there.address)
        for attempt in (lambda: client.delete("/meshes/default"), lambda: client.post("/bootstrap", {})):
            with pytest.raises(RequestRejected):
                attempt()


def test_a_write_of_an_operator_goes_to_the_next_one_if_nobody_was_asked() -> None:
    with running(200) as there:
        several(nobody(), there.address).apply([("type: Mesh", "")])

    assert there.asked == [("POST", "/_apply")]


@pytest.mark.parametrize(("answer", "problem"), [(503, RequestRejected), (SILENT, NoAnswer)])
def test_a_write_of_an_operator_that_may_have_been_made_is_not_repeated(answer: int, problem: type[Problem]) -> None:
    with running(answer) as first, running(200) as second:
        client = several(first.address, second.address)
        with pytest.raises(problem):
            client.apply([("type: Mesh", "")])
        asked = list(second.asked)
        with pytest.raises(problem):
            several(first.address, second.address).rollback(1, {})
        asked += second.asked
        client.delete("/meshes/default")

    assert asked == []
    assert second.asked == [("DELETE", "/meshes/default")]


def test_an_answer_line_by_line_comes_from_the_next_one() -> None:
    with running(503) as first, running(200) as second:
        lines = list(several(nobody(), first.address, second.address).lines("/_delivery", {}, 1))

    assert [line["status"] for line in lines] == [200]


def test_if_nobody_answers_each_is_told() -> None:
    first, second = nobody(), nobody()
    with pytest.raises(Unreachable) as caught:
        several(first, second).get("/")

    assert caught.value.message.startswith("no control plane answers: ")
    assert caught.value.message.count("connection refused") == 2
    assert all(address in caught.value.message for address in (first, second))


def test_who_cannot_be_trusted_is_passed_over_and_is_final_if_there_is_nobody_else(tmp_path: Path) -> None:
    def client(*addresses: str) -> Client:
        return Client(",".join(addresses), credentials=Credentials(authority=authority_in(tmp_path / "ca.crt")))

    (stranger := tmp_path / "stranger").mkdir()
    with (
        answering_over_tls(tmp_path, "127.0.0.1") as (ours, _),
        answering_over_tls(stranger, "127.0.0.1") as (foreign, _),
    ):
        assert client(foreign, ours).get("/") == {}
        with pytest.raises(Untrusted, match=r"no control plane answers: .* is not trusted"):
            client(foreign, foreign.replace("127.0.0.1", "localhost")).get("/")
        with pytest.raises(Unreachable):
            client(foreign, nobody()).get("/")


def test_whoever_makes_the_bootstrap_of_a_proxy_is_told_of_all() -> None:
    with running(503) as first, running(200) as second:
        client = several(first.address.replace("127.0.0.1", "localhost"), second.address, first.address)
        bootstrap(client, MeshJoin("default", "web", ""), RetryTime(PATIENCE, lambda _: None))
        alone = several(second.address)
        bootstrap(alone, MeshJoin("default", "web", ""), RetryTime(PATIENCE, lambda _: None))
        for_all, for_one = map(json.loads, second.bodies)

    assert for_all["controlPlanes"] == ["localhost", "127.0.0.1"]
    assert "controlPlanes" not in for_one


def test_bootstrap_request_names_features_of_the_agent() -> None:
    with running(200) as there:
        bootstrap(several(there.address), MeshJoin("default", "web", ""), RetryTime(PATIENCE, lambda _: None))

    assert json.loads(there.bodies[0])["features"] == ["feature-delta-grpc"]


def test_a_proxy_that_ends_takes_leave_of_the_next_one() -> None:
    with running(200) as there:
        join = MeshJoin("default", "web", "", resource="type: Dataplane")
        membership = Membership(f"{nobody()},{there.address}", join, lambda _: None)
        with suppress(KeyError):  # there is nobody here to say who has accepted it
            membership.announce(1.0)
        membership.conclude()

    paths = [path for _, path in there.asked]
    assert paths == ["/meshes/default/dataplanes/web/_readiness", "/_delivery", "/meshes/default/dataplanes/web"]


def test_proxies_begin_with_any_of_them() -> None:
    addresses = [f"http://cp-{number}:5681" for number in range(8)]
    orders = {_in_any_order(",".join(addresses)) for _ in range(20)}

    assert {frozenset(addresses_in(order)) for order in orders} == {frozenset(addresses)}
    assert len(orders) > 1


@pytest.mark.parametrize("text", ["", ",", "http://a:1,", "http://a:1,b:2", "http://a:1 http://b:2,x"])
def test_each_has_to_be_an_address(text: str) -> None:
    with pytest.raises(Problem, match="is no address of a control plane"):
        Client(text)


def test_each_that_would_get_a_token_in_plain_text_is_told() -> None:
    warnings = list[str]()
    addresses = "http://cp-1:5681,https://cp-2:5682, http://cp-3:5681,http://127.0.0.1:5681"
    warn_of_plain_text(addresses, Credentials(token="t"), warnings.append)

    assert [warning.split()[6] for warning in warnings] == ["http://cp-1:5681", "http://cp-3:5681"]
