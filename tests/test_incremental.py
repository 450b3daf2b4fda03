"""What is kept from one World to the next comes to the same as working everything out anew."""

from __future__ import annotations

import gc
from base64 import b64encode
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any
from weakref import ref

import pytest

from cp.model.dependency import ChangeScope
from cp.model.document import Document
from cp.model.names import Key
from cp.policies import kinds
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate import change_scope
from cp.translate.compiler import Compiler
from cp.translate.outbound import OutboundResult
from cp.translate.packing import ENDPOINTS, TYPES
from tests.identity.meshes import new_authority
from tests.random_mesh import (
    EDGE,
    EVERY,
    IDENTIFIED,
    IN_SHARES,
    LEGACY,
    MESH,
    REACHED,
    Mesh,
    document,
    random_document,
    seeds,
    share,
)
from tests.snapshots import policies

Data = dict[str, Any]
Served = dict[str, dict[tuple[str, str], str]]


def worlds(
    chance: Random, edits: int, of: Sequence[str] = EVERY, *, derives_reachability: bool = False
) -> Iterator[World]:
    """A World with some documents, and those after each of some edits."""
    documents: dict[Key, Document] = {MESH.key: MESH}
    for made in (random_document(chance, of) for _ in range(chance.randrange(3, 20))):
        documents[made.key] = made
    world = World.of(documents.values(), kinds(policies(), derives_reachability=derives_reachability))
    yield world
    for revision in range(1, edits + 1):
        changes = dict(_edit(chance, documents, of) for _ in range(chance.choice([1, 1, 1, 2, 5])))
        documents |= {key: made for key, made in changes.items() if made is not None}
        for gone in [key for key, made in changes.items() if made is None]:
            documents.pop(gone, None)
        world = world.next(changes, revision)
        yield world


def _edit(chance: Random, documents: dict[Key, Document], of: Sequence[str]) -> tuple[Key, Document | None]:
    if chance.random() < 0.3 and len(documents) > 1:
        return chance.choice([key for key in documents if key != MESH.key]), None
    made = random_document(chance, of)
    return made.key, made


def dataplanes(world: World) -> Iterator[Resource]:
    yield from world.table("Dataplane", "default")


def fresh(world: World) -> World:
    """The same World without anything that was ever worked out."""
    return World.of((one.document for one in world), world.kinds)


def served(compiler: Compiler, world: World) -> Served:
    """Every proxy's resources by type and name, in their versions."""
    snapshots = {dataplane.name: compiler.snapshot(world, dataplane) for dataplane in dataplanes(world)}
    return {
        name: {(packed.type_url, packed.name): packed.version for part in snapshot.parts for packed in part}
        for name, snapshot in snapshots.items()
    }


@IN_SHARES
def test_after_any_edits_everybody_has_what_a_full_computation_gives(is_further: bool) -> None:
    for seed in share(seeds(also=(74, 191)), is_further):  # policies that choose services by their labels
        compiler = Compiler(policies())
        for world in worlds(Random(seed), edits=10):
            assert served(compiler, world) == served(Compiler(policies()), fresh(world)), printed(seed, world)


@IN_SHARES
def test_after_any_edits_of_identities_everybody_has_what_a_full_computation_gives(is_further: bool) -> None:
    for seed in share(seeds(times=0.4), is_further):
        compiler = Compiler(policies())
        for world in worlds(Random(seed), edits=10, of=IDENTIFIED):
            assert served(compiler, world) == served(Compiler(policies()), fresh(world)), printed(seed, world)


@IN_SHARES
def test_after_any_edits_of_the_edge_everybody_has_what_a_full_computation_gives(is_further: bool) -> None:
    # Dataplanes that are gateways in one World and not in another
    for seed in share(seeds(also=(196, 698)), is_further):
        compiler = Compiler(policies())
        for world in worlds(Random(seed), edits=10, of=EDGE):
            assert served(compiler, world) == served(Compiler(policies()), fresh(world)), printed(seed, world)


