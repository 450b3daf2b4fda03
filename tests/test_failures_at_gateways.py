"""A fault of ours at a gateway costs the part that meets it: a hostname, a chain, a port (record 0044)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.config.route.v3.route_pb2 import RouteConfiguration

from cp.model.document import Document
from cp.policies import Policy, discover, kinds
from cp.policies.mesh_access_log import MeshAccessLog
from cp.policies.mesh_proxy_patch import MeshProxyPatch
from cp.policies.mesh_timeout import MeshTimeout
from cp.resources.world import World
from cp.translate.compiler import CompiledProxy, Compiler
from cp.translate.packing import CLUSTER, LISTENER, ROUTES
from generators.proxy import GatewayPort, GatewayTable
from tests.random_mesh import MESH, document

HOSTS = ("a.test", "b.test")


@dataclass
class Fault:
    """What raises for as long as it is there: writing a route, a chain, or the whole of what is served."""

    at: str = ""


def faulty(fault: Fault) -> list[Policy[Any]]:
    class OfRoutes(MeshTimeout):
        def route(self, conf: Any, draft: Any) -> None:
            if fault.at == "route" and "1m17s" in str(conf):
                raise RecursionError("too wide")
            super().route(conf, draft)

    class OfChains(MeshAccessLog):
        def listener(self, conf: Any, draft: Any) -> None:
            names = draft.listener.filter_chains[0].filter_chain_match.server_names if not draft.is_table else ()
            if fault.at == "chain" and list(names) == ["a.test"]:
                raise RecursionError("too long")
            super().listener(conf, draft)

    class OfPorts(MeshProxyPatch):
        def finish(self, conf: Any, built: Any) -> None:
            if fault.at == "finish" and isinstance(built.site, GatewayPort | GatewayTable):
                raise RecursionError("too deep")
            super().finish(conf, built)

    of_kind = {policy.kind.name: policy for policy in (OfRoutes(), OfChains(), OfPorts())}
    return [of_kind.get(policy.kind.name, policy) for policy in discover()]


class Edge:
    """A gateway with two hostnames, compiled again after each edit."""

    def __init__(self, protocol: str = "HTTP") -> None:
        self.fault = Fault()
        self._policies = faulty(self.fault)
        self._compiler = Compiler(self._policies)
        tls = {"tls": {"mode": "PASSTHROUGH"}} if protocol == "TLS" else {}
        listeners = [
            {"port": 8080, "protocol": protocol, "hostname": host, "tags": {"host": host}, **tls} for host in HOSTS
        ]
        tags = {"kuma.io/service": "edge"}
        documents = [
            MESH,
            document(
                "Dataplane", "edge", networking={"address": "127.0.0.1", "gateway": {"type": "BUILTIN", "tags": tags}}
            ),
            document("MeshGateway", "edge", selectors=[{"match": tags}], conf={"listeners": listeners}),
            *(service(name) for name in ("one", "two")),
            logged(),
            patched(),
        ]
        self._world = World.of(documents, kinds(self._policies))
        self._revision = 0

    def apply(self, *edited: Document) -> CompiledProxy:
        self._revision += 1
        self._world = self._world.next({each.key: each for each in edited}, self._revision)
        (gateway,) = (each for each in self._world.table("Dataplane", "default") if each.name == "edge")
        return self._compiler.proxy(self._world, gateway)


def service(name: str) -> Document:
    inbound = [{"port": 80, "tags": {"kuma.io/service": name}}]
    return document(
        "Dataplane", name, networking={"address": f"127.0.0.{len(name) + ord(name[0])}", "inbound": inbound}
    )


def logged() -> Document:
    backends = [{"type": "File", "file": {"path": "/dev/null"}}]
    item = {"targetRef": {"kind": "Mesh"}, "default": {"backends": backends}}
    return document("MeshAccessLog", "all", spec={"targetRef": {"kind": "MeshGateway", "name": "edge"}, "to": [item]})


def patched() -> Document:
    patch = {"listener": {"operation": "Patch", "value": "perConnectionBufferLimitBytes: 1024\n"}}
    return document("MeshProxyPatch", "all", spec={"default": {"appendModifications": [patch]}})


def route(host: str, to: str) -> Document:
    """For one of the hostnames, to a service."""
    matches = [{"path": {"type": "PathPrefix", "value": "/"}}]
    rule = {"matches": matches, "default": {"backendRefs": [{"kind": "MeshService", "name": to}]}}
    item = {"targetRef": {"kind": "Mesh"}, "hostnames": [host], "rules": [rule]}
    return document(
        "MeshHTTPRoute", f"of-{host}", spec={"targetRef": {"kind": "MeshGateway", "name": "edge"}, "to": [item]}
    )


def tcp_route(to: str) -> Document:
    item = {
        "targetRef": {"kind": "Mesh"},
        "rules": [{"default": {"backendRefs": [{"kind": "MeshService", "name": to}]}}],
    }
    return document("MeshTCPRoute", "all", spec={"targetRef": {"kind": "MeshGateway", "name": "edge"}, "to": [item]})


def slow(host: str) -> Document:
    """A timeout that cannot be written while there is a fault."""
    item = {
        "targetRef": {"kind": "MeshHTTPRoute", "name": f"of-{host}"},
        "default": {"http": {"requestTimeout": "77s"}},
    }
    return document("MeshTimeout", "slow", spec={"to": [item]})


def timeout_at(host: str) -> Document:
    """A timeout for the calls of one listener, which reach services by clusters of their own."""
    target = {"kind": "MeshGateway", "name": "edge", "tags": {"host": host}}
    item = {"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "7s"}}
    return document("MeshTimeout", "of-listener", spec={"targetRef": target, "to": [item]})


def clusters(proxy: CompiledProxy) -> dict[str, str]:
    """Where each hostname leads: to a cluster, or to an answer."""
    tables = [RouteConfiguration.FromString(packed.body) for packed in proxy.snapshot.of(ROUTES)]
    hosts = (host for table in tables for host in table.virtual_hosts)
    return {
        host.domains[0]: host.routes[0].route.cluster or str(host.routes[0].direct_response.status) for host in hosts
    }


def chains(proxy: CompiledProxy) -> list[str]:
    listeners = [Listener.FromString(packed.body) for packed in proxy.snapshot.of(LISTENER)]
    return [chain.name for listener in listeners for chain in listener.filter_chains]


def served_clusters(proxy: CompiledProxy) -> set[str]:
    return {packed.name for packed in proxy.snapshot.of(CLUSTER)}


def test_a_hostname_that_cannot_be_made_answers_500_and_others_are_served() -> None:
    edge = Edge()
    edge.fault.at = "route"

    proxy = edge.apply(route("a.test", "one"), route("b.test", "one"), slow("a.test"))

    assert clusters(proxy) == {"a.test": "500", "b.test": "one"}
    assert [failure.part for failure in proxy.failures] == ["a.test at port 8080"]


def test_a_hostname_that_cannot_be_made_any_more_stays_as_it_was_with_what_it_leads_to() -> None:
    edge = Edge()
    edge.apply(route("a.test", "one"), route("b.test", "one"))
    edge.fault.at = "route"

    proxy = edge.apply(route("a.test", "two"), route("b.test", "two"), slow("a.test"))

    assert clusters(proxy) == {"a.test": "one", "b.test": "two"}
    assert served_clusters(proxy) == {"one", "two"}
    assert [failure.is_kept for failure in proxy.failures] == [True]


def test_kept_hostname_keeps_clusters_of_its_former_rules() -> None:
    edge = Edge()
    routes = route("a.test", "one"), route("b.test", "one")
    before = edge.apply(*routes, timeout_at("a.test"))
    own = clusters(before)["a.test"]
    edge.fault.at = "route"

    edited = edge.apply(timeout_at("c.test"), slow("a.test"))
    later = edge.apply(route("b.test", "two"))

    assert own != "one"
    assert [clusters(proxy)["a.test"] for proxy in (edited, later)] == [own, own]
    assert [served_clusters(proxy) for proxy in (edited, later)] == [{own, "one"}, {own, "one", "two"}]


def test_a_chain_that_cannot_be_made_is_left_out_and_others_are_served() -> None:
    edge = Edge("TLS")
    edge.fault.at = "chain"

    proxy = edge.apply(tcp_route("one"))

    assert chains(proxy) == ["b.test"]
    assert [failure.part for failure in proxy.failures] == ["port 8080"]


def test_a_chain_that_cannot_be_made_any_more_stays_as_it_was_with_what_it_leads_to() -> None:
    edge = Edge("TLS")
    edge.apply(tcp_route("one"))
    edge.fault.at = "chain"

    proxy = edge.apply(tcp_route("two"))

    assert chains(proxy) == ["a.test", "b.test"]
    assert served_clusters(proxy) == {"one", "two"}
    assert [failure.is_kept for failure in proxy.failures] == [True]


def test_what_cannot_be_finished_any_more_stays_as_it_was() -> None:
    edge = Edge()
    before = edge.apply(route("a.test", "one"), route("b.test", "one"))
    edge.fault.at = "finish"

    proxy = edge.apply(route("a.test", "two"), route("b.test", "two"))

    assert clusters(proxy) == clusters(before)
    assert chains(proxy) == chains(before)
    assert served_clusters(proxy) == {"one", "two"}
    assert {failure.kind for failure in proxy.failures} == {"MeshProxyPatch"}


def test_after_a_fault_everything_is_as_it_should_be() -> None:
    edge = Edge()
    edge.fault.at = "route"
    edge.apply(route("a.test", "one"), route("b.test", "one"), slow("a.test"))
    edge.fault.at = ""

    proxy = edge.apply(route("b.test", "two"))

    assert clusters(proxy) == {"a.test": "one", "b.test": "two"}
    assert proxy.failures == ()
