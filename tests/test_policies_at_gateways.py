"""What an edit of a policy changes of what a gateway is served (record 0068)."""

from __future__ import annotations

from typing import Final

import pytest

from cp.policies import discover
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.packing import CLUSTER, LISTENER, ROUTES, PackedResource
from tests.rules.edge import EDGE
from tests.rules.worlds import dataplane, edited, without, world_of

PLAIN: Final = "kri_msvc_default___web_80"


class Edge:
    """A gateway that is compiled after each edit, and once more by a compiler that knows nothing of before."""

    def __init__(self, *documents: str) -> None:
        self._compiler = Compiler(discover())
        self.world = world_of("---".join((EDGE, *documents)))
        self.served = self._served()

    def changed(self, world: World) -> set[str]:
        """The names of what an edit changed."""
        before, self.world, self.served = self.served, world, {}
        self.served = self._served()
        names = before.keys() | self.served.keys()
        return {name for name in names if before.get(name) != self.served.get(name)}

    def names(self, type_url: str) -> list[str]:
        return sorted(packed.name for packed in self._packed() if packed.type_url == type_url)

    def _served(self) -> dict[str, bytes]:
        anew = Compiler(discover()).snapshot(self.world, dataplane(self.world, "edge"))
        served = {f"{packed.type_url}/{packed.name}": packed.body for packed in self._packed()}
        assert served == {f"{p.type_url}/{p.name}": p.body for part in anew.parts for p in part}
        return served

    def _packed(self) -> list[PackedResource]:
        snapshot = self._compiler.snapshot(self.world, dataplane(self.world, "edge"))
        return [packed for part in snapshot.parts for packed in part]


def of_edge(kind: str, name: str, conf: str, at: str = "") -> str:
    tags = f", tags: {{at: {at}}}" if at else ""
    return f"""
type: {kind}
mesh: default
name: {name}
spec:
  targetRef: {{kind: MeshGateway, name: edge{tags}}}
  to: [{{targetRef: {{kind: Mesh}}, default: {conf}}}]
"""


def limit(num: int, at: str = "") -> str:
    return of_edge("MeshRateLimit", "limit", f"{{local: {{http: {{requestRate: {{num: {num}, interval: 1s}}}}}}}}", at)


def breaker(most: int, at: str = "") -> str:
    return of_edge("MeshCircuitBreaker", "breaker", f"{{connectionLimits: {{maxConnections: {most}}}}}", at)


TABLE: Final = f"{ROUTES}/edge:HTTP:80:*"
PORT: Final = f"{LISTENER}/edge:HTTP:80"


def test_the_first_limit_changes_the_listener_and_the_next_ones_do_not() -> None:
    edge = Edge()

    assert edge.changed(edited(edge.world, limit(1, "http"))) == {TABLE, PORT}
    assert edge.changed(edited(edge.world, limit(2, "http"))) == {TABLE}
    assert edge.changed(edited(edge.world, limit(2))) == {TABLE}
    assert edge.changed(without(edge.world, "MeshRateLimit", "limit")) == {TABLE, PORT}


def test_a_listener_with_a_log_of_its_own_stays_as_it_is_when_hostnames_come() -> None:
    logs = "{backends: [{type: File, file: {path: /dev/stdout}}]}"
    route = """
type: MeshHTTPRoute
mesh: default
name: more
spec:
  targetRef: {kind: MeshGateway, name: edge, tags: {at: http}}
  to:
    - targetRef: {kind: Mesh}
      hostnames: [more.example]
      rules:
        - matches: [{path: {type: PathPrefix, value: /}}]
          default: {backendRefs: [{kind: MeshService, name: web, port: 80}]}
"""
    edge = Edge(of_edge("MeshAccessLog", "logs", logs, "http"))

    assert edge.changed(edited(edge.world, route)) == {TABLE}


def test_listeners_share_a_cluster_as_long_as_the_same_holds_for_it() -> None:
    edge = Edge(breaker(100), of_edge("MeshTimeout", "t", "{http: {requestTimeout: 1s}}", "http"))
    assert edge.names(CLUSTER) == [PLAIN]

    edge.changed(edited(edge.world, breaker(100, "http")))
    assert edge.names(CLUSTER) == [PLAIN, f"{PLAIN}@*_example_80"]

    assert edge.changed(edited(edge.world, breaker(50, "http"))) == {f"{CLUSTER}/{PLAIN}@*_example_80"}
    edge.changed(without(edge.world, "MeshCircuitBreaker", "breaker"))
    assert edge.names(CLUSTER) == [PLAIN]


