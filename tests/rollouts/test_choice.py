"""Which proxies a rollout reaches, and which of them are alike."""

from __future__ import annotations

from typing import Any, Final

import pytest

from cp.model.document import Document
from cp.policies import kinds
from cp.resources.world import World
from cp.serving.rollouts.choice import ReachedProxy, chosen, reached_proxies
from cp.serving.rollouts.steps import steps_of
from tests.random_mesh import MESH, document
from tests.snapshots import policies
from tests.support.uncompilable import cannot_compile

FIRST: Final = steps_of("1")[0]
HALF: Final = steps_of("50%")[0]


def proxy(name: str, service: str, calls: str = "backend", port: int = 10000, **tags: str) -> Document:
    """Each at an address of its own, where it calls others too."""
    address = f"127.0.0.{int(name.rpartition('-')[2]) + 1}"
    own = {"kuma.io/service": service, "kuma.io/protocol": "http", **tags}
    outbound = [{"address": address, "port": port, "tags": {"kuma.io/service": calls}}]
    networking = {"address": address, "inbound": [{"port": 80, "tags": own}], "outbound": outbound}
    return document("Dataplane", name, networking=networking)


def gateway(name: str) -> Document:
    tags = {"kuma.io/service": "edge"}
    networking = {"address": f"127.0.1.{name[-1]}", "gateway": {"type": "BUILTIN", "tags": tags}}
    return document("Dataplane", name, networking=networking)


EDGE: Final = document(
    "MeshGateway",
    "edge",
    selectors=[{"match": {"kuma.io/service": "edge"}}],
    conf={"listeners": [{"port": 8080, "protocol": "HTTP"}]},
)
ROUTE: Final = document(
    "MeshHTTPRoute",
    "to-backend",
    spec={
        "targetRef": {"kind": "MeshGateway", "name": "edge"},
        "to": [
            {
                "targetRef": {"kind": "Mesh"},
                "rules": [
                    {
                        "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                        "default": {"backendRefs": [{"kind": "MeshService", "name": "backend", "port": 80}]},
                    }
                ],
            }
        ],
    },
)


def timeout(field: str = "to", **target: Any) -> Document:
    item = {"default": {"connectionTimeout": "3s", "idleTimeout": "9s"}, "targetRef": {"kind": "Mesh"}}
    return document("MeshTimeout", "new", spec={**({"targetRef": target} if target else {}), field: [item]})


def reached(change: Document, *documents: Document) -> list[ReachedProxy]:
    before = World.of([MESH, *documents], kinds(policies()))
    after = before.next({change.key: change}, 1)
    return reached_proxies((before, after), list(before.table("Dataplane", "default")), policies(), frozenset())


def classes(proxies: list[ReachedProxy]) -> list[set[str]]:
    by_likeness: dict[object, set[str]] = {}
    for each in proxies:
        by_likeness.setdefault(each.likeness, set()).add(each.name)
    return sorted(by_likeness.values(), key=sorted)


def test_proxies_that_call_the_same_services_are_alike_wherever_they_listen() -> None:
    callers = [proxy(f"web-{number}", "web", port=10000 + number) for number in range(4)]

    assert classes(reached(timeout(), *callers, proxy("job-9", "job", calls="api"))) == [
        {"job-9"},
        {f"web-{number}" for number in range(4)},
    ]


def test_only_who_is_served_something_else_is_reached() -> None:
    target = {"kind": "MeshSubset", "tags": {"kuma.io/service": "web"}}

    assert classes(reached(timeout("from", **target), proxy("web-1", "web"), proxy("job-9", "job"))) == [{"web-1"}]


def test_who_is_under_other_policies_is_another_class() -> None:
    mine = document(
        "MeshTimeout",
        "old",
        spec={
            "targetRef": {"kind": "MeshSubset", "tags": {"version": "2"}},
            "from": [{"targetRef": {"kind": "Mesh"}, "default": {"idleTimeout": "2s"}}],
        },
    )
    proxies = [proxy("web-1", "web", version="1"), proxy("web-2", "web", version="2"), proxy("web-3", "web")]

    assert classes(reached(timeout(), mine, *proxies)) == [{"web-1", "web-3"}, {"web-2"}]


def test_gateways_with_the_same_tags_are_alike() -> None:
    backend = document(
        "MeshService", "backend", spec={"ports": [{"port": 80, "targetPort": 80, "appProtocol": "http"}]}
    )
    proxies = [gateway("gw-1"), gateway("gw-2")]

    assert classes(reached(timeout(), EDGE, ROUTE, backend, *proxies)) == [{"gw-1", "gw-2"}]


def test_of_each_class_and_each_version_of_envoy_some_are_chosen() -> None:
    proxies = [ReachedProxy(f"p-{number}", ("a" if number < 6 else "b",)) for number in range(10)]
    versions = {f"p-{number}": "1.38" if number % 2 else "1.39" for number in range(10)}
    first = chosen(proxies, versions, FIRST, [], "seed")
    half = chosen(proxies, versions, HALF, first, "seed")

    assert len(first) == 4
    assert {(int(name[2:]) < 6, versions[name]) for name in first} == {
        (early, version) for early in (True, False) for version in ("1.38", "1.39")
    }
    assert (len(half), set(first) < set(half)) == (6, True)


def test_who_has_it_keeps_it_and_chance_depends_on_the_seed_alone() -> None:
    proxies = [ReachedProxy(f"p-{number}", ()) for number in range(50)]
    first = chosen(proxies, {}, FIRST, [], "seed")

    assert chosen(list(reversed(proxies)), {}, FIRST, [], "seed") == first
    assert len({tuple(chosen(proxies, {}, FIRST, [], f"{number}")) for number in range(20)}) > 5
    assert chosen(proxies, {}, FIRST, ["p-7", "p-9"], "seed") == ["p-7", "p-9"]


def test_a_proxy_that_cannot_be_compiled_stops_no_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can tell what would be new to it, so it is left alone."""
    cannot_compile(monkeypatch, "web-1")

    names = {each.name for each in reached(timeout(), proxy("web-0", "web"), proxy("web-1", "web"))}
    assert names == {"web-0"}
