"""What clients of an inbound cost that have something of their own: each as much as the first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pytest

from cp.insight.lint import lint
from cp.model.document import Document
from cp.model.names import Key
from cp.policies import discover, kinds
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.packing import LISTENER
from tests.growth import MOST, growth

Clients = Callable[[int], Iterator[Document]]

MTLS: Final = {"enabledBackend": "ca", "backends": [{"name": "ca", "type": "builtin"}]}
ABORT: Final = {"httpStatus": 500, "percentage": 5}


def document(type_: str, name: str, **fields: object) -> Document:
    return Document(Key(type_, "default", name), {"type": type_, "mesh": "default", "name": name, **fields})


def proxy() -> Iterator[Document]:
    yield Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default", "mtls": MTLS})
    tags = {"kuma.io/service": "web", "kuma.io/protocol": "http"}
    yield document("Dataplane", "web-1", networking={"address": "127.0.0.1", "inbound": [{"port": 80, "tags": tags}]})


def rate_limits(clients: int) -> Iterator[Document]:
    web = [{"match": {"kuma.io/service": "web"}}]
    conf = {"http": {"requests": 5, "interval": "1s"}}
    for number in range(clients):
        sources = [{"match": {"team": f"t{number}"}}]
        yield document("RateLimit", f"p{number}", sources=sources, destinations=web, conf=conf)


def fault_injections(clients: int) -> Iterator[Document]:
    web = [{"match": {"kuma.io/service": "web", "kuma.io/protocol": "http"}}]
    for number in range(clients):
        sources = [{"match": {"team": f"t{number}", "kuma.io/protocol": "http"}}]
        yield document("FaultInjection", f"p{number}", sources=sources, destinations=web, conf={"abort": ABORT})


def mesh_fault_injection(clients: int) -> Iterator[Document]:
    return policy_with_rules("MeshFaultInjection", {"http": [{"abort": ABORT}, {"abort": ABORT}]}, clients)


def policy_with_rules(kind: str, conf: object, clients: int) -> Iterator[Document]:
    matches = ([{"spiffeID": {"type": "Exact", "value": f"spiffe://default/t{number}"}}] for number in range(clients))
    yield document(kind, "all", spec={"rules": [{"matches": of_client, "default": conf} for of_client in matches]})


def bytes_of_listeners(documents: Iterator[Document]) -> int:
    policies = discover()
    world = World.of([*proxy(), *documents], kinds(policies))
    (dataplane,) = world.table("Dataplane", "default")
    return sum(len(listener.body) for listener in Compiler(policies).snapshot(world, dataplane).of(LISTENER))


@pytest.mark.parametrize("clients", [rate_limits, fault_injections, mesh_fault_injection])
def test_what_clients_have_of_their_own_grows_in_proportion_to_them(clients: Clients) -> None:
    few, many = bytes_of_listeners(clients(20)), bytes_of_listeners(clients(80))

    assert 2 * few < many < MOST * few / 2


def test_clients_are_judged_in_proportion_to_their_number() -> None:
    def world(clients: int) -> World:
        return World.of([*proxy(), *rate_limits(clients)], kinds(discover()))

    assert growth(world, lambda made: lint(discover(), made), 50) < MOST