@IN_SHARES
def test_after_any_edits_of_legacy_policies_everybody_has_what_a_full_computation_gives(is_further: bool) -> None:
    for seed in share(seeds(), is_further):
        compiler = Compiler(policies())
        for world in worlds(Random(seed), edits=10, of=(*LEGACY, "ExternalService")):
            assert served(compiler, world) == served(Compiler(policies()), fresh(world)), printed(seed, world)


@IN_SHARES
def test_after_any_edits_everybody_is_told_of_whom_a_full_computation_lets_them_reach(is_further: bool) -> None:
    for seed in share(seeds(), is_further):
        compiler = Compiler(policies())
        for world in worlds(Random(seed), edits=10, of=REACHED, derives_reachability=True):
            assert served(compiler, world) == served(Compiler(policies()), fresh(world)), printed(seed, world)


@IN_SHARES
def test_a_proxy_that_was_away_for_some_worlds_is_not_given_old_things(is_further: bool) -> None:
    for seed in share(seeds(), is_further):
        follow_with_gaps(Random(seed), seed, EVERY)
        follow_with_gaps(Random(seed), seed, EDGE)


def follow_with_gaps(chance: Random, seed: int, kinds: Sequence[str]) -> None:
    compiler = Compiler(policies())
    for world in worlds(chance, edits=8, of=kinds):
        present = [dataplane for dataplane in dataplanes(world) if chance.random() < 0.5]
        for dataplane in present:
            anew = fresh(world)
            found = anew.get(dataplane.key)
            assert found is not None
            same = compiler.snapshot(world, dataplane) == Compiler(policies()).snapshot(anew, found)
            assert same, printed(seed, world)


def test_a_world_that_was_succeeded_is_freed_without_a_garbage_collection() -> None:
    """The Compiler holds the newest World alone, and nothing that is worked out for a World holds it."""
    gc.collect()
    gc.disable()
    try:
        for seed in range(20):
            compiler = Compiler(policies())
            before: list[ref[World]] = []
            for world in worlds(Random(seed), edits=4, of=EDGE if seed % 2 else EVERY):
                served(compiler, world)
                compiler.keep_only([dataplane.key for dataplane in dataplanes(world)])
                if any(dataplanes(world)):  # else the Compiler was not asked, and has not seen this World
                    assert [succeeded() for succeeded in before] == [None] * len(before), printed(seed, world)
                before.append(ref(world))
    finally:
        gc.enable()


def printed(seed: int, world: World) -> str:
    """The World after the edit that shows it, as a file."""
    return f"seed {seed}, revision {world.revision}:\n{Mesh(tuple(dict(one.document.data) for one in world)).text}"


def test_an_edit_builds_only_what_it_changes() -> None:
    """One timeout of one of many services: its route table and listener are built, nothing else is touched."""
    services = [
        document(
            "MeshService",
            f"s{number}",
            spec={"selector": {"dataplaneTags": {"a": "b"}}, "ports": [{"port": 80, "appProtocol": "http"}]},
        )
        for number in range(20)
    ]
    outbounds = [
        {"port": 10000 + n, "backendRef": {"kind": "MeshService", "name": f"s{n}", "port": 80}} for n in range(20)
    ]
    clients = [
        document(
            "Dataplane",
            f"c{n}",
            networking={
                "address": f"127.0.0.{n + 1}",
                "inbound": [{"port": 80, "tags": {"kuma.io/service": f"c{n}"}}],
                "outbound": outbounds,
            },
        )
        for n in range(5)
    ]
    world = World.of([MESH, *services, *clients, timeout("s3", "1s")], kinds(policies()))
    compiler = Compiler(policies())
    before = {d.name: compiler.snapshot(world, d) for d in dataplanes(world)}
    built = compiler.fragments.built

    world = world.next({timeout("s3", "2s").key: timeout("s3", "2s")}, 1)
    after = {d.name: compiler.snapshot(world, d) for d in dataplanes(world)}

    assert compiler.class_count == 1
    assert compiler.fragments.built - built == 2, "the outbound of s3 and its cluster, once for all five proxies"
    changed = {
        packed.name
        for name in after
        for type_url in TYPES
        for packed in after[name].since(before[name], type_url).updated
    }
    assert changed == {"kri_msvc_default___s3_80"}


