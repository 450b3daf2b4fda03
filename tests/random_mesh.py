"""Small random meshes and edits of them, for tests that compare two ways of computing the same."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from random import Random
from typing import Any, Final

import trustme

from cp.model.document import Document
from cp.model.names import Key

SERVICES: Final = ("a", "b", "c")
SECRETS: Final = ("s1", "s2")
ROUTES: Final = ("r1", "r2")
_TEAMS: Final = ("red", "blue")
_PROTOCOLS: Final = ("http", "http", "grpc", "tcp")
_COLLECTORS: Final = ("near", "far")
_REFERRED: Final = "MeshOpenTelemetryBackend"
_ZONES: Final = ("east", "west", "north")
_NULLS: Final = 0.15
"""How often a timeout is a null."""


def document(type_: str, name: str, **fields: Any) -> Document:
    return Document(Key(type_, "default", name), {"type": type_, "mesh": "default", "name": name, **fields})


MESH: Final = Document(Key("Mesh", "", "default"), {"type": "Mesh", "name": "default"})


def random_document(chance: Random) -> Document:
    """One valid document of a mesh with few names, so that they meet."""
    make = chance.choice([*[_dataplane] * 3, *[_service] * 2, *[_timeout] * 2, *_ONCE])
    return make(chance)


def _mesh(chance: Random) -> Document:
    mode = chance.choice(["Disabled", "Everywhere", "ReachableBackends", "Exclusive"])
    outbound = {"passthrough": chance.random() < 0.5}
    spec = {"networking": {"outbound": outbound}, "meshServices": {"mode": mode}} if chance.random() < 0.8 else {}
    return Document(MESH.key, {**MESH.data, **spec})


def _dataplane(chance: Random) -> Document:
    number = chance.randrange(4)
    tags = {"kuma.io/service": chance.choice(SERVICES), "team": chance.choice(_TEAMS)}
    if chance.random() < 0.7:
        tags["kuma.io/protocol"] = chance.choice(_PROTOCOLS)
    if chance.random() < 0.5:
        tags["kuma.io/zone"] = chance.choice(_ZONES)
    inbound: dict[str, Any] = {"port": 8000 + number, "tags": tags}
    if chance.random() < 0.2:
        inbound["health"] = {"ready": chance.random() < 0.5}
    outbounds = [_outbound(chance, 10000 + index) for index in range(chance.randrange(4))]
    networking: dict[str, Any] = {"address": f"127.0.0.{number + 1}", "inbound": [inbound], "outbound": outbounds}
    if chance.random() < 0.5:
        networking["transparentProxying"] = redirection(chance)
    return document("Dataplane", f"dp-{number}", networking=networking, labels=_client(chance))


def _client(chance: Random) -> dict[str, str]:
    """Now and then there is no Envoy."""
    return {"koguma.io/client": "grpc"} if chance.random() < 0.3 else {}


def redirection(chance: Random) -> dict[str, Any]:
    """What is redirected to a proxy, and which services it says that it reaches."""
    found: dict[str, Any] = {"redirectPortOutbound": 15001}
    if chance.random() < 0.5:
        found["redirectPortInbound"] = 15006
    if chance.random() < 0.3:
        found["ipFamilyMode"] = chance.choice(["IPv4", "DualStack"])
    if chance.random() < 0.3:
        found["reachableServices"] = chance.sample(SERVICES, 2)
    if chance.random() < 0.4:
        refs = [_reachable(chance) for _ in range(chance.randrange(3))]
        found["reachableBackends"] = {"refs": refs} if refs else {}
    return found


def _reachable(chance: Random) -> dict[str, Any]:
    kind = chance.choice(["MeshService", "MeshService", "MeshExternalService", "MeshMultiZoneService"])
    if chance.random() < 0.3:
        return {"kind": kind, "labels": {"team": chance.choice(_TEAMS)}}
    port = {"port": chance.choice([80, 81])} if chance.random() < 0.3 else {}
    return {"kind": kind, "name": chance.choice(SERVICES), **port}


def _outbound(chance: Random, port: int) -> dict[str, Any]:
    name = chance.choice(SERVICES)
    if chance.random() < 0.3:
        return {"port": port, "tags": {"kuma.io/service": name}}
    if chance.random() < 0.3:
        return {"port": port, "backendRef": {"kind": "MeshExternalService", "name": chance.choice(SERVICES)}}
    return {"port": port, "backendRef": {"kind": "MeshService", "name": name, "port": 80}}


def _service_outside(chance: Random) -> Document:
    """One that can be served if its secrets are there, and are what they should be."""
    host = chance.choice(["127.0.0.1", "localhost"])
    spec: dict[str, Any] = {
        "match": {"port": chance.choice([80, 81]), "protocol": chance.choice(_PROTOCOLS)},
        "endpoints": [{"address": host, "port": 8000 + chance.randrange(4), "priority": chance.randrange(3)}],
    }
    if chance.random() < 0.7:
        verification: dict[str, Any] = {"mode": chance.choice(["Secured", "SkipSAN", "SkipCA", "SkipAll"])}
        if chance.random() < 0.8:
            verification["caCert"] = {"secret": chance.choice(SECRETS)}
        if chance.random() < 0.3:
            verification["clientCert"] = {"secret": chance.choice(SECRETS)}
            verification["clientKey"] = {"secret": chance.choice(SECRETS)}
        spec["tls"] = {"enabled": True, "verification": verification}
    return document("MeshExternalService", chance.choice(SERVICES), spec=spec, **_known_as(chance))


def _secret(chance: Random) -> Document:
    """A certificate with its key, or nothing that anybody could use."""
    text = chance.choice([*_certificates(), "neither"])
    return document("Secret", chance.choice(SECRETS), data=b64encode(text.encode()).decode())


@cache
def _certificates() -> tuple[str, ...]:
    """Made anew in each run: nothing depends on what they say."""
    issued = (trustme.CA().issue_cert("localhost") for _ in range(2))
    return tuple(one.private_key_and_cert_chain_pem.bytes().decode() for one in issued)


def _service(chance: Random) -> Document:
    name = chance.choice(SERVICES)
    selector = {"kuma.io/service": name} if chance.random() < 0.7 else {"team": chance.choice(_TEAMS)}
    port = {"port": 80, "targetPort": 8000 + chance.randrange(4), "appProtocol": chance.choice(_PROTOCOLS)}
    if chance.random() < 0.5:
        port["name"] = "main"
    fields: dict[str, Any] = {"spec": {"selector": {"dataplaneTags": selector}, "ports": [port]}}
    return document("MeshService", name, **fields, **_known_as(chance))


def _known_as(chance: Random) -> dict[str, Any]:
    """Labels by which others choose it, and now and then an address of its own."""
    labels = {"labels": {"team": chance.choice(_TEAMS)}}
    status = {"status": {"vips": [{"ip": f"241.0.0.{chance.randrange(1, 4)}"}]}} if chance.random() < 0.2 else {}
    return {**labels, **status}


def _service_of_several_zones(chance: Random) -> Document:
    name = chance.choice(SERVICES)
    ports = [{"port": 80, "appProtocol": "http"}]
    selector = {"meshService": {"matchLabels": {"team": chance.choice(_TEAMS)}}}
    return document("MeshMultiZoneService", name, spec={"selector": selector, "ports": ports}, **_known_as(chance))


def _top(chance: Random) -> dict[str, Any]:
    if chance.random() < 0.5:
        return {}
    return {"targetRef": {"kind": "MeshSubset", "tags": {"team": chance.choice(_TEAMS)}}}


def _backend(chance: Random) -> dict[str, Any]:
    name = chance.choice([*SERVICES, "nobody"])
    if chance.random() < 0.3:
        return {"kind": "MeshServiceSubset", "name": name, "tags": {"team": chance.choice(_TEAMS)}}
    if chance.random() < 0.3:
        return {"kind": "MeshExternalService", "name": chance.choice(SERVICES), "weight": chance.randrange(3)}
    return {"kind": "MeshService", "name": name, "port": 80, "weight": chance.randrange(3)}


def _called(chance: Random) -> dict[str, Any]:
    if chance.random() < 0.3:
        return {"kind": "MeshExternalService", "name": chance.choice(SERVICES)}
    return {"kind": "MeshService", "name": chance.choice(SERVICES)}


def _route(chance: Random) -> Document:
    rules = []
    for _ in range(chance.randrange(1, 3)):
        path = {"type": "PathPrefix", "value": chance.choice(["/", "/api", "/api/v1"])}
        backends = [_backend(chance) for _ in range(chance.randrange(3))]
        rules.append({"matches": [{"path": path}], "default": {"backendRefs": backends} if backends else {}})
    to = [{"targetRef": _called(chance), "rules": rules}]
    return document("MeshHTTPRoute", chance.choice(ROUTES), spec={**_top(chance), "to": to})


def _tcp_route(chance: Random) -> Document:
    rules = [{"default": {"backendRefs": [_backend(chance)]}}]
    to = [{"targetRef": {"kind": "MeshService", "name": chance.choice(SERVICES)}, "rules": rules}]
    return document("MeshTCPRoute", chance.choice(ROUTES), spec={**_top(chance), "to": to})


def _seconds(chance: Random) -> str:
    return f"{chance.randrange(10)}s"


def _of_request(chance: Random) -> dict[str, Any]:
    names = chance.sample(["requestTimeout", "streamIdleTimeout"], chance.randrange(1, 3))
    return {"http": {name: None if chance.random() < _NULLS else _seconds(chance) for name in names}}


def _timeout(chance: Random) -> Document:
    target = chance.choice(["Mesh", "MeshService", "MeshExternalService", "MeshHTTPRoute"])
    default = _of_request(chance)
    if target != "MeshHTTPRoute" and chance.random() < 0.5:
        default["connectionTimeout"] = f"{chance.randrange(1, 10)}s"
    return _policy(chance, "MeshTimeout", target, default)


def _retry(chance: Random) -> Document:
    target = chance.choice(["Mesh", "MeshService", "MeshHTTPRoute"])
    default = {chance.choice(["http", "grpc"]): {"numRetries": chance.randrange(4)}}
    return _policy(chance, "MeshRetry", target, default)


def _locality(chance: Random) -> Document:
    failover = [{"to": {"type": "Only", "zones": [zone]}} for zone in chance.sample(_ZONES, 2)]
    awareness: dict[str, Any] = {"disabled": chance.random() < 0.5}
    if chance.random() < 0.5:
        awareness["localZone"] = {"affinityTags": [{"key": "team"}]}
    if chance.random() < 0.5:
        awareness["crossZone"] = {"failover": failover}
    target = chance.choice(["Mesh", "MeshService"])
    return _policy(chance, "MeshLoadBalancingStrategy", target, {"localityAwareness": awareness})


def _collector(chance: Random) -> Document:
    """Something that policies refer to by its name, or by the label of a team."""
    endpoint = {"address": f"127.0.0.{chance.randrange(9)}"}
    made = document("MeshOpenTelemetryBackend", chance.choice(_COLLECTORS), spec={"endpoint": endpoint})
    return Document(made.key, {**made.data, "labels": {"team": chance.choice(_TEAMS)}})


def _by_reference(chance: Random) -> dict[str, Any]:
    by_name = {"name": chance.choice([*_COLLECTORS, "nobody"])}
    wanted = by_name if chance.random() < 0.5 else {"labels": {"team": chance.choice(_TEAMS)}}
    return {"backends": [{"type": "OpenTelemetry", "openTelemetry": {"backendRef": {"kind": _REFERRED, **wanted}}}]}


def _access_log(chance: Random) -> Document:
    return _policy(chance, "MeshAccessLog", chance.choice(["MeshService", "MeshHTTPRoute"]), _by_reference(chance))


def _inbound_log(chance: Random) -> Document:
    rules = [{"default": _by_reference(chance)}]
    return document("MeshAccessLog", f"i-{chance.randrange(2)}", spec={**_top(chance), "rules": rules})


def _trace(chance: Random) -> Document:
    return document("MeshTrace", f"p-{chance.randrange(2)}", spec={**_top(chance), "default": _by_reference(chance)})


def _names(chance: Random) -> Document:
    kind = chance.choice(["meshService", "meshExternalService", "meshMultiZoneService"])
    labels = {"matchLabels": {"team": chance.choice(_TEAMS)}} if chance.random() < 0.5 else {}
    template = chance.choice(["{{ .Name }}.example", '{{ label "team" }}.{{ .Mesh }}'])
    name, spec = f"g-{chance.randrange(2)}", {"selector": {kind: labels}, "template": template}
    return Document(Key("HostnameGenerator", "", name), {"type": "HostnameGenerator", "name": name, "spec": spec})


def _passthrough(chance: Random) -> Document:
    match = {"type": "IP", "value": f"10.0.0.{chance.randrange(3)}", "protocol": chance.choice(["tcp", "http"])}
    default = {"passthroughMode": chance.choice(["All", "None", "Matched"]), "appendMatch": [match]}
    return document("MeshPassthrough", f"p-{chance.randrange(4)}", spec={**_top(chance), "default": default})


def _policy(chance: Random, kind: str, target: str, default: dict[str, Any]) -> Document:
    names = {
        "Mesh": {},
        "MeshService": {"name": chance.choice(SERVICES)},
        "MeshExternalService": {"name": chance.choice(SERVICES)},
        "MeshHTTPRoute": {"name": chance.choice(ROUTES)},
    }
    to = [{"targetRef": {"kind": target, **names[target]}, "default": default}]
    return document(kind, f"p-{chance.randrange(4)}", spec={**_top(chance), "to": to})


_ONCE: Final = (
    *(_route, _tcp_route, _retry, _locality, _service_of_several_zones, _service_outside, _secret, _mesh),
    *(_collector, _access_log, _inbound_log, _trace, _passthrough, _names),
)
