"""The mesh of a run: proxies that all call all services, and the documents that scenarios write."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, Final

from cp.model.document import Document
from cp.model.names import Key
from cp.store.open import open_store
from cp.store.port import Put

MESH: Final = "default"
FEW: Final = 10
"""How many proxies have the label that some edits select."""


def proxy_name(number: int) -> str:
    return f"p{number}"


def documents(proxies: int, services: int) -> Iterator[Document]:
    """Proxies of one class: each calls every service, and no policy distinguishes them."""
    yield of(of_mesh({}))
    for number in range(services):
        yield _document("MeshService", f"s{number}", spec=_service(number))
    for number in range(proxies):
        yield _dataplane(proxy_name(number), number, services)
    yield of(route())
    yield of(route_timeout("1s"))


def of_mesh(fields: dict[str, Any]) -> dict[str, Any]:
    """The Mesh itself, with some more fields."""
    usual = {"skipCreatingInitialPolicies": ["*"], "meshServices": {"mode": "Exclusive"}}
    return {"type": "Mesh", "name": MESH, **usual, **fields}


def fill(url: str, documents: Iterable[Document]) -> None:
    """Write a mesh into a new store, in one transaction."""

    async def write() -> None:
        async with open_store(url) as store:
            await store.write(*map(Put, documents))

    asyncio.run(write())


def path_of(document: dict[str, Any]) -> str:
    if document["type"] == "Mesh":
        return f"/meshes/{document['name']}"
    return f"/meshes/{document['mesh']}/{document['type'].lower()}s/{document['name']}"


def of(data: dict[str, Any]) -> Document:
    return Document(Key(data["type"], data.get("mesh", ""), data["name"]), data)


def route(service: int = 0) -> dict[str, Any]:
    """A route for calls of the first service, to itself or to another one."""
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": "/slow"}}],
        "default": {"backendRefs": [{"kind": "MeshService", "name": f"s{service}", "port": 80}]},
    }
    to = [{"targetRef": {"kind": "MeshService", "name": "s0"}, "rules": [rule]}]
    return _data("MeshHTTPRoute", "slow", spec={"to": to})


def route_timeout(timeout: str) -> dict[str, Any]:
    return _timeout("of-a-route", {"kind": "MeshHTTPRoute", "name": "slow"}, timeout)


def timeout_for_few(timeout: str) -> dict[str, Any]:
    top = {"kind": "Dataplane", "labels": {"few": "yes"}}
    return _timeout("for-few", {"kind": "MeshService", "name": "s1"}, timeout, top)


def timeout_for_nobody(timeout: str) -> dict[str, Any]:
    top = {"kind": "Dataplane", "labels": {"few": "nobody"}}
    return _timeout("for-nobody", {"kind": "MeshService", "name": "s1"}, timeout, top)


def timeout_in_bulk(number: int, services: int, timeout: str) -> dict[str, Any]:
    return _timeout(f"bulk-{number}", {"kind": "MeshService", "name": f"s{number % services}"}, timeout)


def endpoint() -> dict[str, Any]:
    """One more endpoint of the first service, with no proxy behind it."""
    return _networked("flapping", {}, {"address": "127.255.0.1", "inbound": [_inbound(0)]})


def _service(number: int) -> dict[str, Any]:
    return {
        "selector": {"dataplaneTags": {"kuma.io/service": f"s{number}"}},
        "ports": [{"port": 80, "targetPort": 8080, "appProtocol": "http"}],
    }


def _dataplane(name: str, number: int, services: int) -> Document:
    """A Dataplane with transparent proxying: it can call every service without naming them."""
    address = f"127.{1 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
    labels = {"few": "yes"} if number < FEW else {}
    redirected = {"redirectPortInbound": 15006, "redirectPortOutbound": 15001}
    inbound = [_inbound(number % services)]
    return of(_networked(name, labels, {"address": address, "inbound": inbound, "transparentProxying": redirected}))


def _inbound(service: int) -> dict[str, Any]:
    return {"port": 8080, "tags": {"kuma.io/service": f"s{service}", "kuma.io/protocol": "http"}}


def _networked(name: str, labels: dict[str, str], networking: dict[str, Any]) -> dict[str, Any]:
    return _data("Dataplane", name, labels=labels, networking=networking)


def _timeout(name: str, to: dict[str, Any], timeout: str, top: dict[str, Any] | None = None) -> dict[str, Any]:
    item = {"targetRef": to, "default": {"http": {"requestTimeout": timeout}}}
    return _data("MeshTimeout", name, spec={"targetRef": top or {"kind": "Mesh"}, "to": [item]})


def _data(type_: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"type": type_, "mesh": MESH, "name": name, **fields}


def _document(type_: str, name: str, **fields: Any) -> Document:
    return of(_data(type_, name, **fields))
