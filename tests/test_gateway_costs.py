"""What an edit costs a builtin gateway with many hostnames: the hostname that it is for, and no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from cp.insight.lint import lint
from cp.model.document import Document
from cp.model.names import Key
from cp.policies import discover, kinds
from cp.resources.world import World
from cp.translate.compiler import Compiler
from tests.growth import MOST, growth

HOSTS = 20
MESH = Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})
ONE_LISTENER = {"port": 8080, "protocol": "HTTP"}
FEW = 6
"""Fragments that are looked up for each edit, however many hostnames there are."""


def document(type_: str, name: str, **fields: object) -> Document:
    return Document(Key(type_, "default", name), {"type": type_, "mesh": "default", "name": name, **fields})


def hostname(number: int) -> str:
    return f"h{number}.example.com"


def listener(number: int, protocol: str) -> dict[str, object]:
    tls = {"mode": "TERMINATE", "certificates": [{"file": f"/certificates/{number}.pem"}]}
    written: dict[str, object] = {
        "port": 8080,
        "protocol": protocol,
        "hostname": hostname(number),
        "tags": {"vhost": f"h{number}"},
    }
    return {**written, "tls": tls} if protocol == "HTTPS" else written


def route(number: int, service: int = 0, **top: object) -> Document:
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
        "default": {"backendRefs": [{"kind": "MeshService", "name": f"s{service}", "port": 80}]},
    }
    to = [{"targetRef": {"kind": "Mesh"}, "hostnames": [hostname(number)], "rules": [rule]}]
    target: dict[str, object] = {"kind": "MeshGateway", "name": "edge", **top}
    return document("MeshHTTPRoute", f"r{number}", spec={"targetRef": target, "to": to})


def timeout(name: str, target: dict[str, object], seconds: int) -> Document:
    item = {"targetRef": target, "default": {"http": {"requestTimeout": f"{seconds}s"}}}
    return document("MeshTimeout", name, spec={"to": [item]})


def of_a_route(seconds: int) -> Document:
    return timeout("of-a-route", {"kind": "MeshHTTPRoute", "name": "r3"}, seconds)


def service(number: int, port: int = 8080) -> Document:
    selector = {"dataplaneTags": {"kuma.io/service": f"s{number}"}}
    ports = [{"port": 80, "targetPort": port, "appProtocol": "http"}]
    return document("MeshService", f"s{number}", spec={"selector": selector, "ports": ports})


def documents(hosts: int, protocol: str, *, by_tags: bool) -> Iterator[Document]:
    yield MESH
    networking = {"address": "127.0.0.1", "gateway": {"type": "BUILTIN", "tags": {"kuma.io/service": "edge"}}}
    yield document("Dataplane", "edge-1", networking=networking)
    listeners = [listener(number, protocol) for number in range(hosts)]
    yield document(
        "MeshGateway", "edge", selectors=[{"match": {"kuma.io/service": "edge"}}], conf={"listeners": listeners}
    )
    yield from (service(number) for number in range(3))
    for number in range(hosts):
        yield route(number, 1, **({"tags": {"vhost": f"h{number}"}} if by_tags else {}))
    yield of_a_route(1)


@dataclass(slots=True)
class Gateway:
    """A gateway in one World after another."""

    world: World
    compiler: Compiler = field(default_factory=lambda: Compiler(discover()))

    @classmethod
    def of(cls, hosts: int, protocol: str = "HTTPS", *, by_tags: bool = False) -> Gateway:
        made = cls(World.of(documents(hosts, protocol, by_tags=by_tags), kinds(discover())))
        made.compile()
        return made

    def compile(self) -> None:
        (dataplane,) = self.world.table("Dataplane", "default")
        self.compiler.snapshot(self.world, dataplane)

    def edit(self, document: Document) -> tuple[int, int]:
        """How many fragments are built for an edit, and how many are looked up."""
        built, reused = self.compiler.fragments.built, self.compiler.fragments.reused
        self.world = self.world.next({document.key: document}, self.world.revision + 1)
        self.compile()
        return self.compiler.fragments.built - built, self.compiler.fragments.reused - reused


@pytest.fixture(params=["HTTPS", "HTTPS by tags", "HTTP", "HTTP by tags"])
def gateway(request: pytest.FixtureRequest) -> Gateway:
    protocol, _, by_tags = request.param.partition(" ")
    return Gateway.of(HOSTS, protocol, by_tags=bool(by_tags))


def test_an_edit_of_a_route_builds_its_hostname_and_one_table(gateway: Gateway) -> None:
    built, reused = gateway.edit(route(3, 2))

    assert built == 2 + 2  # and, the first time, the cluster and the endpoints of the service
    assert reused <= FEW


def test_an_edit_of_a_timeout_of_a_route_builds_its_hostname_and_one_table(gateway: Gateway) -> None:
    built, reused = gateway.edit(of_a_route(2))

    assert built == 2
    assert reused <= FEW


def test_an_edit_that_no_hostname_leads_to_builds_nothing(gateway: Gateway) -> None:
    built, reused = gateway.edit(service(2, 9090))

    assert (built, reused) == (0, 1)  # the limits of connections are looked up each time


def test_an_edit_grows_in_proportion_to_the_hostnames() -> None:
    def edits(gateway: Gateway) -> None:
        for target in (2, 1):
            gateway.edit(route(3, target))

    assert growth(Gateway.of, edits, 100) < MOST


def world_of_one_listener(hosts: int) -> World:
    """One listener for every hostname, and a route for each."""
    of_gateway = [each for each in documents(hosts, "HTTP", by_tags=False) if each.key.type != "MeshGateway"]
    written = {"selectors": [{"match": {"kuma.io/service": "edge"}}], "conf": {"listeners": [ONE_LISTENER]}}
    return World.of([*of_gateway, document("MeshGateway", "edge", **written)], kinds(discover()))


def world_of_other_hostnames(hosts: int) -> World:
    """A route for hostnames that none of the listeners takes."""
    of_gateway = [each for each in documents(hosts, "HTTP", by_tags=False) if each.key.type != "MeshHTTPRoute"]
    data = route(0, 1).data
    (item,) = data["spec"]["to"]
    others = {**item, "hostnames": [f"x{number}.example.net" for number in range(hosts)]}
    spec = {**data["spec"], "to": [others]}
    return World.of([*of_gateway, document("MeshHTTPRoute", "others", spec=spec)], kinds(discover()))


@pytest.mark.parametrize(("world", "size"), [(world_of_one_listener, 60), (world_of_other_hostnames, 40)])
def test_lint_grows_in_proportion_to_the_hostnames(world: Callable[[int], World], size: int) -> None:
    assert growth(world, lambda each: lint(discover(), each), size) < MOST


def test_a_hostname_that_nobody_takes_is_told_with_some_listeners_and_not_with_all() -> None:
    findings = [each for each in lint(discover(), world_of_other_hostnames(40)) if each.code == "hostname-not-taken"]

    assert findings
    assert max(len(each.message) for each in findings) < 200