def test_what_has_changed_is_worked_out_once_however_many_classes_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, asked = Compiler(policies()), []
    work_out = change_scope.scope_of_resources

    def counted(before: World, now: World, mesh: str) -> ChangeScope:
        asked.append(mesh)
        return work_out(before, now, mesh)

    monkeypatch.setattr(change_scope, "scope_of_resources", counted)
    clients = [calling_another(number, "v1") for number in range(5)]
    world = World.of([MESH, *clients], kinds(policies()))
    served(compiler, world)
    served(compiler, world.next({clients[1].key: calling_another(1, "v2")}, 1))

    assert compiler.class_count == len(clients)
    assert asked == ["default"]


def calling_another(number: int, version: str) -> Document:
    """A Dataplane that calls the service of the one before."""
    inbound = {"port": 80, "tags": {"kuma.io/service": f"s{number}", "version": version}}
    outbound = {"port": 10000, "tags": {"kuma.io/service": f"s{number - 1}"}}
    networking = {"address": f"127.0.0.{number + 1}", "inbound": [inbound], "outbound": [outbound]}
    return document("Dataplane", f"c{number}", networking=networking)


CA: Data = {"secret": "ca"}


@pytest.mark.parametrize(
    ("service", "outbound"),
    [
        (
            document(
                "MeshExternalService",
                "api",
                spec={
                    "match": {"port": 443, "protocol": "http"},
                    "endpoints": [{"address": "api.example.com", "port": 443}],
                    "tls": {"enabled": True, "verification": {"caCert": CA}},
                },
            ),
            {"backendRef": {"kind": "MeshExternalService", "name": "api"}},
        ),
        (
            document(
                "ExternalService",
                "api",
                tags={"kuma.io/service": "api"},
                networking={"address": "api.example.com:443", "tls": {"enabled": True, "caCert": CA}},
            ),
            {"tags": {"kuma.io/service": "api"}},
        ),
    ],
    ids=["MeshExternalService", "ExternalService"],
)
def test_changed_secret_reaches_callers_of_its_service(service: Document, outbound: Data) -> None:
    inbound = {"port": 80, "tags": {"kuma.io/service": "c"}}
    networking = {"address": "127.0.0.1", "inbound": [inbound], "outbound": [{"port": 10000, **outbound}]}
    client = document("Dataplane", "c", networking=networking)
    first, second = (
        document("Secret", "ca", data=b64encode(new_authority()[0].certificate).decode()) for _ in range(2)
    )
    world, compiler = World.of([MESH, service, client, first], kinds(policies())), Compiler(policies())
    before = served(compiler, world)
    world = world.next({second.key: second}, 1)

    assert served(compiler, world) == served(Compiler(policies()), fresh(world)) != before


def test_a_policy_for_labels_concerns_the_services_that_have_them_and_no_others() -> None:
    """By its items, or because the labels of a service change."""

    def service(name: str, team: str) -> Document:
        spec = {"selector": {"dataplaneTags": {"a": "b"}}, "ports": [{"port": 80, "appProtocol": "http"}]}
        made = document("MeshService", name, spec=spec)
        return Document(made.key, {**made.data, "labels": {"team": team}})

    def of_team(team: str, value: str) -> Document:
        target = {"kind": "MeshService", "labels": {"team": team}}
        conf = {"http": {"requestTimeout": value}}
        return document("MeshTimeout", "of-team", spec={"to": [{"targetRef": target, "default": conf}]})

    outbounds = [
        {"port": 10000 + n, "backendRef": {"kind": "MeshService", "name": name, "port": 80}}
        for n, name in enumerate(("s", "t"))
    ]
    networking = {
        "address": "127.0.0.1",
        "inbound": [{"port": 80, "tags": {"kuma.io/service": "c"}}],
        "outbound": outbounds,
    }
    documents = [MESH, service("s", "red"), service("t", "blue"), document("Dataplane", "c", networking=networking)]
    world, compiler = World.of(documents, kinds(policies())), Compiler(policies())

    def entries() -> list[OutboundResult]:
        (dataplane,) = dataplanes(world)
        return list(compiler.proxy(world, dataplane).proxy_class.outbounds.values())

    timeouts, kept, before = [], [], entries()
    edits = [of_team("red", "1s"), of_team("red", "2s"), of_team("blue", "2s"), service("s", "blue")]
    for revision, edit in enumerate(edits, 1):
        world = world.next({edit.key: edit}, revision)
        assert served(compiler, world) == served(Compiler(policies()), fresh(world))
        timeouts.append([entry.effective["MeshTimeout"].value["http"]["requestTimeout"] for entry in entries()])
        kept.append([entry is earlier for entry, earlier in zip(entries(), before, strict=True)])
        before = entries()

    assert timeouts == [["1s", "15s"], ["2s", "15s"], ["15s", "2s"], ["2s", "2s"]]
    assert kept == [[False, True], [False, True], [False, False], [False, True]]


