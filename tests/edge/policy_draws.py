"""Random gateways with many policies for timeouts and retries: for whom, for what, and from where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Final

from cp.model.source import universal
from tests.edge.draws import KINDS, Draw, draw
from tests.edge.listeners import mesh_gateway
from tests.oracle.reading import read
from tests.random_mesh import Mesh, confs
from tests.random_mesh.targets import called
from tests.random_mesh.words import (
    GATEWAYS,
    MISSING,
    NAME_LABEL,
    NAMESPACES,
    ORIGIN_LABEL,
    PORTS,
    ROUTES,
    SERVICES,
    TCP_ROUTES,
    TEAMS,
    ZONE_LABEL,
    ZONES,
    Data,
    Home,
    Make,
    in_kubernetes,
    nullable,
    several,
    sometimes,
    team,
    weighted,
)

NAMES: Final = ("p-1", "p-2", "p-3", "p-4", "p-5", "p-6")
_MORE: Final[Mapping[str, int]] = {
    "certificate of a gateway": 6,
    "MeshHTTPRoute of a gateway": 4,
    "MeshTCPRoute of a gateway": 2,
    "Dataplane": 3,
    "MeshService": 4,
    "MeshExternalService": 3,
    "MeshMultiZoneService": 2,
    "builtin gateway": 1,
}


def _with_nulls(make: Make) -> Make:
    """More of them than a conf has anyway, inside of its objects."""

    def made(chance: Random) -> Data:
        conf: Data = make(chance)
        return {
            name: nullable(chance, part, 0.3) if isinstance(part, dict) and name != "tcp" else part
            for name, part in conf.items()
        }

    return made


_CONFS: Final = {"MeshTimeout": _with_nulls(confs.timeouts), "MeshRetry": _with_nulls(confs.retries)}
_OF_TCP_ROUTES: Final = {"MeshTimeout": confs.timeouts_of_tcp_route, "MeshRetry": confs.retries_of_tcp_route}
_OF_ROUTES: Final = {"MeshTimeout": confs.timeouts_of_route, "MeshRetry": confs.retries_of_route}


def draw_with_policies(seed: int, address: str) -> Draw:
    """A gateway of `draws`, in a place, with policies of which most are for some of its listeners."""
    drawn, chance = draw(seed, address, KINDS, _MORE), Random(f"policies {seed}")
    place = Home(*_place(chance))
    suited = [_suited(chance, each, place) for each in (*drawn.mesh.documents, *several(chance, _plain_service, 0, 2))]
    documents = list({_key(each): each for each in suited}.values())
    gateways = [*_gateways(documents, drawn.proxy)] * 4 + list(GATEWAYS)
    policies = [_policy(chance, gateways) for _ in range(chance.randint(16, 40))]
    named = {_key(each): each for each in policies}
    return Draw(Mesh((*documents, *named.values()), seed), drawn.proxy)


def _key(policy: Data) -> tuple[str, str]:
    fields = universal(policy)
    return fields["type"], fields["name"]


def _place(chance: Random) -> tuple[str, str]:
    """A namespace and a zone."""
    namespace = chance.choice(["", "", "", *NAMESPACES])
    return namespace, chance.choice(["", "", "", *ZONES[:2]])


def _suited(chance: Random, document: Data, place: Home) -> Data:
    """The gateway is in a place, and most listeners are for requests. The names stay: by these they are known."""
    if document.get("type") == "Dataplane":
        return _of_envoy(document, place)
    if document.get("type") == "MeshGateway":
        return _with_requests(chance, document, place)
    return _led(chance, document) if document.get("type") == "MeshHTTPRoute" else document


def _of_envoy(proxy: Data, place: Home) -> Data:
    """No client of gRPC, and a gateway is in a place."""
    written = {name: text for name, text in proxy.get("labels", {}).items() if name != "koguma.io/client"}
    if not proxy["networking"].get("gateway"):
        return {**proxy, "labels": written}
    of_place = place.named("Dataplane", "", {}).get("labels", {})
    return {**proxy, "labels": {**of_place, NAME_LABEL: proxy["name"], "app": "web", **written}}


def _led(chance: Random, route: Data) -> Data:
    """Most rules of most routes lead to one service, and some take all requests that no other takes."""
    spec = route["spec"]
    if spec.get("targetRef", {}).get("kind") != "MeshGateway":
        return route
    to = [{**item, "rules": [_led_to_service(chance, rule) for rule in item["rules"]]} for item in spec["to"]]
    return {**route, "spec": {**spec, "to": to}}


def _led_to_service(chance: Random, rule: Data) -> Data:
    """A filter is left of a weaker route whose backends a stronger one replaces."""
    if chance.random() < 0.3:
        return rule
    refs = several(chance, _backend, 1, chance.choice([1, 1, 2]))
    root = [{"path": {"type": "PathPrefix", "value": "/"}}]
    header = {
        "type": "ResponseHeaderModifier",
        "responseHeaderModifier": {"add": [{"name": "x-route", "value": "yes"}]},
    }
    default = {"backendRefs": refs, **sometimes(chance, 0.3, {"filters": [header]})}
    return {"matches": root if chance.random() < 0.5 else rule["matches"], "default": default}


def _backend(chance: Random) -> Data:
    if chance.random() < 0.15:
        kind = chance.choice(["MeshExternalService", "MeshExternalService", "MeshMultiZoneService"])
        return {"kind": kind, "name": chance.choice(SERVICES), "port": chance.choice(PORTS)}
    port = sometimes(chance, 0.6, {"port": chance.choice(PORTS)})
    return {"kind": "MeshService", "name": chance.choice([SERVICES[0], *SERVICES]), **port}


def _with_requests(chance: Random, gateway: Data, place: Home) -> Data:
    """The listeners of a port keep one protocol."""
    of_zone = {ZONE_LABEL: place.zone, ORIGIN_LABEL: "zone"} if place.zone else {}
    labels = {**of_zone, **gateway.get("labels", {})}
    listeners = gateway["conf"]["listeners"]
    ports = {
        each["port"] for each in listeners if chance.random() < (0.6 if each["protocol"] in {"TCP", "TLS"} else 0.3)
    }
    conf = {"listeners": [_plain(each) if each["port"] in ports else each for each in listeners]}
    return {**gateway, **({"labels": labels} if labels else {}), "conf": conf}


def _plain(listener: Data) -> Data:
    return {name: field for name, field in listener.items() if name != "tls"} | {"protocol": "HTTP"}


def _gateways(documents: list[Data], name: str) -> Iterator[str]:
    """The name of the MeshGateway that a proxy has, if it has any."""
    read_documents = read(documents)
    proxy = read_documents.get("Dataplane", name)
    gateway = None if proxy is None else mesh_gateway(read_documents, proxy)
    if gateway is not None:
        yield gateway.identity.name


def _policy(chance: Random, gateways: list[str]) -> Data:
    """Several have one name, in several places; some have a role of which only a label tells."""
    kind = chance.choice(sorted(_CONFS))
    name, home, labels = chance.choice(NAMES), _home(chance), _labels(chance)
    if home.namespace and chance.random() < 0.6:
        labels["kuma.io/policy-role"] = chance.choice(["system", "producer", "consumer"])
    is_system = labels.get("kuma.io/policy-role", "system") == "system"
    top = _top(chance, gateways, is_system=is_system)
    spec = {**top, **_parts(chance, kind, top.get("targetRef", {}))}
    if is_system and chance.random() < 0.1:
        return in_kubernetes(kind, name, "kuma-system", {}, spec)
    return home.named(kind, name, labels, spec=spec)


def _home(chance: Random) -> Home:
    if chance.random() < 0.65:
        return Home()
    return Home(*_place(chance))


def _labels(chance: Random) -> dict[str, str]:
    return {
        **sometimes(chance, 0.05, {"kuma.io/effect": "shadow"}),
        **sometimes(chance, 0.15, {"kuma.io/origin": chance.choice(["global", "zone"])}),
    }


def _top(chance: Random, gateways: list[str], *, is_system: bool) -> Data:
    choices = [
        (1, lambda _: {}),
        (4, lambda drawn: {"kind": "Mesh", **_types(drawn)}),
        (3, lambda drawn: {"kind": "MeshSubset", "tags": _tags(drawn, drawn.choice([0, 0, 1, 1, 2])), **_types(drawn)}),
        (1, lambda drawn: {"kind": "MeshService", "name": drawn.choice([*GATEWAYS, SERVICES[0]])}),
        (1, lambda drawn: {"kind": "MeshServiceSubset", "name": drawn.choice(GATEWAYS), "tags": team(drawn)}),
        (
            1,
            lambda drawn: {"kind": "Dataplane", **drawn.choice([{}, {"labels": {"app": "web"}}, {"name": "the-edge"}])},
        ),
        (6 if is_system else 0, lambda drawn: _gateway(drawn, gateways)),
        (
            2 if is_system else 0,
            lambda drawn: {"kind": "MeshHTTPRoute", "name": drawn.choice([*ROUTES, *ROUTES, MISSING])},
        ),
    ]
    target = weighted(choices)(chance)
    return {"targetRef": target} if target else {}


def _types(chance: Random) -> Data:
    types: list[list[str]] = [[], *[["Gateway"]] * 4, ["Sidecar"], ["Gateway", "Sidecar"]]
    return sometimes(chance, 0.6, {"proxyTypes": chance.choice(types)})


def _gateway(chance: Random, gateways: list[str]) -> Data:
    tags = {name: chance.choice([tag, tag, "*"]) for name, tag in _tags(chance, chance.choice([0, 0, 1, 1, 2])).items()}
    return {"kind": "MeshGateway", "name": chance.choice(gateways), **({"tags": tags} if tags else {})}


def _tags(chance: Random, count: int) -> dict[str, str]:
    tags = {"listener": chance.choice(["x", "y"]), "team": chance.choice(TEAMS)}
    return {name: tags[name] for name in chance.sample(sorted(tags), count)}


def _parts(chance: Random, kind: str, target: Data) -> Data:
    """What is called, and of timeouts the clients as well."""
    is_narrow = target.get("kind") in {"MeshGateway", "MeshHTTPRoute"}
    routes = chance.choice([0, 0.7])
    to = several(chance, lambda drawn: _item(drawn, kind, target.get("kind", "Mesh"), routes), 1, 3)
    if kind != "MeshTimeout" or target.get("kind") == "MeshHTTPRoute" or chance.random() < 0.7:
        return {"to": to}
    items = several(chance, lambda drawn: {"default": confs.timeouts(drawn)}, 1, 2)
    if is_narrow or chance.random() < 0.5:
        return {"rules": [_rule_of_clients(chance) if chance.random() < 0.2 else item for item in items]}
    return {
        "from": [{"targetRef": {"kind": "Mesh"}, **item} for item in items],
        **({"to": to} if chance.random() < 0.5 else {}),
    }


def _rule_of_clients(chance: Random) -> Data:
    """A gateway's clients show nothing by which such a rule could know them."""
    match = {"spiffeID": {"type": "Exact", "value": "spiffe://default/orders"}}
    return {"matches": [match], "default": confs.timeouts_of_clients(chance)}


