"""Edits of a gateway under steady traffic of its clients: none of their requests is lost, and few connections end."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.support.client import Traffic, call
from tests.support.edge import Edge, all_to, certified, get, is_closed, shown, steady
from tests.support.envoy import Envoy
from tests.support.load import Calls
from tests.support.loopback import Address
from tests.support.mesh import Document, listener, mesh_gateway, mesh_service, secret
from tests.support.playground import Playground
from tests.support.waiting import eventually

pytestmark = pytest.mark.envoy

NAMES = ("one.example.com", "two.example.com", "*.example.org")
WILD = "any.example.org"


@pytest.fixture(scope="module")
def edge(empty_mesh: Playground) -> Edge:
    empty_mesh.control_plane.apply(mesh_service("web"), all_to("web"))
    empty_mesh.service("web")
    proxy = empty_mesh.gateway("edge")
    empty_mesh.ready()
    return Edge(empty_mesh, proxy)


@pytest.fixture(scope="module")
def listeners(edge: Edge) -> list[Document]:
    """Those of the port for HTTPS, and of one without TLS."""
    edge.serves(*(secret(_secret(name), certified(name)) for name in (*NAMES, "new.example.com")))
    https = [listener(edge.address("https").port, "HTTPS", name, _secret(name)) for name in NAMES]
    return [*https, *(listener(edge.address("http").port, "HTTP", name) for name in NAMES)]


def _secret(name: str) -> str:
    return f"of-{name.replace('*', 'any').replace('.', '-')}"


class Clients:
    """They ask for every hostname, each on a connection that it keeps and on new ones."""

    def __init__(self, edge: Edge, stack: ExitStack) -> None:
        https, http = edge.address("https"), edge.address("http")
        names = (*NAMES[:2], WILD)
        self.kept = {name: stack.enter_context(steady(https, name)) for name in names}
        self.plain = {name: stack.enter_context(steady(http, name, over_tls=False)) for name in names}
        self.new = {name: stack.enter_context(Calls(_called(https, name))) for name in names}

    @property
    def _all(self) -> list[Traffic]:
        return [*self.kept.values(), *self.plain.values()]

    def go_on(self) -> None:
        sent = [len(traffic.outcomes) for traffic in self._all]
        asked = {name: calls.answers["web"] for name, calls in self.new.items()}
        eventually(lambda: all(len(t.outcomes) > count + 10 for t, count in zip(self._all, sent, strict=True)), 20)
        eventually(lambda: all(c.answers["web"] > asked[n] + 2 or c.failures for n, c in self.new.items()), 20)

    def lost(self, *without: str) -> list[object]:
        """Requests for all hostnames but these."""
        kept = [failure for name in self.kept for failure in self.kept[name].failures if name not in without]
        plain = [failure for name in self.plain for failure in self.plain[name].failures if name not in without]
        new = [calls for name, calls in self.new.items() if name not in without]
        others = [calls.answers.keys() - {"web"} for calls in new if calls.answers.keys() - {"web"}]
        return [*kept, *plain, *(failure for calls in new for failure in calls.failures), *others]

    def connections(self, *without: str) -> set[int]:
        """How many those needed who keep theirs."""
        return {
            traffic.connections
            for of_port in (self.kept, self.plain)
            for name, traffic in of_port.items()
            if name not in without
        }


def _called(address: Address, name: str) -> Callable[[], str]:
    return lambda: get(address, name).service


@pytest.fixture
def clients(edge: Edge, listeners: list[Document]) -> Iterator[Clients]:
    edge.serves(mesh_gateway("edge", *listeners))
    eventually(lambda: get(edge.address("https"), WILD).service == "web")
    eventually(lambda: call(edge.address("http"), headers={"Host": WILD}).service == "web")
    with ExitStack() as stack:
        clients = Clients(edge, stack)
        clients.go_on()
        yield clients


def edits(envoy: Envoy) -> dict[str, int]:
    """What became of listeners so far."""
    counters = ("added", "modified", "in_place_updated", "removed")
    return {name: envoy.stat(f"listener_manager.listener_{name}") for name in counters}


def done(envoy: Envoy, before: dict[str, int]) -> dict[str, int]:
    return {name: count - before[name] for name, count in edits(envoy).items() if count != before[name]}


def test_a_certificate_that_is_swapped_ends_no_connection(edge: Edge, clients: Clients) -> None:
    address, before = edge.address("https"), edits(edge.envoy)
    numbers = {shown(address, NAMES[0]).serial_number}

    for count in range(2, 6):
        edge.serves(secret(_secret(NAMES[0]), certified(NAMES[0])))
        eventually(lambda: shown(address, NAMES[0]).serial_number not in numbers)
        numbers.add(shown(address, NAMES[0]).serial_number)
        assert len(numbers) == count
        clients.go_on()

    assert clients.lost() == []
    assert clients.connections() == {1}
    assert done(edge.envoy, before) == {}


def test_a_listener_that_is_added_disturbs_nobody(edge: Edge, clients: Clients, listeners: list[Document]) -> None:
    before, name = edits(edge.envoy), "new.example.com"
    https = listener(edge.address("https").port, "HTTPS", name, _secret(name))
    http = listener(edge.address("http").port, "HTTP", name)

    edge.serves(mesh_gateway("edge", https, http, *listeners))

    eventually(lambda: get(edge.address("https"), name).service == "web")
    eventually(lambda: call(edge.address("http"), headers={"Host": name}).service == "web")
    clients.go_on()
    assert clients.lost() == []
    assert clients.connections() == {1}
    assert done(edge.envoy, before) == {"modified": 1, "in_place_updated": 1}


def test_a_listener_that_is_removed_costs_its_own_clients_alone(
    edge: Edge, clients: Clients, listeners: list[Document]
) -> None:
    before, gone = edits(edge.envoy), NAMES[0]

    edge.serves(mesh_gateway("edge", *(each for each in listeners if each["hostname"] != gone)))

    eventually(lambda: is_closed(edge.address("https"), gone))
    eventually(lambda: call(edge.address("http"), headers={"Host": gone}).status == 404)
    clients.go_on()
    assert clients.lost(gone) == []
    assert clients.connections(gone) == {1}
    assert done(edge.envoy, before) == {"modified": 1, "in_place_updated": 1}


def test_a_port_that_comes_and_goes_disturbs_nobody(edge: Edge, clients: Clients, listeners: list[Document]) -> None:
    before, another = edits(edge.envoy), edge.address("another")

    edge.serves(mesh_gateway("edge", listener(another.port), *listeners))
    eventually(lambda: call(another).service == "web")
    clients.go_on()
    edge.serves(mesh_gateway("edge", *listeners))
    eventually(lambda: edits(edge.envoy)["removed"] > before["removed"])
    clients.go_on()

    assert clients.lost() == []
    assert clients.connections() == {1}
    assert done(edge.envoy, before) == {"added": 1, "removed": 1}


def test_a_limit_is_changed_without_a_word_to_the_listener(
    edge: Edge, clients: Clients, listeners: list[Document]
) -> None:
    before = edits(edge.envoy)

    edge.serves(mesh_gateway("edge", *({**each, "resources": {"connectionLimit": 100}} for each in listeners)))

    eventually(lambda: "100" in str(edge.envoy.get("/runtime")))
    clients.go_on()
    assert clients.lost() == []
    assert done(edge.envoy, before) == {}
