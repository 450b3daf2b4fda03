"""Several inbounds or outbounds that want one address and port: the first has it, and nobody gets another's calls."""

from __future__ import annotations

from typing import Any, Final

import pytest

from cp.model.document import Document
from cp.model.names import Destination, Key
from cp.policies import kinds
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.packing import LISTENER
from cp.translate.view.proxies import inbounds, outbounds
from cp.translate.view.services import endpoints_of
from tests.snapshots import policies

MESH: Final = Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})


def inbound(service: str, port: int, **more: Any) -> dict[str, Any]:
    return {"port": port, "tags": {"kuma.io/service": service}, **more}


def outbound(service: str, port: int, **more: Any) -> dict[str, Any]:
    return {"port": port, "tags": {"kuma.io/service": service}, **more}


def dataplane(**networking: Any) -> Document:
    data = {"type": "Dataplane", "mesh": "default", "name": "web", "networking": {"address": "10.0.0.1", **networking}}
    return Document(Key("Dataplane", "default", "web"), data)


def world(document: Document) -> World:
    made = World.of([MESH, document], kinds(policies()))
    assert not list(made.findings)
    return made


def web(of: World) -> Resource:
    found = of.get(Key("Dataplane", "default", "web"))
    assert found is not None
    return found


def called(of: World) -> list[str]:
    return [one.destination.service for one in outbounds(of, web(of))]


@pytest.mark.parametrize(
    "second",
    [
        outbound("b", 10080),
        outbound("b", 10080, address="127.0.0.1"),
        {"port": 10080, "backendRef": {"kind": "MeshService", "name": "b", "port": 80}},
    ],
)
def test_of_two_outbounds_the_first_is_served(second: dict[str, Any]) -> None:
    assert called(world(dataplane(outbound=[outbound("a", 10080), second]))) == ["a"]


def test_one_address_of_ipv6_is_the_same_however_it_is_written() -> None:
    listed = [outbound("a", 80, address="::1"), outbound("b", 80, address="0:0:0:0:0:0:0:1")]

    assert called(world(dataplane(outbound=listed))) == ["a"]


def test_other_addresses_and_other_ports_are_no_conflict() -> None:
    listed = [outbound("a", 80), outbound("b", 81), outbound("c", 80, address="127.0.0.2")]

    assert called(world(dataplane(outbound=listed))) == ["a", "b", "c"]


def test_an_outbound_that_leads_nowhere_keeps_its_address() -> None:
    """When the service comes, calls would go elsewhere without a word."""
    missing = {"port": 10080, "backendRef": {"kind": "MeshService", "name": "later", "port": 80}}

    assert called(world(dataplane(outbound=[missing, outbound("b", 10080)]))) == []


def test_an_inbound_comes_before_an_outbound() -> None:
    made = world(dataplane(inbound=[inbound("web", 8080)], outbound=[outbound("a", 8080, address="10.0.0.1")]))
    names = [one.name for one in Compiler(policies()).snapshot(made, web(made)).of(LISTENER)]

    assert names == ["inbound:10.0.0.1:8080"]


def test_an_inbound_that_is_ignored_has_no_address() -> None:
    made = world(dataplane(inbound=[inbound("a", 80, state="Ignored"), inbound("b", 80)]))

    assert [index for index, _ in inbounds(web(made))] == [1]


def test_nobody_is_led_to_the_workload_of_another() -> None:
    """The second inbound is no endpoint of its service, as the proxy listens there for another workload."""
    made = world(dataplane(inbound=[inbound("a", 80, servicePort=8001), inbound("b", 80, servicePort=8002)]))

    assert [index for index, _ in inbounds(web(made))] == [0]
    assert len(endpoints_of(made, "default", Destination("a")).endpoints) == 1
    assert not endpoints_of(made, "default", Destination("b")).endpoints


def test_one_workload_may_have_two_names() -> None:
    made = world(dataplane(inbound=[inbound("a", 80), inbound("b", 80)]))

    assert [index for index, _ in inbounds(web(made))] == [0]
    assert len(endpoints_of(made, "default", Destination("b")).endpoints) == 1


def test_when_the_first_goes_the_second_is_served_as_if_it_had_always_been_alone() -> None:
    before = world(dataplane(inbound=[inbound("web", 8080)], outbound=[outbound("web", 80), outbound("b", 80)]))
    compiler = Compiler(policies())
    compiler.snapshot(before, web(before))
    changed = dataplane(inbound=[inbound("web", 8080)], outbound=[outbound("b", 80)])
    after = before.next({changed.key: changed}, 1)

    assert called(after) == ["b"]
    assert compiler.snapshot(after, web(after)) == Compiler(policies()).snapshot(after.afresh(), web(after))