def test_a_policy_that_names_a_route_at_its_top_may_mean_another_one_after_a_route_is_gone() -> None:
    """The route of its own namespace counts before that without a namespace."""
    in_namespace = {"kuma.io/display-name": "r", "k8s.kuma.io/namespace": "ns"}

    def route(name: str, labels: dict[str, str], service: str) -> Document:
        rule = {"matches": [{"path": {"type": "PathPrefix", "value": "/x"}}], "default": {}}
        target = {"kind": "MeshService", "name": service}
        made = document("MeshHTTPRoute", name, spec={"to": [{"targetRef": target, "rules": [rule]}]})
        return Document(made.key, {**made.data, "labels": labels})

    timeout = document(
        "MeshTimeout",
        "t.ns",
        spec={
            "targetRef": {"kind": "MeshHTTPRoute", "name": "r"},
            "to": [{"targetRef": {"kind": "Mesh"}, "default": {"http": {"requestTimeout": "77s"}}}],
        },
    )
    networking = {
        "address": "127.0.0.1",
        "inbound": [{"port": 80, "tags": {"kuma.io/service": "c", "kuma.io/protocol": "http"}}],
        "outbound": [{"port": 10000, "tags": {"kuma.io/service": "c"}}],
    }
    documents = [
        MESH,
        route("r.ns", in_namespace, "elsewhere"),
        route("r", {}, "c"),
        Document(timeout.key, {**timeout.data, "labels": {"k8s.kuma.io/namespace": "ns"}}),
        document("Dataplane", "c", networking=networking),
    ]
    world, compiler = World.of(documents, kinds(policies())), Compiler(policies())
    before = served(compiler, world)

    world = world.next({Key("MeshHTTPRoute", "default", "r.ns"): None}, 1)

    assert served(Compiler(policies()), fresh(world)) != before
    assert served(compiler, world) == served(Compiler(policies()), fresh(world))


