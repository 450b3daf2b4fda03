"""A machine whose traffic is redirected, under load: virtual addresses, names of virtual outbounds, and what passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from tests.edits.field import ALLOW_ALL, Combination, Field, key_of
from tests.edits.table import Edit, State, by_name
from tests.edits.workloads import Caller, Calling, KeptConnection, Lines, echoing_socket
from tests.support.loopback import Address
from tests.support.machines import Machine
from tests.support.mesh import MESH, Document, bare_dataplane, mesh_service
from tests.support.redirected import Redirected, asked_for, dataplane, redirected, vip
from tests.support.waiting import eventually

_OUTSIDE: Final = "10.99.0.3"
_PASSED: Final = "passed HTTP/1", "passed TCP"
_NAMES: Final = {"named HTTP/1": "backend", "named TCP": "lines"}


@dataclass
class RedirectedField(Field):
    """The mesh of a redirected machine. The control plane is on the other machine."""

    near: Machine = None  # type: ignore[assignment]  # set by `redirected_field_under_load`
    far: Machine = None  # type: ignore[assignment]

    def enter(self, state: list[Document]) -> None:
        self.far.run(super().enter, state)

    def _follow(self) -> None:
        """New connections go to the names of the virtual outbound that was added last."""
        outbounds = [document for document in self.current if document["type"] == "VirtualOutbound"]
        active = next(document for document in reversed(outbounds) if _selects_all(document))
        domain = active["conf"]["host"].removeprefix("{{ .service }}")
        for name, service in _NAMES.items():
            address = eventually(partial(self.near.run, asked_for, f"{service}{domain}", Address(_OUTSIDE, 53)))
            self.outbounds[name] = Address(address, int(active["conf"]["port"]))


def _selects_all(outbound: Document) -> bool:
    return bool(outbound["selectors"][0]["match"]["kuma.io/service"] == "*")


def _virtual_outbound(name: str, service: str, port: int) -> Document:
    parameters = [{"name": "service", "tagKey": "kuma.io/service"}]
    conf = {"host": f"{{{{ .service }}}}.{name}.example", "port": str(port), "parameters": parameters}
    selectors = [{"match": {"kuma.io/service": service}}]
    return {"type": "VirtualOutbound", "mesh": "default", "name": name, "selectors": selectors, "conf": conf}


@contextmanager
def redirected_field_under_load(combination: Combination, *, pause: float = 0.03) -> Iterator[RedirectedField]:
    drain_seconds = combination.drain_seconds if combination.is_known else 0
    orders = {"delta": combination.is_delta, "listener_drain_seconds": drain_seconds}
    with redirected(combination.flags, combination.envoy, orders) as machines, ExitStack() as stack:
        mesh = RedirectedField(
            machines.control_plane, machines.folder, combination, stack, near=machines.near, far=machines.far
        )
        for document in _documents(machines, stack):
            mesh.documents[key_of(document)] = document
        machines.apply(*mesh.documents.values())
        mesh.outbounds |= _addresses()
        mesh.enter([])
        for name, calling in _callings(mesh).items():
            caller = Caller(name, calling, pause)
            machines.near.run(caller.__enter__)  # its thread belongs to the machine on which it begins
            stack.callback(caller.__exit__, None, None, None)
            mesh.callers.append(caller)
        mesh.goes_on(3)
        mesh.take_failures()  # of calls before everything was there
        mesh.goes_on(10)
        assert mesh.take_failures() == {}, "the mesh serves every kind of call before the first edit"
        yield mesh


def _documents(machines: Redirected, stack: ExitStack) -> Iterator[Document]:
    for host, port in ((machines.far.address, 21090), (_OUTSIDE, 8090)):
        stack.enter_context(machines.far.run(echoing_socket, upgrades=False, address=Address(host, port)))
    lines = Address(machines.far.address, 21090)
    yield from (MESH, ALLOW_ALL, mesh_service("backend"), mesh_service("lines", "tcp"))
    yield bare_dataplane("lines", "lines", lines, kuma_io__protocol="tcp")
    yield dataplane(machines.near, machines.services["workload"])
    yield _virtual_outbound("shop", "*", 8000)
    yield _virtual_outbound("store", "none", 8001)


def _addresses() -> dict[str, Address]:
    backend, lines = mesh_service("backend"), mesh_service("lines", "tcp")
    return {
        "HTTP/1": vip(backend),
        "TCP": vip(backend, lines),
        "passed HTTP/1": Address(_OUTSIDE, 80),
        "passed TCP": Address(_OUTSIDE, 8090),
    }


def _callings(mesh: Field) -> dict[str, Calling]:
    def at(name: str) -> Callable[[], Address]:
        return lambda: mesh.outbounds[name]

    names = ("", "named ", "passed ")
    http = {f"{name}HTTP/1": KeptConnection(at(f"{name}HTTP/1"), lambda: mesh.longest) for name in names}
    return {**http, **{f"{name}TCP": Lines(at(f"{name}TCP"), mesh.short) for name in names}}


# --- the edits ---


def _passing(**conf: Any) -> State:
    return [{"type": "MeshPassthrough", "mesh": "default", "name": "passthrough", "spec": {"default": conf}}]


def passthrough_policy(_: Field) -> Edit:
    """Everything passes, in a different way each time."""
    address = {"type": "IP", "value": _OUTSIDE}
    closed = {**MESH, "networking": {"outbound": {"passthrough": False}}}
    return Edit(
        [
            [],
            _passing(passthroughMode="All"),
            _passing(passthroughMode="Matched", appendMatch=[address]),
            _passing(passthroughMode="Matched", appendMatch=[{**address, "port": 80, "protocol": "http"}, address]),
            [*_passing(passthroughMode="All"), closed],
        ],
        proxies_tcp=True,
    )


def passthrough_off(_: Field) -> Edit:
    return Edit([[], _passing(passthroughMode="None")], turns_away=_PASSED)


def passthrough_of_the_mesh(_: Field) -> Edit:
    return Edit([[], [{**MESH, "networking": {"outbound": {"passthrough": False}}}]], turns_away=_PASSED)


def reachable_services(mesh: Field) -> Edit:
    """The Dataplane lists what it calls: by tags, and services."""
    names = ["backend", "lines"]
    refs = [{"kind": "MeshService", "name": name} for name in names]

    def narrow(document: Any) -> None:
        listed = {"reachableServices": names, "reachableBackends": {"refs": refs}}
        document["networking"]["transparentProxying"].update(listed)

    return Edit([[], [mesh.changed("Dataplane", "web-1", narrow)]])


def virtual_addresses(_: Field) -> Edit:
    """A service comes and goes."""
    return Edit([[], [mesh_service("new", kuma_io__service="backend")]])


def virtual_outbound_hostnames(_: Field) -> Edit:
    """Both names are there for a while; new connections go to the one that was added last."""
    added, removed = _virtual_outbound("store", "*", 8001), _virtual_outbound("shop", "none", 8000)
    return Edit([[], [added], [removed, added], [added]])


def virtual_outbound_ports(_: Field) -> Edit:
    """The same name at another port too, which new connections use."""
    other = {**_virtual_outbound("shop", "*", 8002), "name": "shop-2"}
    return Edit([[], [other]])


REDIRECTED_EDITS: Final = by_name(
    passthrough_policy,
    passthrough_off,
    passthrough_of_the_mesh,
    reachable_services,
    virtual_addresses,
    virtual_outbound_hostnames,
    virtual_outbound_ports,
)