def _item(chance: Random, kind: str, top: str, routes: float) -> Data:
    """`routes`: how many of a policy's items are for routes. A policy with any is not for services by their tags."""
    if top == "MeshHTTPRoute":
        return {"targetRef": {"kind": "Mesh"}, "default": _OF_ROUTES[kind](chance)}
    if chance.random() < routes:
        return {"targetRef": _route(chance), "default": _OF_ROUTES[kind](chance)}
    if chance.random() < routes / 5:
        return {"targetRef": {"kind": "MeshTCPRoute", "name": TCP_ROUTES[0]}, "default": _OF_TCP_ROUTES[kind](chance)}
    target: Data = {"kind": "Mesh"}
    if top == "MeshGateway":
        target = chance.choice(
            [target, target, target, {"kind": "MeshExternalService", "name": chance.choice(SERVICES)}]
        )
    elif chance.random() < 0.75:
        target = _service(chance)
    return {"targetRef": target, "default": _CONFS[kind](chance)}


def _plain_service(chance: Random) -> Data:
    """A service in no place in particular."""
    ports: list[Data] = [{"port": port, "appProtocol": chance.choice(["http", "grpc", "http2"])} for port in PORTS]
    ports[0] |= sometimes(chance, 0.5, {"name": "port-80"})
    name = chance.choice(SERVICES[:2])
    spec = {"selector": {"dataplaneTags": {"kuma.io/service": name}}, "ports": ports}
    return Home().named("MeshService", name, team(chance), spec=spec)


def _service(chance: Random) -> Data:
    """Any, or that to which most routes lead."""
    if chance.random() < 0.3:
        return called(chance)
    section = sometimes(chance, 0.2, {"sectionName": chance.choice(["80", "port-80", "port-81"])})
    return {
        "kind": "MeshService",
        **chance.choice([{"name": SERVICES[0]}, {"name": SERVICES[0]}, {"labels": {NAME_LABEL: SERVICES[0]}}]),
        **section,
    }


def _route(chance: Random) -> Data:
    by_name = {
        "name": chance.choice([*ROUTES, *ROUTES, MISSING]),
        **sometimes(chance, 0.15, {"namespace": chance.choice(NAMESPACES)}),
    }
    return {
        "kind": "MeshHTTPRoute",
        **chance.choice([by_name, by_name, {"labels": {NAME_LABEL: chance.choice(ROUTES)}}]),
    }