def test_a_policy_of_a_route_reaches_the_rows_to_which_that_route_contributes() -> None:
    """Whether the weaker route contributes can change by an edit of either route, and its policy by itself."""
    service = document(
        "MeshService",
        "s",
        spec={"selector": {"dataplaneTags": {"a": "b"}}, "ports": [{"port": 80, "appProtocol": "http"}]},
    )
    networking = {
        "address": "127.0.0.1",
        "inbound": [{"port": 80, "tags": {"kuma.io/service": "c", "team": "a"}}],
        "outbound": [{"port": 10000, "backendRef": {"kind": "MeshService", "name": "s", "port": 80}}],
    }
    backend = {"backendRefs": [{"kind": "MeshService", "name": "s", "port": 80}]}
    filters = {"filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"remove": ["x"]}}]}
    top = {"targetRef": {"kind": "MeshSubset", "tags": {"team": "a"}}}
    edits = [
        _of_route("weak", "1s"),
        _same_match("strong", filters, **top),
        _of_route("weak", "2s"),
        _same_match("strong", filters | backend, **top),
        _of_route("weak", "3s"),
        _same_match("strong", filters, **top),
        _same_match("weak", {}),
        _same_match("weak", backend),
        _of_route("strong", "4s"),
    ]
    world = World.of([MESH, service, document("Dataplane", "c", networking=networking)], kinds(policies()))
    compiler, timeouts = Compiler(policies()), []
    for revision, edit in enumerate([_same_match("weak", backend), *edits], 1):
        world = world.next({edit.key: edit}, revision)
        assert served(compiler, world) == served(Compiler(policies()), fresh(world))
        timeouts.append(_request_timeout(compiler, world))

    assert timeouts == ["15s", "1s", "1s", "2s", "15s", "15s", "3s", "15s", "3s", "4s"]


def test_a_gateway_that_becomes_a_sidecar_has_nothing_of_a_gateway_any_more() -> None:
    inbound = [{"port": 80, "tags": {"kuma.io/service": "web"}}]
    sidecar = document("Dataplane", "edge", networking={"address": "127.0.0.1", "inbound": inbound})
    world, compiler = World.of([MESH, *edge()], kinds(policies())), Compiler(policies())
    before = served(compiler, world)

    for revision, edited in enumerate((sidecar, edge()[0]), 1):
        world = world.next({edited.key: edited}, revision)
        assert served(compiler, world) == served(Compiler(policies()), fresh(world))
    assert served(compiler, world) == before


def test_a_policy_at_a_gateway_that_names_a_route_at_its_top_may_mean_another_one_after_a_route_is_gone() -> None:
    """The policy and the routes of a hostname are as they were, and it has another timeout all the same."""
    in_namespace = {"kuma.io/display-name": "shop", "k8s.kuma.io/namespace": "ns"}
    other = route_at_edge("shop.ns", "/elsewhere", "other.test")
    timeout = document(
        "MeshTimeout",
        "t.ns",
        spec={
            "targetRef": {"kind": "MeshHTTPRoute", "name": "shop"},
            "to": [{"targetRef": {"kind": "Mesh"}, "default": {"http": {"requestTimeout": "77s"}}}],
        },
    )
    documents = [
        *(MESH, *edge(), route_at_edge("shop", "/cart")),
        Document(other.key, {**other.data, "labels": in_namespace}),
        Document(timeout.key, {**timeout.data, "labels": {"k8s.kuma.io/namespace": "ns"}}),
    ]
    world, compiler = World.of(documents, kinds(policies())), Compiler(policies())
    before = served(compiler, world)

    world = world.next({other.key: None}, 1)

    assert served(Compiler(policies()), fresh(world)) != before
    assert served(compiler, world) == served(Compiler(policies()), fresh(world))


def edge() -> list[Document]:
    """A builtin gateway with its MeshGateway, and a service behind it."""
    inbound = [{"port": 80, "tags": {"kuma.io/service": "web"}}]
    gateway = {"type": "BUILTIN", "tags": {"kuma.io/service": "edge"}}
    return [
        document("Dataplane", "edge", networking={"address": "127.0.0.1", "gateway": gateway}),
        document(
            "MeshGateway",
            "edge",
            selectors=[{"match": {"kuma.io/service": "edge"}}],
            conf={"listeners": [{"port": 8080, "protocol": "HTTP"}]},
        ),
        document("Dataplane", "web", networking={"address": "127.0.0.2", "inbound": inbound}),
    ]


def route_at_edge(name: str, path: str, hostname: str = "*") -> Document:
    """A route of all requests below a path to the service."""
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": path}}],
        "default": {"backendRefs": [{"kind": "MeshService", "name": "web"}]},
    }
    return document(
        "MeshHTTPRoute",
        name,
        spec={
            "targetRef": {"kind": "MeshGateway", "name": "edge"},
            "to": [{"targetRef": {"kind": "Mesh"}, "hostnames": [hostname], "rules": [rule]}],
        },
    )


def _same_match(name: str, default: dict[str, Any], **spec: Any) -> Document:
    rules = [{"matches": [{"path": {"type": "PathPrefix", "value": "/same"}}], "default": default}]
    return document(
        "MeshHTTPRoute",
        name,
        spec={**spec, "to": [{"targetRef": {"kind": "MeshService", "name": "s"}, "rules": rules}]},
    )


