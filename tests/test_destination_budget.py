"""The destinations of proxies take bytes of a budget: those over it are left out before they are built."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from cp.insight.destinations import warnings_of_destinations
from cp.insight.lint import lint
from cp.model.document import Document, Source
from cp.model.names import Key
from cp.policies import kinds
from cp.resources.kinds import Kinds
from cp.resources.limits import DESTINATION_BYTES, Budget
from cp.resources.world import World
from cp.translate.compiler import CompiledProxy, Compiler
from cp.translate.packing import TYPES
from tests.snapshots import policies

LARGE = 1 << 40


def document(kind: str, name: str, created: str = "", **fields: Any) -> Document:
    mesh = {} if kind == "Mesh" else {"mesh": "default"}
    return Document(
        Key(kind, mesh.get("mesh", ""), name),
        {"type": kind, **mesh, "name": name, **fields},
        Source(created=created),
    )


def service(name: str, ports: int, created: str = "") -> Document:
    spec = {
        "selector": {"dataplaneTags": {"kuma.io/service": "web"}},
        "ports": [{"port": 1 + port, "targetPort": 8080, "appProtocol": "http"} for port in range(ports)],
    }
    return document("MeshService", name, created, spec=spec)


def dataplane(name: str, **networking: Any) -> Document:
    inbound = [{"port": 8080, "tags": {"kuma.io/service": "web", "kuma.io/protocol": "http"}}]
    return document("Dataplane", name, networking={"address": "127.0.0.1", "inbound": inbound, **networking})


def redirected(name: str, *reached: str) -> Document:
    backends = {"reachableBackends": {"refs": [{"kind": "MeshService", "name": each} for each in reached]}}
    proxying = {"redirectPortInbound": 15006, "redirectPortOutbound": 15001, **(backends if reached else {})}
    return dataplane(name, transparentProxying=proxying)


def world(*documents: Document, proxy: int = LARGE, mesh: int = LARGE) -> World:
    exclusive = document("Mesh", "default", meshServices={"mode": "Exclusive"})
    return World.of((exclusive, *documents), with_budget(proxy, mesh))


def with_budget(proxy: int = LARGE, mesh: int = LARGE) -> Kinds:
    return kinds(policies(), budget=Budget.of(proxy, mesh))


def compiled(in_world: World, compiler: Compiler | None = None, name: str = "p0") -> CompiledProxy:
    dataplane = in_world.get(Key("Dataplane", "default", name))
    assert dataplane is not None
    return (compiler or Compiler(policies())).proxy(in_world, dataplane)


def called(proxy: CompiledProxy) -> list[str]:
    return [f"{address.destination.service}:{address.port}" for address in proxy.proxy_class.addresses]


def findings(in_world: World) -> Iterator[tuple[str, str]]:
    return ((str(each.resource), each.message) for each in lint(policies(), in_world) if each.code == "over-limit")


def test_destinations_of_many_services_end_at_the_budget() -> None:
    services = [service(f"s{number}", 40) for number in range(5)]
    in_world = world(redirected("p0"), *services, proxy=100 * DESTINATION_BYTES)

    compiler = Compiler(policies())
    proxy = compiled(in_world, compiler)

    assert len(proxy.proxy_class.outbounds) == len(proxy.proxy_class.backends) == 100
    assert compiler.fragments.built < 320
    assert proxy.proxy_class.kept_bytes <= 100 * DESTINATION_BYTES
    ((about, message),) = findings(in_world)
    assert about == "Mesh default"
    assert "100 of 200 destinations" in message
    assert "come to 2,400,000 bytes or more, and 1,200,000 are the most" in message


def test_services_created_first_stay_called() -> None:
    old, new = service("z-old", 3, "2026-01-01T00:00:00Z"), service("a-new", 3, "2026-01-02T00:00:00Z")

    proxy = compiled(world(redirected("p0"), old, new, proxy=4 * DESTINATION_BYTES))

    assert called(proxy) == ["a-new:1", "z-old:1", "z-old:2", "z-old:3"]


def test_written_outbounds_end_at_the_budget() -> None:
    outbound = [
        {"port": 10_000 + port, "backendRef": {"kind": "MeshService", "name": "s0", "port": 1 + port}}
        for port in range(10)
    ]
    in_world = world(dataplane("p0", outbound=outbound), service("s0", 10), proxy=4 * DESTINATION_BYTES)

    assert called(compiled(in_world)) == ["s0:10000", "s0:10001", "s0:10002", "s0:10003"]
    assert ["6 of 10 destinations" in message for _, message in findings(in_world)] == [True]


def test_reachable_backends_fit_whatever_the_mesh_has() -> None:
    services = [service(f"s{number}", 40) for number in range(5)]
    in_world = world(redirected("p0", "s4"), *services, proxy=40 * DESTINATION_BYTES)

    assert len(compiled(in_world).proxy_class.outbounds) == 40
    assert list(findings(in_world)) == []


def test_mesh_budget_keeps_the_first_classes() -> None:
    services = [service(f"s{number}", 20) for number in range(3)]
    proxies = [redirected(f"p{number}", f"s{number}") for number in range(3)]
    in_world = world(*proxies, *services, mesh=42 * DESTINATION_BYTES)
    compiler = Compiler(policies())
    counts = [len(compiled(in_world, compiler, f"p{number}").proxy_class.outbounds) for number in range(3)]

    assert counts[:2] == [20, 20]
    assert 10 <= counts[2] < 20
    assert compiler.taken["default"] <= 42 * DESTINATION_BYTES
    for revision, asked_first in enumerate((2, 0, 1), 1):
        more = service("s9", revision)
        in_world = in_world.next({more.key: more}, revision)
        after = {
            number: len(compiled(in_world, compiler, f"p{number}").proxy_class.outbounds)
            for number in sorted(range(3), key=lambda number: number != asked_first)
        }
        assert [after[number] for number in range(3)] == counts
    ((about, message),) = findings(in_world)
    assert about == "Mesh default"
    assert "destinations of all proxies of a mesh come to" in message
    assert int(message.split(" come to ")[1].split(" ")[0].replace(",", "")) > 42 * DESTINATION_BYTES


def test_room_that_becomes_free_is_taken() -> None:
    compiler = Compiler(policies())
    in_world = world(redirected("p0", "s0"), service("s0", 9), proxy=5 * DESTINATION_BYTES)
    assert len(compiled(in_world, compiler).proxy_class.outbounds) == 5

    smaller = service("s0", 4)
    in_world = in_world.next({smaller.key: smaller}, 1)

    assert len(compiled(in_world, compiler).proxy_class.outbounds) == 4
    assert compiled(in_world, compiler).failures == ()


def test_edit_at_the_budget_equals_a_cold_start() -> None:
    compiler = Compiler(policies())
    in_world = world(redirected("p0"), service("s0", 3), service("s1", 3), proxy=4 * DESTINATION_BYTES)
    compiled(in_world, compiler)

    for revision, ports in enumerate((5, 1, 3), 1):
        changed = service("s0", ports)
        in_world = in_world.next({changed.key: changed}, revision)
        cold = compiled(World.of([each.document for each in in_world], in_world.kinds))
        edited = compiled(in_world, compiler)
        assert called(edited) == called(cold)
        assert [str(failure) for failure in edited.failures] == [str(failure) for failure in cold.failures]
        assert edited.proxy_class.kept_bytes == cold.proxy_class.kept_bytes


def plain_ports() -> Iterator[Document]:
    yield redirected("p0")
    yield service("s0", 300)


def many_rows() -> Iterator[Document]:
    yield redirected("p0")
    yield service("s0", 1)
    paths = [[f"/{rule}/{match}" for match in range(20)] for rule in range(50)]
    rules = [
        {
            "matches": [{"path": {"type": "Exact", "value": path}} for path in of_rule],
            "default": {"backendRefs": [{"kind": "MeshService", "name": "s0", "port": 1}]},
        }
        for of_rule in paths
    ]
    item = {"targetRef": {"kind": "MeshService", "name": "s0"}, "rules": rules}
    yield document("MeshHTTPRoute", "rows", spec={"to": [item]})


def many_endpoints() -> Iterator[Document]:
    yield redirected("p0")
    yield service("s0", 1)
    for number in range(1, 600):
        yield dataplane(f"q{number}", address=f"127.1.{number // 200}.{number % 200 + 1}")


def large_confs() -> Iterator[Document]:
    yield from plain_ports()
    predicates = [{"predicate": "OmitHostsWithTags", "tags": {f"k{number}": "v"}} for number in range(20)]
    conf = {"http": {"numRetries": 2, "hostSelection": predicates}}
    yield document("MeshRetry", "large", spec={"to": [{"targetRef": {"kind": "Mesh"}, "default": conf}]})


@pytest.mark.parametrize("documents", [plain_ports, many_rows, many_endpoints, large_confs])
def test_counted_bytes_are_those_that_are_kept(documents: Any) -> None:
    in_world, compiler = world(*documents()), Compiler(policies())
    compiled(in_world)  # all that is derived from the World itself is there from here on
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        proxy = compiled(in_world, compiler)
        for batch in (batch for type_url in TYPES for batch in proxy.snapshot.whole(type_url)):
            batch.message(b"", delta=True)  # the batch keeps it
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert kept / 1.5 < proxy.proxy_class.kept_bytes < kept * 1.5


def test_recompiled_results_keep_the_same_tasks() -> None:
    compiler, documents = Compiler(policies()), list(plain_ports())
    first, again = (compiled(world(*documents), compiler).proxy_class for _ in range(2))

    for outbound in again.outbounds.values():
        assert outbound.task is first.outbounds[outbound.address].task
        assert outbound.outbound is outbound.task.site
    for key, backend in again.backends.items():
        assert list(map(id, backend.tasks)) == list(map(id, first.backends[key].tasks))


def test_write_of_too_many_ports_warns() -> None:
    in_world = world(service("s0", 10), service("s1", 10), proxy=20 * DESTINATION_BYTES)

    assert list(warnings_of_destinations(in_world, [service("s1", 10)])) == []
    (warning,) = warnings_of_destinations(in_world, [service("s1", 11), redirected("p0")])

    assert (warning.code, str(warning.resource)) == ("over-limit", "MeshService default/s1")
    assert "have 21 ports, and a proxy has room for 20" in warning.message


def test_tolerated_service_is_served_within_the_budget() -> None:
    in_world = world(redirected("p0"), service("s0", 2_000), proxy=50 * DESTINATION_BYTES)

    assert any(finding.code == "unwritable" for finding in in_world.findings)
    assert called(compiled(in_world)) == [f"s0:{port}" for port in range(1, 51)]
