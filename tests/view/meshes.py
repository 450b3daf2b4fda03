"""Small meshes with proxies to which their machines redirect traffic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cp.model.document import Document
from cp.model.names import Key
from cp.policies import kinds
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.view.proxies import outbounds
from tests.random_mesh import MESH, document
from tests.snapshots import policies


def world(*documents: Document, mesh: Mapping[str, Any] | None = None) -> World:
    made = World.of([Document(MESH.key, {**MESH.data, **(mesh or {})}), *documents], kinds(policies()))
    assert not list(made.findings)
    return made


def service(name: str, *ports: int, vip: str = "", **labels: str) -> Document:
    status = {"status": {"vips": [{"ip": vip}]}} if vip else {}
    spec = {"selector": {"dataplaneTags": {"app": name}}, "ports": [{"port": port} for port in ports or (80,)]}
    return document("MeshService", name, labels=labels, spec=spec, **status)


def external(name: str, port: int = 443, vip: str = "") -> Document:
    status = {"status": {"vips": [{"ip": vip}]}} if vip else {}
    match = {"type": "HostnameGenerator", "port": port, "protocol": "tcp"}
    return document("MeshExternalService", name, spec={"match": match}, **status)


def redirected(
    name: str = "client",
    *,
    address: str = "10.0.0.1",
    tag: str = "client",
    ready: bool = True,
    port: int = 8080,
    **said: Any,
) -> Document:
    """A dataplane whose workload calls everybody, unless it says more."""
    inbound = {"port": port, "tags": {"kuma.io/service": tag, "app": tag}, "health": {"ready": ready}}
    networking = {"address": address, "inbound": [inbound], "transparentProxying": said}
    return document("Dataplane", name, networking=networking)


def dataplane(world: World, name: str = "client") -> Resource:
    found = world.get(Key("Dataplane", "default", name))
    assert found is not None
    return found


def called(world: World, name: str = "client") -> set[str]:
    """What a dataplane's workload can call: kinds, names and ports; a tag by itself."""
    destinations = ((one.destination, one.port) for one in outbounds(world, dataplane(world, name)))
    return {
        f"{one.identity.type} {one.identity.name}:{port}" if one.identity else one.service for one, port in destinations
    }