def _of_route(route: str, value: str) -> Document:
    item = {"targetRef": {"kind": "MeshHTTPRoute", "name": route}, "default": {"http": {"requestTimeout": value}}}
    return document("MeshTimeout", f"of-{route}", spec={"to": [item]})


def _request_timeout(compiler: Compiler, world: World) -> str:
    """Of the row that a route resource has."""
    (dataplane,) = dataplanes(world)
    (entry,) = compiler.proxy(world, dataplane).proxy_class.outbounds.values()
    (effective,) = entry.of_routes.values()
    return str(effective["MeshTimeout"].value["http"]["requestTimeout"])


def timeout(service: str, value: str) -> Document:
    item = {"targetRef": {"kind": "MeshService", "name": service}, "default": {"http": {"requestTimeout": value}}}
    return document("MeshTimeout", "edited", spec={"to": [item]})


def test_what_a_conf_refers_to_reaches_inbounds_and_outbounds() -> None:
    """Nothing changes but a collector: both sides of a proxy are told, once it is there and when it moves."""
    reference = {"kind": "MeshOpenTelemetryBackend", "labels": {"team": "core"}}
    traced = {"backends": [{"type": "OpenTelemetry", "openTelemetry": {"backendRef": reference}}]}
    http = {"kuma.io/service": "web", "kuma.io/protocol": "http"}
    networking = {
        "address": "127.0.0.1",
        "inbound": [{"port": 80, "tags": http}],
        "outbound": [{"port": 81, "tags": {"kuma.io/service": "web"}}],
    }
    proxy = document("Dataplane", "web", networking=networking)
    world = World.of([MESH, proxy, document("MeshTrace", "all", spec={"default": traced})], kinds(policies()))
    compiler = Compiler(policies())
    seen = [sent_to(compiler, world)]
    for revision, collector in enumerate((labelled("10.0.0.1"), labelled("10.0.0.2"), None), 1):
        world = world.next({labelled("").key: collector}, revision)
        seen.append(sent_to(compiler, world))

    assert seen == [
        set(),
        {"collector:inbound:grpc:10.0.0.1:4317", "collector:outbound:grpc:10.0.0.1:4317"},
        {"collector:inbound:grpc:10.0.0.2:4317", "collector:outbound:grpc:10.0.0.2:4317"},
        set(),
    ]


def labelled(address: str) -> Document:
    made = document("MeshOpenTelemetryBackend", "main", spec={"endpoint": {"address": address}})
    return Document(made.key, {**made.data, "labels": {"team": "core"}})


def sent_to(compiler: Compiler, world: World) -> set[str]:
    """The clusters of collectors that a proxy has."""
    (proxy,) = dataplanes(world)
    snapshot = compiler.snapshot(world, proxy)
    return {packed.name for part in snapshot.parts for packed in part if packed.name.startswith("collector:")}


def test_two_meshes_that_look_the_same_are_not_taken_for_one() -> None:
    """Proxies with the same outbounds and no policies, in two meshes: each reaches the backend of its own."""
    documents = []
    for mesh, address in (("default", "127.0.0.1"), ("other", "127.0.0.2")):
        documents.append(Document(Key("Mesh", "", mesh), {"type": "Mesh", "name": mesh}))
        for name, outbounds in (("client", [{"port": 10000, "tags": {"kuma.io/service": "server"}}]), ("server", [])):
            inbound = [{"port": 80, "tags": {"kuma.io/service": name}}]
            networking = {"address": address, "inbound": inbound, "outbound": outbounds}
            data = {"type": "Dataplane", "mesh": mesh, "name": name, "networking": networking}
            documents.append(Document(Key("Dataplane", mesh, name), data))
    world = World.of(documents, kinds(policies()))
    compiler = Compiler(policies())

    clients = [world.get(Key("Dataplane", mesh, "client")) for mesh in ("default", "other")]
    endpoints = [compiler.snapshot(world, client).get(ENDPOINTS, "server") for client in clients if client]

    assert [packed is not None and own in packed.body for own, packed in zip(OWN, endpoints, strict=True)] == [
        True,
        True,
    ]


OWN = (b"127.0.0.1", b"127.0.0.2")
