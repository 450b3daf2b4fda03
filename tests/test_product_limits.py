"""Products of several documents end at a limit: the parts that do not fit are left out, and the rest is served."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from cp.insight.lint import lint
from cp.model.document import Document
from cp.model.failure import OverLimit
from cp.model.names import Key
from cp.policies import kinds
from cp.resources import limits
from cp.resources.limits import Limit, Room
from cp.resources.world import World
from cp.rules.combined import MergeCache
from cp.rules.inbound import InboundRules
from cp.rules.routes import routes_of
from cp.translate.compiler import CompiledProxy, Compiler
from cp.translate.packing import CLUSTER, LISTENER, ROUTES
from tests.snapshots import policies

T = TypeVar("T")

SERVICES = 5


def document(kind: str, name: str, **fields: Any) -> Document:
    mesh = {} if kind == "Mesh" else {"mesh": "default"}
    return Document(Key(kind, mesh.get("mesh", ""), name), {"type": kind, **mesh, "name": name, **fields})


def mesh(*more: Document) -> World:
    """A sidecar that calls five services, and has three inbounds."""
    inbound = [{"port": 8001 + n, "tags": {"kuma.io/service": "web", "kuma.io/protocol": "http"}} for n in range(3)]
    outbound = [
        {"port": 10_000 + n, "backendRef": {"kind": "MeshService", "name": f"s{n}", "port": 80}}
        for n in range(SERVICES)
    ]
    networking = {"address": "127.0.0.1", "inbound": inbound, "outbound": outbound}
    services = (
        document(
            "MeshService",
            f"s{n}",
            spec={
                "selector": {"dataplaneTags": {"kuma.io/service": f"s{n}"}},
                "ports": [{"port": 80, "targetPort": 8080, "appProtocol": "http"}],
            },
        )
        for n in range(SERVICES)
    )
    web = document("Dataplane", "web-1", networking=networking)
    return World.of((document("Mesh", "default"), web, *services, *more), kinds(policies()))


def with_mtls(world: World) -> World:
    backend = {"enabledBackend": "ca", "backends": [{"name": "ca", "type": "builtin"}]}
    secured = document("Mesh", "default", mtls=backend)
    return world.next({secured.key: secured}, 1)


def compiled(world: World, compiler: Compiler | None = None) -> CompiledProxy:
    (dataplane,) = world.table("Dataplane", "default")
    return (compiler or Compiler(policies())).proxy(world, dataplane)


def names(proxy: CompiledProxy, type_url: str) -> list[str]:
    return sorted(packed.name for packed in proxy.snapshot.of(type_url))


def findings(world: World) -> list[tuple[str, str]]:
    return [(str(each.resource), each.message) for each in lint(policies(), world) if each.code == "over-limit"]


def lowered(monkeypatch: pytest.MonkeyPatch, name: str, most: int) -> Limit:
    """The limit with another number, wherever it is used."""
    limit: Limit = replace(getattr(limits, name), most=most)
    for module in (
        "cp.translate.compiler",
        "cp.translate.proxy_class",
        "cp.translate.gateway.proxy",
        "cp.translate.view.hostnames",
        "cp.translate.view.named_addresses",
        "cp.policies.mesh_traffic_permission",
    ):
        monkeypatch.setattr(f"{module}.{name}", limit, raising=False)
    return limit


def retry(size: int) -> Document:
    """A policy for all services that takes some bytes."""
    headers = [{"type": "Exact", "name": f"x-{number}"} for number in range(size)]
    item = {"targetRef": {"kind": "Mesh"}, "default": {"http": {"numRetries": 2, "retriableRequestHeaders": headers}}}
    return document("MeshRetry", "large", spec={"to": [item]})


def test_outbounds_that_do_not_fit_answer_with_500(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered(monkeypatch, "BYTES_OF_OUTBOUNDS", 8_000)
    world = mesh(retry(60))

    proxy = compiled(world)

    left_out = [outbound for outbound in proxy.proxy_class.outbounds.values() if outbound.fragment.is_over_limit]
    assert 0 < len(left_out) < SERVICES
    assert len(names(proxy, LISTENER)) == len(names(compiled(mesh()), LISTENER))
    (finding,) = findings(world)
    assert finding[0] == "MeshRetry default/large"
    assert "policies and the outbounds of a proxy come to" in finding[1]
    assert "8,000 are the most" in finding[1]
    assert "an answer of 500" in finding[1]


def test_clusters_that_do_not_fit_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered(monkeypatch, "BYTES_OF_BACKENDS", 400)
    checks = {"interval": "3s", "http": {"path": f"/{'x' * 150}"}}
    world = mesh(
        document("MeshHealthCheck", "large", spec={"to": [{"targetRef": {"kind": "Mesh"}, "default": checks}]})
    )

    proxy = compiled(world)

    assert 0 < len(names(compiled(mesh()), CLUSTER)) - len(names(proxy, CLUSTER)) < SERVICES
    assert [about for about, _ in findings(world)] == ["MeshHealthCheck default/large"]


def test_inbounds_that_do_not_fit_let_no_client_in(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered(monkeypatch, "BYTES_OF_INBOUNDS", 8_000)
    fault = {"http": [{"abort": {"httpStatus": 500, "percentage": 1}}]}
    clients = [{"spiffeID": {"type": "Exact", "value": f"spiffe://default/c{number}"}} for number in range(50)]
    rules = [{"matches": [client], "default": fault} for client in clients]
    spec = {"targetRef": {"kind": "Mesh", "proxyTypes": ["Sidecar"]}, "rules": rules}
    world = with_mtls(mesh(document("MeshFaultInjection", "large", spec=spec)))

    proxy = compiled(world)

    served = [result.inbound.port for result in proxy.inbounds if result.fragment.resources]
    assert served == [8001, 8002][: len(served)]
    assert 0 < len(served) < len(proxy.inbounds)
    assert [about for about, _ in findings(world)] == ["MeshFaultInjection default/large"]


@pytest.mark.parametrize("sizes", [(1, 60, 1), (60, 1, 60), (60, 61, 59)])
def test_edit_over_a_limit_serves_what_a_cold_start_serves(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...]
) -> None:
    lowered(monkeypatch, "BYTES_OF_OUTBOUNDS", 8_000)
    compiler, world = Compiler(policies()), mesh(retry(1))
    compiled(world, compiler)

    for revision, size in enumerate(sizes, 1):
        policy = retry(size)
        world = world.next({policy.key: policy}, revision)
        edited, cold = (
            compiled(world, compiler),
            compiled(World.of([each.document for each in world], kinds(policies()))),
        )
        assert served(edited) == served(cold)
        assert [str(failure) for failure in edited.failures] == [str(failure) for failure in cold.failures]
        assert bool(edited.failures) is (size > 50)


def served(proxy: CompiledProxy) -> dict[str, dict[str, bytes]]:
    return {
        type_url: {packed.name: packed.body for packed in proxy.snapshot.of(type_url)}
        for type_url in (CLUSTER, LISTENER, ROUTES)
    }


def gateway(hostnames: int, *, rules: int) -> World:
    listeners = [{"port": 8080, "protocol": "HTTP", "hostname": f"h{number}.example"} for number in range(hostnames)]
    selectors = [{"match": {"kuma.io/service": "edge"}}]
    tags = {"type": "BUILTIN", "tags": {"kuma.io/service": "edge"}}
    return World.of(
        (
            document("Mesh", "default"),
            document("Dataplane", "edge-1", networking={"address": "127.0.0.1", "gateway": tags}),
            document("MeshGateway", "edge", selectors=selectors, conf={"listeners": listeners}),
            route(rules),
        ),
        kinds(policies()),
    )


def route(rules: int) -> Document:
    matches = [{"path": {"type": "Exact", "value": f"/{number}"}} for number in range(rules)]
    redirect = [{"type": "RequestRedirect", "requestRedirect": {"scheme": "https"}}]
    item = {"targetRef": {"kind": "Mesh"}, "rules": [{"matches": matches, "default": {"filters": redirect}}]}
    return document("MeshHTTPRoute", "all", spec={"targetRef": {"kind": "MeshGateway", "name": "edge"}, "to": [item]})


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = replace(limits.ROWS_OF_GATEWAY, most=40)
    monkeypatch.setattr("cp.translate.gateway.hostnames._LIMITS", (rows, limits.PARTS_OF_GATEWAY))


@pytest.mark.usefixtures("few_rows")
def test_hostnames_whose_rows_do_not_fit_answer_with_500() -> None:
    world = gateway(10, rules=9)

    proxy = compiled(world)

    result = proxy.proxy_class.gateway
    assert result is not None
    rows = {host.hostname: len(host.routes) for host in result.hosts.values()}
    assert rows == {f"h{number}.example": 10 if number < 4 else 1 for number in range(10)}
    ((about, message),) = findings(world)
    assert about == "MeshGateway default/edge"
    assert "h4.example at port 8080" in message
    assert "come to 100 rows or more, and 40 are the most" in message


@pytest.mark.usefixtures("few_rows")
def test_edit_of_a_gateway_over_its_limit_equals_a_cold_start() -> None:
    compiler, world = Compiler(policies()), gateway(10, rules=3)
    compiled(world, compiler)

    for revision, rules in enumerate((9, 10, 3, 9), 1):
        policy = route(rules)
        world = world.next({policy.key: policy}, revision)
        edited, cold = (
            compiled(world, compiler),
            compiled(World.of([each.document for each in world], kinds(policies()))),
        )
        assert served(edited) == served(cold)
        assert [str(failure) for failure in edited.failures] == [str(failure) for failure in cold.failures]


@pytest.mark.usefixtures("few_rows")
def test_rows_of_a_gateway_are_counted_before_they_are_built() -> None:
    proxy = compiled(gateway(300, rules=1_000))

    result = proxy.proxy_class.gateway
    assert result is not None
    assert sum(len(host.routes) for host in result.hosts.values()) == 300


@pytest.mark.usefixtures("few_rows")
def test_lint_computes_no_rows_of_left_out_hostnames(monkeypatch: pytest.MonkeyPatch) -> None:
    world, computed = gateway(100, rules=9), Counter[str]()
    monkeypatch.setattr("cp.insight.lint.gateway_decisions.routes_of", counted(routes_of, computed, "tables"))

    codes = {finding.code for finding in lint(policies(), world)}

    assert computed["tables"] == 4
    assert "over-limit" in codes
    assert not codes & {"redundant", "unreachable-route"}


def counted(function: Callable[..., T], counts: Counter[str], name: str) -> Callable[..., T]:
    def call(*arguments: Any) -> T:
        counts[name] += 1
        return function(*arguments)

    return call


def permissions_by_turns() -> World:
    """Return a mesh whose permissions have 45 conditions: up to nine denials stand above each of ten that allow."""
    items = [
        {
            "targetRef": {"kind": "MeshSubset", "tags": {"kuma.io/service": f"c{number}"}},
            "default": {"action": "Allow" if number % 2 else "Deny"},
        }
        for number in range(20)
    ]
    return with_mtls(mesh(document("MeshTrafficPermission", "by-turns", spec={"from": items})))


def test_permissions_with_too_many_conditions_let_no_client_in(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered(monkeypatch, "CONDITIONS_OF_PERMISSIONS", 44)
    world = permissions_by_turns()

    proxy = compiled(world)

    assert all(result.fragment.is_over_limit and not result.fragment.resources for result in proxy.inbounds)
    assert [about for about, _ in findings(world)] == ["MeshTrafficPermission default/by-turns"]


def test_permissions_with_most_conditions_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered(monkeypatch, "CONDITIONS_OF_PERMISSIONS", 45)
    world = permissions_by_turns()

    assert all(result.fragment.resources for result in compiled(world).inbounds)
    assert findings(world) == []


def test_clients_by_name_and_server_name_are_not_multiplied() -> None:
    by_name = [{"spiffeID": {"type": "Exact", "value": f"spiffe://default/c{number}"}} for number in range(1_000)]
    by_server_name = [{"sni": {"type": "Exact", "value": f"h{number}"}} for number in range(1_000)]
    conf = {"http": {"requestTimeout": "3s"}}
    rules = [{"matches": [match], "default": conf} for match in (*by_name, *by_server_name)][::2]
    world = mesh(
        document(
            "MeshTimeout", "crossed", spec={"targetRef": {"kind": "Mesh", "proxyTypes": ["Sidecar"]}, "rules": rules}
        )
    )
    (policy,) = world.table("MeshTimeout", "default")

    assert len(InboundRules([policy], MergeCache()).for_some) == len(rules)


def generated() -> Iterator[Document]:
    for number in range(3):
        template = f"{{{{ .DisplayName }}}}.g{number}.mesh"
        spec = {"selector": {"meshService": {"matchLabels": {}}}, "template": template}
        yield Document(
            Key("HostnameGenerator", "", f"g{number}"),
            {"type": "HostnameGenerator", "name": f"g{number}", "spec": spec},
        )


def test_names_of_a_mesh_that_do_not_fit_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered(monkeypatch, "NAMES_OF_MESH", 10)

    assert [about for about, _ in findings(mesh(*generated()))] == ["Mesh default"]


def test_room_is_taken_in_order_and_never_exceeded() -> None:
    room = Room(replace(limits.ROWS_OF_GATEWAY, most=10))

    assert [count for count in (4, 8, 5, 2, 1) if fits(room, count)] == [4, 5, 1]


def test_room_reports_the_first_count_over_it() -> None:
    room = Room(replace(limits.ROWS_OF_GATEWAY, most=10))
    fits(room, 12)

    with pytest.raises(OverLimit, match="12 rows or more, and 10 are the most"):
        room.take(50)


def fits(room: Room, count: int) -> bool:
    try:
        room.take(count)
    except OverLimit:
        return False
    return True
