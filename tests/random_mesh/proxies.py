"""The mesh itself, and its proxies: sidecars, gateways of both sorts and gRPC clients, with all sorts of outbounds."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any, Final

import trustme

from cp.identity.trust import TrustedRoot, TrustRecord, record_document
from cp.model.secret_names import trust_key
from tests.random_mesh.services import TARGET_PORTS
from tests.random_mesh.words import (
    DATAPLANES,
    GATEWAYS,
    NAME_LABEL,
    NAMESPACE_LABEL,
    NAMESPACES,
    ORIGIN_LABEL,
    PORTS,
    PROTOCOLS,
    SERVICES,
    TEAMS,
    ZONE_LABEL,
    ZONES,
    Data,
    apart,
    several,
    sometimes,
    team,
    weighted,
)

_MANY: Final = 4
_LAST: Final = len(DATAPLANES) - 1
_WITH_SHARED_INBOUNDS: Final = 1
_WITH_SHARED_WORKLOAD: Final = 2
_WITH_MTLS: Final = 0.3
_STRICT: Final = 0.17
"""The share of meshes that are strict; the other ones with mTLS are permissive."""


def mesh(chance: Random) -> Data:
    """The Mesh, with no policies of its own: with and without mTLS, and with all modes of its services."""
    mesh_data: Data = {"type": "Mesh", "name": "default", "skipCreatingInitialPolicies": ["*"]}
    if chance.random() < 0.5:
        mesh_data["networking"] = {"outbound": {"passthrough": chance.random() < 0.5}}
    if chance.random() < 0.6:
        mode = chance.choice(["Disabled", "Everywhere", "ReachableBackends", "Exclusive"])
        mesh_data["meshServices"] = {"mode": mode}
    drawn = chance.random()
    return mesh_data | ({"mtls": _mtls("STRICT" if drawn < _STRICT else "PERMISSIVE")} if drawn < _WITH_MTLS else {})


def _mtls(mode: str) -> Data:
    return {"enabledBackend": "ca-1", "backends": [{"name": "ca-1", "type": "builtin", "mode": mode}]}


def trust(mesh_data: Data) -> list[Data]:
    """The record of who signs for a mesh; nothing without mTLS. Of open meshes some have callers that speak TLS."""
    if "mtls" not in mesh_data:
        return []
    is_strict = mesh_data["mtls"]["backends"][0]["mode"] == "STRICT"
    root = TrustedRoot(fingerprint="0" * 64, certificate=_root(), backend="ca-1", since=1.0, lifetime=86_400.0)
    record = TrustRecord(roots=(root,), signer=root.fingerprint, callers=is_strict or "networking" in mesh_data)
    return [dict(record_document(trust_key("default"), record).data)]


@cache
def _root() -> str:
    """Made anew in each run: nothing depends on what it says."""
    return trustme.CA().cert_pem.bytes().decode()


def dataplane(chance: Random) -> Data:
    number = chance.randrange(len(DATAPLANES))
    make = chance.choices([_sidecar, _delegated, _builtin], [8, 1, 1])[0]
    networking = {"address": f"127.0.0.{number + 1}", **make(chance)}
    _share_places(number, networking)
    return {
        "type": "Dataplane",
        "mesh": "default",
        "name": DATAPLANES[number],
        "labels": _labels(chance),
        "networking": networking,
    }


def _share_places(number: int, networking: Data) -> None:
    """Now and then two want one address and port: inbounds of one proxy or of two, or the first and last outbound.

    Or two inbounds lead to one port of the workload.
    """
    inbounds, outbounds = networking.get("inbound") or [], networking.get("outbound") or []
    if number == _WITH_SHARED_INBOUNDS and len(inbounds) > 1:
        inbounds[-1]["port"] = inbounds[0]["port"]
    if number == _WITH_SHARED_WORKLOAD and len(inbounds) > 1:
        inbounds[-1]["servicePort"] = inbounds[0]["servicePort"]
    if number == _LAST and len(inbounds) > 1:
        networking["address"] = f"127.0.0.{number}"
    if number == _LAST and len(outbounds) == _MANY:
        outbounds[-1]["port"] = outbounds[0]["port"]


def _labels(chance: Random) -> dict[str, str]:
    """Now and then there is no Envoy."""
    labels = {"app": chance.choice(["web", "jobs"])}
    labels |= sometimes(chance, 0.3, {NAMESPACE_LABEL: chance.choice(NAMESPACES)})
    labels |= sometimes(chance, 0.1, {"koguma.io/client": "grpc"})
    return labels | _zone(apart(chance))


def _zone(chance: Random) -> dict[str, str]:
    """Now and then the zone of the proxy, as the control plane of a zone writes it or as an operator does."""
    labels = sometimes(chance, 0.4, {ZONE_LABEL: chance.choice(ZONES)})
    return labels | (sometimes(chance, 0.6, {ORIGIN_LABEL: "zone"}) if labels else {})


def _tags(chance: Random) -> dict[str, str]:
    tags = {"kuma.io/service": chance.choice(SERVICES), **team(chance)}
    tags |= sometimes(chance, 0.85, {"kuma.io/protocol": chance.choice(PROTOCOLS)})
    return tags | sometimes(chance, 0.3, {"kuma.io/zone": chance.choice(ZONES)})


def _sidecar(chance: Random) -> Data:
    ports = TARGET_PORTS[: chance.choice([1, 1, 1, 2])]
    networking: Data = {"inbound": [_inbound(chance, port) for port in ports], "outbound": outbounds(chance)}
    if chance.random() < 0.25:
        networking["transparentProxying"] = redirection(chance)
    return networking


def _inbound(chance: Random, port: int) -> Data:
    inbound: Data = {"port": port, "servicePort": port - 1000, "tags": _tags(chance)}
    inbound |= sometimes(chance, 0.3, {"name": f"in-{port}"})
    return inbound | sometimes(chance, 0.1, {"health": {"ready": chance.random() < 0.5}})


def _delegated(chance: Random) -> Data:
    tags = {"kuma.io/service": chance.choice(SERVICES), **team(chance)}
    return {"gateway": {"type": "DELEGATED", "tags": tags}, "outbound": outbounds(chance)}


def _builtin(chance: Random) -> Data:
    return {"gateway": {"type": "BUILTIN", "tags": {"kuma.io/service": chance.choice(GATEWAYS)}}}


def gateway(chance: Random) -> Data:
    """A MeshGateway, which builtin gateways are for."""
    name = chance.choice(GATEWAYS)
    listeners = [{"port": 8080 + at, "protocol": "HTTP", "tags": team(chance)} for at in range(chance.randint(1, 2))]
    selectors = [{"match": {"kuma.io/service": name}}]
    return {
        "type": "MeshGateway",
        "mesh": "default",
        "name": name,
        "selectors": selectors,
        "conf": {"listeners": listeners},
    }


def outbounds(chance: Random) -> list[Data]:
    return [{"port": 10000 + at, **outbound} for at, outbound in enumerate(several(chance, _outbound, 0, _MANY))]


def _outbound(chance: Random) -> Any:
    return weighted(
        [
            (5, lambda _: {"backendRef": _by_name(chance, "MeshService")}),
            (3, lambda _: {"tags": {"kuma.io/service": chance.choice(SERVICES)}}),
            (1, lambda _: {"backendRef": _by_name(chance, "MeshExternalService")}),
            (1, lambda _: {"backendRef": _by_name(chance, "MeshMultiZoneService")}),
            (1, lambda _: {"tags": {"kuma.io/service": chance.choice(SERVICES), **team(chance)}}),
            (2, lambda _: {"backendRef": _by_labels(chance)}),
        ]
    )(chance)


def _by_name(chance: Random, kind: str) -> Data:
    """By the display name: of the service in the namespace of the proxy, if there is one."""
    port = {} if kind == "MeshExternalService" else {"port": chance.choice(PORTS)}
    return {"kind": kind, "name": chance.choice(SERVICES), **port}


def _by_labels(chance: Random) -> Data:
    """By the team, or as the one service of a name that is in a namespace or in a zone."""
    of_namespace = {NAMESPACE_LABEL: chance.choice(NAMESPACES)}
    of_zone = {ZONE_LABEL: chance.choice(ZONES)}
    by_name = {NAME_LABEL: chance.choice(SERVICES), **chance.choice([of_namespace, of_zone])}
    return {
        "kind": "MeshService",
        "labels": chance.choice([team(chance), by_name, by_name]),
        "port": chance.choice(PORTS),
    }


def redirection(chance: Random) -> Data:
    """What is redirected to a proxy; then it calls all services, or those that it says it reaches."""
    settings: Data = {"redirectPortOutbound": 15001}
    settings |= sometimes(chance, 0.6, {"redirectPortInbound": 15006})
    settings |= sometimes(chance, 0.3, {"ipFamilyMode": chance.choice(["IPv4", "DualStack"])})
    settings |= sometimes(chance, 0.3, {"reachableServices": chance.sample(SERVICES, 2)})
    if chance.random() < 0.4:
        refs = several(chance, _reachable, 0, 2)
        settings["reachableBackends"] = {"refs": refs} if refs else {}
    return settings


def redirected(chance: Random) -> Data:
    """A sidecar whose workload calls all that its proxy is told of."""
    drawn = dataplane(chance)
    if "gateway" not in drawn["networking"]:
        drawn["networking"]["transparentProxying"] = {"redirectPortOutbound": 15001}
    return drawn


def _reachable(chance: Random) -> Data:
    kind = chance.choice(["MeshService", "MeshService", "MeshExternalService", "MeshMultiZoneService"])
    if chance.random() < 0.3:
        return {"kind": kind, "labels": {"team": chance.choice(TEAMS)}}
    return {"kind": kind, "name": chance.choice(SERVICES), **sometimes(chance, 0.3, {"port": chance.choice(PORTS)})}
