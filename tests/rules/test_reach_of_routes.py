"""Which destinations a route is for: those that its target names by identity, section, labels, and no namesake of them.

The tables say for each target which of the destinations below have the route. Every one of them has the display name
`backend`, so nothing but the identity tells them apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import pytest

from cp.model.names import Destination, Identity
from cp.resources.world import World
from cp.rules import routes
from tests.rules.texts import MESH, Data, policy, proxy, text
from tests.rules.worlds import rules_of, world_of

NAMESPACE: Final = "k8s.kuma.io/namespace"
ZONE: Final = "kuma.io/zone"
DISPLAY_NAME: Final = "kuma.io/display-name"

PORTS: Final = [
    {"port": 80, "name": "http", "appProtocol": "http"},
    {"port": 81, "name": "admin", "appProtocol": "http"},
    {"port": 82, "appProtocol": "http"},
]


def _service(name: str, kind: str = "MeshService", **labels: str) -> Data:
    found = {DISPLAY_NAME: "backend", **{label.replace("__", "/"): value for label, value in labels.items()}}
    selector: Data = {"dataplaneTags": {"app": name}}
    spec: Data = {"selector": selector, "ports": PORTS}
    if kind == "MeshMultiZoneService":
        spec = {"selector": {"meshService": {"matchLabels": {"app": name}}}, "ports": PORTS[:2]}
    if kind == "MeshExternalService":
        match = {"type": "HostnameGenerator", "port": 80, "protocol": "http"}
        spec = {"match": match, "endpoints": [{"address": "192.0.2.1", "port": 80}]}
    return {"type": kind, "mesh": "default", "name": name, "labels": found, "spec": spec}


SERVICES: Final = (
    _service("backend"),
    _service("backend-a", **{NAMESPACE: "ns-a", "team": "a"}),
    _service("backend-b", **{NAMESPACE: "ns-b", "team": "b"}),
    _service("backend-east", **{ZONE: "east", "team": "a"}),
    _service("backend-zones", "MeshMultiZoneService"),
    _service("backend-outside", "MeshExternalService"),
)


def _real(section: str, kind: str = "MeshService", zone: str = "", namespace: str = "") -> Destination:
    return Destination("backend", Identity(kind, "default", "backend", zone, namespace, section))


DESTINATIONS: Final[Mapping[str, Destination]] = {
    "plain http": _real("http"),
    "plain admin": _real("admin"),
    "plain 82": _real("82"),
    "ns-a http": _real("http", namespace="ns-a"),
    "ns-b http": _real("http", namespace="ns-b"),
    "east http": _real("http", zone="east"),
    "zones http": _real("http", "MeshMultiZoneService"),
    "zones admin": _real("admin", "MeshMultiZoneService"),
    "outside": _real("80", "MeshExternalService"),
    "tag": Destination("backend"),
    "tag v1": Destination("backend", tags=(("version", "v1"),)),
}

PLAIN: Final = {"plain http", "plain admin", "plain 82"}
TAGS: Final = {"tag", "tag v1"}

BY_TARGET: Final[Mapping[str, tuple[Data, set[str]]]] = {
    "a service": ({"kind": "MeshService", "name": "backend"}, PLAIN | TAGS),
    "a section by name": ({"kind": "MeshService", "name": "backend", "sectionName": "http"}, {"plain http"} | TAGS),
    "a section by number": ({"kind": "MeshService", "name": "backend", "sectionName": "81"}, {"plain admin"} | TAGS),
    "a port without a name": ({"kind": "MeshService", "name": "backend", "sectionName": "82"}, {"plain 82"} | TAGS),
    "no such section": ({"kind": "MeshService", "name": "backend", "sectionName": "nosuch"}, TAGS),
    "a namespace": ({"kind": "MeshService", "name": "backend", "namespace": "ns-a"}, {"ns-a http"} | TAGS),
    "no such namespace": ({"kind": "MeshService", "name": "backend", "namespace": "kuma-system"}, TAGS),
    "labels": ({"kind": "MeshService", "labels": {"team": "a"}}, {"ns-a http", "east http"}),
    "a section by labels": ({"kind": "MeshService", "labels": {"team": "b"}, "sectionName": "http"}, {"ns-b http"}),
    "no such labels": ({"kind": "MeshService", "labels": {"team": "c"}}, set()),
    "several zones": ({"kind": "MeshMultiZoneService", "name": "backend"}, {"zones http", "zones admin"}),
    "a section of several zones": (
        {"kind": "MeshMultiZoneService", "name": "backend", "sectionName": "admin"},
        {"zones admin"},
    ),
    "a service outside": ({"kind": "MeshExternalService", "name": "backend"}, {"outside"}),
    "a name that nobody has": ({"kind": "MeshService", "name": "other"}, set()),
}

BY_ORIGIN: Final[Mapping[str, tuple[Data, set[str]]]] = {
    "a namespace": ({NAMESPACE: "ns-b"}, {"ns-b http"} | TAGS),
    "a zone": ({ZONE: "east"}, {"east http"} | TAGS),
    "a zone without services": ({ZONE: "west"}, TAGS),
}
"""What the labels of the route say, with `name: backend` for its target."""

KINDS: Final = ("MeshHTTPRoute", "MeshTCPRoute")


@cache
def _without_route() -> str:
    return text(MESH, proxy("web"), *SERVICES)


def _world(kind: str, target: Data, labels: Data | None = None) -> World:
    default: Data = {"backendRefs": [{"kind": "MeshService", "name": "elsewhere"}]}
    rule: Data = {"default": default}
    if kind == "MeshHTTPRoute":
        rule["matches"] = [{"path": {"type": "PathPrefix", "value": "/"}}]
    route = policy(kind, "route", labels=labels, to=[{"targetRef": target, "rules": [rule]}])
    return world_of("\n---\n".join([_without_route(), text(route)]))


def _having_the_route(world: World, kind: str) -> set[str]:
    rules = rules_of(world, kind)
    return {name for name, destination in DESTINATIONS.items() if routes(rules, destination)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", BY_TARGET)
def test_a_route_is_for_what_its_target_names_and_for_no_namesake(kind: str, target: str) -> None:
    reference, expected = BY_TARGET[target]

    assert _having_the_route(_world(kind, reference), kind) == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("origin", BY_ORIGIN)
def test_a_name_is_meant_where_the_route_comes_from(kind: str, origin: str) -> None:
    labels, expected = BY_ORIGIN[origin]
    world = _world(kind, {"kind": "MeshService", "name": "backend"}, labels)

    assert _having_the_route(world, kind) == expected


def test_a_route_for_what_is_known_by_its_tag_alone_is_for_destinations_by_tag() -> None:
    world = _world("MeshHTTPRoute", {"kind": "MeshService", "name": "only-a-tag"})
    rules = rules_of(world, "MeshHTTPRoute")

    assert len(routes(rules, Destination("only-a-tag")) or ()) == 1


def test_routes_of_other_sections_stay_in_force() -> None:
    """A route of HTTP switches off routes of TCP of the section that it is for, and of no other."""

    def to(section: str, **rest: Any) -> Data:
        return {"targetRef": {"kind": "MeshService", "name": "backend", "sectionName": section}, "rules": [rest]}

    elsewhere = {"backendRefs": [{"kind": "MeshService", "name": "elsewhere"}]}
    http = policy("MeshHTTPRoute", "http", to=[to("http", matches=[{"method": "GET"}], default={})])
    tcp = policy("MeshTCPRoute", "tcp", to=[to("admin", default=elsewhere)])
    world = world_of("\n---\n".join([_without_route(), text(http, tcp)]))

    assert _having_the_route(world, "MeshHTTPRoute") == {"plain http"} | TAGS
    assert _having_the_route(world, "MeshTCPRoute") == {"plain admin"} | TAGS
