"""Small random meshes, valid by construction: few names, so that policies meet; every field of timeouts and retries.

    @given(meshes())
    def test_something(mesh: Mesh) -> None:
        world = mesh.world()

A mesh comes from a seed, which is fast. What fails is made smaller by leaving documents out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, Final

import yaml
from hypothesis import strategies as st

from cp.model.document import Document
from cp.model.source import read_documents
from cp.model.violation import Severity
from cp.policies import Policy, discover, kinds
from cp.resources.resource import Resource
from cp.resources.world import World

Data = dict[str, Any]
Make = Callable[[Random], Any]

FILE: Final = "mesh.yaml"
MESH: Final = {"type": "Mesh", "name": "default", "skipCreatingInitialPolicies": ["*"]}
SERVICES: Final = ("backend", "orders", "redis")
OUTSIDE: Final = ("payments", "backend")
"""Services outside the mesh, one with the name of one inside."""

DATAPLANES: Final = ("dp-1", "dp-2", "dp-3")
PORTS: Final = (80, 81)
ROUTES: Final = ("route-a", "route-b")
TCP_ROUTES: Final = ("tcp-a",)
PATHS: Final = ("/", "/api", "/api/v1", "/slow")
TEAMS: Final = ("red", "blue")

_MOST: Final = 24
_PROTOCOLS: Final = ("http", "http", "http2", "grpc", "tcp")
_CONDITIONS: Final = ("5xx", "GatewayError", "Reset", "ConnectFailure", "HttpMethodGet", "503", "Retriable4xx")
_GRPC_CONDITIONS: Final = ("Canceled", "DeadlineExceeded", "Internal", "ResourceExhausted", "Unavailable")
_HEADER: Final = {"name": "x-try", "type": "Exact", "value": "1"}


@cache
def policies() -> tuple[Policy[Any], ...]:
    return discover()


@dataclass(frozen=True)
class Mesh:
    """The documents of one mesh, as a file has them."""

    documents: tuple[Data, ...]

    @property
    def text(self) -> str:
        text: str = yaml.dump_all(self.documents, Dumper=yaml.CSafeDumper, sort_keys=False)
        return text

    def read(self) -> tuple[Document, ...]:
        return read_documents(self.text, FILE).documents

    def world(self) -> World:
        """Its World. A document that is made here and that a validator refuses is a fault of one of the two."""
        world = World.of(self.read(), kinds(policies()))
        errors = [str(finding) for finding in world.findings if finding.severity is Severity.ERROR]
        assert not errors, errors
        return world

    def __repr__(self) -> str:
        return f"Mesh of\n{self.text}"


def meshes() -> st.SearchStrategy[Mesh]:
    """Meshes with services, dataplanes that call them, routes, and policies for all of that."""
    some = st.lists(st.booleans(), min_size=_MOST, max_size=_MOST)
    kept = st.one_of(some, st.just([True] * _MOST), st.just([True] * _MOST))
    return st.builds(lambda seed, keep: _mesh(Random(seed), keep), st.integers(0, 2**48), kept)


def _mesh(chance: Random, keep: Sequence[bool]) -> Mesh:
    documents = list(_documents(chance))
    kept = [one for one, wanted in zip(documents, keep, strict=False) if wanted]
    return Mesh((MESH, *kept, *documents[len(keep) :]))


def dataplanes(world: World) -> list[Resource]:
    return list(world.table("Dataplane", "default"))


def _documents(chance: Random) -> Iterator[Data]:
    """The policies first, which are the first to be left out."""
    yield from _named(chance, "MeshTimeout", ("t-1", "t-2", "t-3", "t-4", "t-5", "t-6"), timeout)
    yield from _named(chance, "MeshRetry", ("r-1", "r-2", "r-3", "r-4"), retry)
    yield from _named(chance, "MeshHTTPRoute", ROUTES, http_route)
    yield from _named(chance, "MeshTCPRoute", TCP_ROUTES, tcp_route)
    yield from _named(chance, "MeshService", SERVICES, service)
    yield from _named(chance, "MeshExternalService", OUTSIDE, service_outside)
    for name in DATAPLANES:
        yield {"type": "Dataplane", "mesh": "default", "name": name, **dataplane(chance)}


def _named(chance: Random, kind: str, names: Sequence[str], make: Make) -> Iterator[Data]:
    for name in names:
        if chance.random() < 0.75:
            yield {"type": kind, "mesh": "default", "name": name, "spec": make(chance)}


def some_of(chance: Random, fields: dict[str, Make]) -> Data:
    """An object with some of its fields, and at least one."""
    names = chance.sample(sorted(fields), chance.randint(1, len(fields)))
    return {name: fields[name](chance) for name in sorted(names)}


def nullable(chance: Random, conf: Data) -> Data:
    """Now and then a further field is an explicit null, which takes away what others say."""
    return {name: None if len(conf) > 1 and chance.random() < 0.15 else value for name, value in conf.items()}


def _some(chance: Random, make: Make, least: int, most: int) -> list[Any]:
    return [make(chance) for _ in range(chance.randint(least, most))]


def service(chance: Random) -> Data:
    ports = [_port(chance, port) for port in chance.sample(PORTS, chance.randint(1, 2))]
    selector = {"kuma.io/service": chance.choice(SERVICES)} if chance.random() < 0.8 else {"team": "red"}
    return {"selector": {"dataplaneTags": selector}, "ports": ports}


def service_outside(chance: Random) -> Data:
    """One that can be served, in four cases of five."""
    match = {"port": chance.choice(PORTS), "protocol": chance.choice(_PROTOCOLS)}
    if chance.random() < 0.2:
        return {"match": match}
    return {"match": match, "endpoints": [{"address": "payments.example.com", "port": 8443}]}


def _port(chance: Random, port: int) -> Data:
    name = {"name": f"port-{port}"} if chance.random() < 0.5 else {}
    return {**name, "port": port, "targetPort": 9000, "appProtocol": chance.choice(_PROTOCOLS)}


def dataplane(chance: Random) -> Data:
    tags = {
        "kuma.io/service": chance.choice(SERVICES),
        "kuma.io/protocol": chance.choice(_PROTOCOLS),
        "team": chance.choice(TEAMS),
    }
    inbound = {"port": 9000, "servicePort": 8080, "tags": tags}
    outbounds = [{"port": 10000 + at, **one} for at, one in enumerate(_some(chance, outbound, 0, 4))]
    address = f"10.0.{chance.randint(0, 200)}.{chance.randint(1, 200)}"
    networking: Data = {"address": address, "inbound": [inbound], "outbound": outbounds}
    if chance.random() < 0.25:
        networking["transparentProxying"] = redirection(chance)
    return {"networking": networking}


def redirection(chance: Random) -> Data:
    """What is redirected to a proxy; then it calls all services, or those that it says it reaches."""
    found: Data = {"redirectPortInbound": 15006, "redirectPortOutbound": 15001}
    if chance.random() < 0.3:
        found["reachableServices"] = chance.sample(SERVICES, 1)
    if chance.random() < 0.5:
        found["reachableBackends"] = {"refs": _some(chance, _reachable, 1, 2)}
    return found


def _reachable(chance: Random) -> Data:
    port = {"port": chance.choice(PORTS)} if chance.random() < 0.5 else {}
    return {"kind": "MeshService", "name": chance.choice(SERVICES), **port}


def outbound(chance: Random) -> Data:
    """A port of a real service, or a tag."""
    name = chance.choice(SERVICES)
    if chance.random() < 0.3:
        return {"tags": {"kuma.io/service": name}}
    if chance.random() < 0.2:
        return {"backendRef": {"kind": "MeshExternalService", "name": chance.choice(OUTSIDE)}}
    return {"backendRef": {"kind": "MeshService", "name": name, "port": chance.choice(PORTS)}}


def top(chance: Random) -> Data:
    """Whom a policy is for."""
    chosen: list[Data] = [
        {},
        {"targetRef": {"kind": "Mesh"}},
        {"targetRef": {"kind": "MeshSubset", "tags": {"team": chance.choice(TEAMS)}}},
        {"targetRef": {"kind": "Dataplane", "name": chance.choice(DATAPLANES)}},
        {"targetRef": {"kind": "MeshService", "name": chance.choice(SERVICES)}},
    ]
    return chance.choice(chosen)


def service_target(chance: Random) -> Data:
    if chance.random() < 0.2:
        return {"kind": "MeshExternalService", "name": chance.choice(OUTSIDE)}
    section = chance.choice([{}, {}, {"sectionName": "port-80"}, {"sectionName": "80"}, {"sectionName": "81"}])
    return {"kind": "MeshService", "name": chance.choice(SERVICES), **section}


def http_route(chance: Random) -> Data:
    rules = _some(chance, _http_rule, 1, 3)
    return {**top(chance), "to": [{"targetRef": service_target(chance), "rules": rules}]}


def _http_rule(chance: Random) -> Data:
    default: Data = {}
    if chance.random() < 0.6:
        default["backendRefs"] = _some(chance, backend_ref, 1, 2)
    if chance.random() < 0.2:
        default["filters"] = [{"type": "RequestRedirect", "requestRedirect": {"statusCode": 301, "hostname": "else"}}]
    return {"matches": _some(chance, _match, 1, 2), "default": default}


def _match(chance: Random) -> Data:
    kind, value = chance.choice(["Exact", "PathPrefix", "PathPrefix", "RegularExpression"]), chance.choice(PATHS)
    found: Data = {"path": {"type": kind, "value": f"{value}.*" if kind == "RegularExpression" else value}}
    if chance.random() < 0.25:
        found["method"] = chance.choice(["GET", "POST"])
    if chance.random() < 0.25:
        found["headers"] = [{"name": "x-version", "type": "Exact", "value": chance.choice(["1", "2"])}]
    return found


def backend_ref(chance: Random) -> Data:
    weight = {"weight": chance.randint(0, 3)} if chance.random() < 0.5 else {}
    name = chance.choice([*SERVICES, *SERVICES, "nobody"])
    if chance.random() < 0.3:
        return {"kind": "MeshServiceSubset", "name": name, "tags": {"team": chance.choice(TEAMS)}, **weight}
    if chance.random() < 0.2:
        return {"kind": "MeshExternalService", "name": chance.choice(OUTSIDE), **weight}
    return {"kind": "MeshService", "name": name, "port": chance.choice(PORTS), **weight}


def tcp_route(chance: Random) -> Data:
    rules = [{"default": {"backendRefs": _some(chance, backend_ref, 1, 2)}}]
    return {**top(chance), "to": [{"targetRef": service_target(chance), "rules": rules}]}


def timeout(chance: Random) -> Data:
    """For calls, for clients or both."""
    if chance.random() < 0.2:
        return {**top(chance), "rules": [{"default": _timeouts(chance)}]}
    to = _some(chance, _item(_timeouts, _timeouts_of_route, _timeouts_of_tcp_route), 1, 3)
    found = {**top(chance), "to": to}
    if chance.random() < 0.3:
        found["from"] = [{"targetRef": {"kind": "Mesh"}, "default": _timeouts(chance)}]
    return found


def retry(chance: Random) -> Data:
    return {**top(chance), "to": _some(chance, _item(_retries, _retries_of_route, _retries_of_tcp_route), 1, 3)}


def _item(conf: Make, of_route: Make, of_tcp_route: Make) -> Make:
    def make(chance: Random) -> Data:
        target = chance.choice(
            [
                {"kind": "Mesh"},
                service_target(chance),
                {"kind": "MeshHTTPRoute", "name": chance.choice(ROUTES)},
                {"kind": "MeshTCPRoute", "name": chance.choice(TCP_ROUTES)},
            ]
        )
        by_kind = {"MeshHTTPRoute": of_route, "MeshTCPRoute": of_tcp_route}
        return {"targetRef": target, "default": by_kind.get(str(target["kind"]), conf)(chance)}

    return make


def _duration(chance: Random, least: int = 0) -> str:
    number = chance.randint(least, 9)
    return chance.choice([f"{number}s", f"{number}m", f"{number * 100}ms"])


def _above_zero(chance: Random) -> str:
    return _duration(chance, 1)


def _timeouts(chance: Random) -> Data:
    return some_of(chance, {"connectionTimeout": _above_zero, "idleTimeout": _duration, "http": _http_timeouts})


def _http_timeouts(chance: Random) -> Data:
    names = ("requestTimeout", "streamIdleTimeout", "maxStreamDuration", "maxConnectionDuration")
    found = nullable(chance, some_of(chance, dict.fromkeys(names, _duration)))
    if all(value is None for value in found.values()):
        found["requestTimeout"] = "0s"
    return found | ({"requestHeadersTimeout": _duration(chance)} if chance.random() < 0.3 else {})


def _timeouts_of_route(chance: Random) -> Data:
    http = nullable(chance, some_of(chance, {"requestTimeout": _duration, "streamIdleTimeout": _duration}))
    return {"http": http if any(value is not None for value in http.values()) else {"requestTimeout": "1s"}}


def _timeouts_of_tcp_route(chance: Random) -> Data:
    return {"idleTimeout": _duration(chance)}


def _back_off(chance: Random) -> Data:
    """Now and then with what would hold without it."""
    base = chance.choice(["25ms", "7ms", "90ms"])
    return some_of(chance, {"baseInterval": lambda _: base, "maxInterval": lambda _: "1s"})


def _retries_with(conditions: Sequence[str], **more: Make) -> Make:
    fields: dict[str, Make] = {
        "numRetries": lambda chance: chance.randint(0, 5),
        "perTryTimeout": _duration,
        "backOff": _back_off,
        "retryOn": lambda chance: sorted(chance.sample(conditions, chance.randint(1, 3))),
        "rateLimitedBackOff": lambda _: {"resetHeaders": [{"name": "retry-after", "format": "Seconds"}]},
    }
    return lambda chance: some_of(chance, {**fields, **more})


_SECTIONS: Final[dict[str, Make]] = {
    "http": _retries_with(
        _CONDITIONS,
        retriableRequestHeaders=lambda _: [_HEADER],
        retriableResponseHeaders=lambda _: [_HEADER],
        hostSelection=lambda _: [{"predicate": "OmitPreviousHosts"}],
        hostSelectionMaxAttempts=lambda chance: chance.randint(1, 5),
    ),
    "grpc": _retries_with(_GRPC_CONDITIONS),
    "tcp": lambda chance: {"maxConnectAttempt": chance.randint(1, 5)},
}


def _retries(chance: Random) -> Data:
    found = some_of(chance, _SECTIONS)
    if set(found.get("http", ())) == {"hostSelectionMaxAttempts"}:
        found["http"]["numRetries"] = 2
    return found


def _retries_of_route(chance: Random) -> Data:
    found = _retries(chance)
    found.pop("tcp", None)
    return found or {"http": {"numRetries": 3}}


def _retries_of_tcp_route(chance: Random) -> Data:
    return {"tcp": _SECTIONS["tcp"](chance)}