@pytest.mark.parametrize("conf", ["{connectionTimeout: 1s}", "{idleTimeout: null, http: {requestTimeout: 1s}}"])
def test_a_policy_that_can_change_a_cluster_parts_it(conf: str) -> None:
    edge = Edge(of_edge("MeshTimeout", "t", conf, "http"))

    assert edge.names(CLUSTER) == [PLAIN, f"{PLAIN}@*_example_80"]


def test_when_listeners_exchange_their_tags_other_limits_hold_for_their_calls() -> None:
    """Though the same policies select the gateway, and the clusters have the names that they had."""
    route = """
type: MeshHTTPRoute
mesh: default
name: shop
spec:
  targetRef: {kind: MeshGateway, name: edge}
  to:
    - targetRef: {kind: Mesh}
      rules:
        - matches: [{path: {type: PathPrefix, value: /}}]
          default: {backendRefs: [{kind: MeshService, name: web, port: 80}]}
"""
    listeners = """
type: MeshGateway
mesh: default
name: edge
selectors: [{match: {kuma.io/service: edge}}]
conf:
  listeners:
    - {port: 80, protocol: HTTP, hostname: a.example, tags: {at: %s}}
    - {port: 80, protocol: HTTP, hostname: b.example, tags: {at: %s}}
    - {port: 80, protocol: HTTP}
"""
    edge = Edge(breaker(1, "x"), breaker(2, "y").replace("breaker", "other"))
    edge.changed(edited(edited(edge.world, route), listeners % ("x", "y")))
    names = edge.names(CLUSTER)
    assert names == [PLAIN, f"{PLAIN}@a_example_80", f"{PLAIN}@b_example_80"]

    assert edge.changed(edited(edge.world, listeners % ("y", "x"))) == {f"{CLUSTER}/{name}" for name in names[1:]}


def test_a_hostname_that_a_new_listener_takes_over_is_told_apart_as_that_listeners() -> None:
    """Though the same policies select both listeners, and its routes are those that it had."""
    listeners = """
type: MeshGateway
mesh: default
name: edge
selectors: [{match: {kuma.io/service: edge}}]
conf:
  listeners:
    - {port: 80, protocol: HTTP, tags: {at: most}}
    - {port: 80, protocol: HTTP, hostname: other.test}
"""
    route = """
type: MeshHTTPRoute
mesh: default
name: shop
spec:
  targetRef: {kind: MeshGateway, name: edge}
  to:
    - targetRef: {kind: Mesh}
      hostnames: [a.example]
      rules:
        - matches: [{path: {type: PathPrefix, value: /}}]
          default: {backendRefs: [{kind: MeshService, name: web, port: 80}]}
"""
    edge = Edge(of_edge("MeshAccessLog", "logs", "{backends: [{type: File, file: {path: /dev/stdout}}]}", "most"))
    edge.changed(edited(edited(edge.world, route), listeners))
    narrower = f'{listeners}    - {{port: 80, protocol: HTTP, hostname: "*.example", tags: {{at: most}}}}\n'

    assert edge.changed(edited(edge.world, narrower)) == {TABLE, PORT}


OF_WEB: Final = """
type: MeshTimeout
mesh: default
name: of-web
spec:
  targetRef: {kind: Mesh}
  to:
    - {targetRef: {kind: MeshService, name: web}, default: {http: {requestTimeout: 3s}}}
"""
OF_A_ROUTE: Final = """
    - {targetRef: {kind: MeshHTTPRoute, name: another}, default: {http: {requestTimeout: 4s}}}
"""
OF_THE_MESH: Final = """
    - {targetRef: {kind: Mesh}, default: {http: {requestTimeout: 5s}}}
"""


@pytest.mark.parametrize(
    ("port", "items", "holds"),
    [
        ("", "", True),
        ("", OF_A_ROUTE, False),
        (", port: 80", OF_A_ROUTE, True),
        ("", OF_A_ROUTE + OF_THE_MESH, True),
    ],
)
def test_an_item_for_a_service_beside_one_for_a_route_is_not_for_the_tag(port: str, items: str, holds: bool) -> None:
    backend = "{kind: MeshService, name: web, port: 80}"
    edge = Edge()
    edge.changed(world_of(EDGE.replace(backend, f"{{kind: MeshService, name: web{port}}}", 1)))

    assert (TABLE in edge.changed(edited(edge.world, OF_WEB + items.lstrip("\n")))) is holds
