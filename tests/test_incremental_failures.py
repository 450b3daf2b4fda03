"""While some part of a proxy cannot be made, an edit elsewhere works out only what it changes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from cp.model.dependency import EVERYTHING
from cp.model.document import Document
from cp.model.failure import Failure
from cp.policies import Policy, discover, kinds
from cp.policies.mesh_timeout import MeshTimeout
from cp.policies.mesh_traffic_permission import MeshTrafficPermission
from cp.resources.world import World
from cp.translate import change_scope
from cp.translate.backend import BackendStage
from cp.translate.compiler import Compiler
from cp.translate.outbound import OutboundStage
from cp.translate.packing import CLUSTER
from tests.drawing import expect_more, in_time
from tests.random_mesh import EDGE, MESH, document, seeds
from tests.test_incremental import Served, dataplanes, printed, served, worlds

SERVICES = 40


class Faulty(MeshTimeout):
    """A policy that can write no cluster whose name has a certain letter, and no listener for certain confs."""

    def cluster(self, conf: Any, draft: Any) -> None:
        if "b" in draft.cluster.name:
            raise RecursionError("too deep")
        super().cluster(conf, draft)

    def listener(self, conf: Any, draft: Any) -> None:
        if len(str(conf)) % 3 == 0:
            raise RecursionError("too long")
        super().listener(conf, draft)


class OfOneCluster(MeshTimeout):
    """A policy that can write all clusters but one."""

    def cluster(self, conf: Any, draft: Any) -> None:
        if draft.cluster.name == "s0":
            raise RecursionError("too deep")
        super().cluster(conf, draft)


def policies(faulty: Policy[Any]) -> list[Policy[Any]]:
    return [faulty if isinstance(policy, MeshTimeout) else policy for policy in discover()]


Failures = dict[str, frozenset[Failure]]


def everything(compiler: Compiler, world: World) -> tuple[Served, Failures]:
    failures = {one.name: frozenset(compiler.proxy(world, one).failures) for one in dataplanes(world)}
    return served(compiler, world), failures


@pytest.mark.drawn
def test_with_failures_that_last_everybody_has_what_working_out_all_would_give(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = 0
    for seed in in_time(seeds()):
        compiler, thorough = Compiler(policies(Faulty())), Compiler(policies(Faulty()))
        for world in worlds(Random(seed), edits=8):
            with monkeypatch.context() as patch:
                patch.setattr(change_scope, "scope_of_resources", lambda *_: EVERYTHING)
                expected = everything(thorough, world)
            assert everything(compiler, world) == expected, printed(seed, world)
            failed += sum(map(len, expected[1].values()))
    expect_more(failed, 0)


class FaultyAtTheEdge(Faulty):
    """A policy that can write neither certain routes, nor what holds for certain clients."""

    def route(self, conf: Any, draft: Any) -> None:
        if len(str(conf)) % 4 == 0:
            raise RecursionError("too wide")
        super().route(conf, draft)

    def entrance(self, conf: Any, draft: Any) -> None:
        if len(str(conf)) % 2 == 0:
            raise RecursionError("too early")
        super().entrance(conf, draft)


@pytest.mark.drawn
def test_with_failures_at_the_edge_everybody_has_what_working_out_all_would_give(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed = 0
    for seed in in_time(seeds()):
        compiler, thorough = Compiler(policies(FaultyAtTheEdge())), Compiler(policies(FaultyAtTheEdge()))
        for world in worlds(Random(seed), edits=8, of=EDGE):
            with monkeypatch.context() as patch:
                patch.setattr(change_scope, "scope_of_resources", lambda *_: EVERYTHING)
                expected = everything(thorough, world)
            assert everything(compiler, world) == expected, printed(seed, world)
            failed += sum(map(len, expected[1].values()))
    expect_more(failed, 0)


def test_beside_a_destination_that_fails_an_edit_works_out_only_what_it_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = [{"port": 10000 + n, "tags": {"kuma.io/service": f"s{n}"}} for n in range(SERVICES)]
    inbound = [{"port": 80, "tags": {"kuma.io/service": "web"}}]
    web = document("Dataplane", "web", networking={"address": "10.0.0.1", "inbound": inbound, "outbound": calls})
    compiler = Compiler(policies(OfOneCluster()))
    world = World.of([MESH, web, timeout("1s")], kinds(list(compiler.policies.values())))
    before = everything(compiler, world)
    asked: list[str] = []
    for stage, name in ((OutboundStage, "outbound"), (BackendStage, "backend")):
        monkeypatch.setattr(stage, "result", noted(stage.result, asked, name))

    after = everything(compiler, world.next({timeout("2s").key: timeout("2s")}, 1))

    assert sorted(asked) == ["backend", "backend", "outbound"], "the outbound of s1, its cluster, and that of s0 again"
    assert [failure.part for failure in after[1]["web"]] == ["the cluster of s0"]
    assert after[0] != before[0]


def noted(stage: Any, asked: list[str], name: str) -> Any:
    """The stage itself, with a note of each time that it is asked."""

    def counted(*arguments: Any, **options: Any) -> Any:
        asked.append(name)
        return stage(*arguments, **options)

    return counted


def timeout(value: str) -> Document:
    target = {"kind": "MeshService", "name": "s1"}
    return document(
        "MeshTimeout", "slow", spec={"to": [{"targetRef": target, "default": {"connectionTimeout": value}}]}
    )


class OfNoInbound(MeshTrafficPermission):
    """A policy that cannot write who may call."""

    def clients(self, rules: Any, draft: Any) -> None:
        raise RecursionError("too deep")


def with_mtls(mode: str) -> Document:
    backends = [{"name": "ca", "type": "builtin", "mode": mode}]
    return Document(MESH.key, {**MESH.data, "mtls": {"enabledBackend": "ca", "backends": backends}})


def test_an_inbound_that_cannot_be_made_with_mtls_lets_nobody_in_without() -> None:
    inbound = [{"port": 80, "tags": {"kuma.io/service": "web"}}]
    web = document("Dataplane", "web", networking={"address": "10.0.0.1", "inbound": inbound})
    faulty = [OfNoInbound() if isinstance(policy, MeshTrafficPermission) else policy for policy in discover()]
    compiler = Compiler(faulty)
    plain = World.of([MESH, web], kinds(faulty))
    strict = World.of([with_mtls("STRICT"), web], kinds(faulty))

    (before,) = compiler.proxy(plain, next(iter(dataplanes(plain)))).inbounds
    (after,) = compiler.proxy(strict, next(iter(dataplanes(strict)))).inbounds

    assert len(before.fragment.resources) > 0
    assert after.fragment.resources == ()


class OfNoCluster(MeshTimeout):
    """A policy that can write no cluster with TLS."""

    def cluster(self, conf: Any, draft: Any) -> None:
        if draft.cluster.HasField("transport_socket"):
            raise RecursionError("too deep")
        super().cluster(conf, draft)


def test_a_cluster_that_cannot_be_made_with_tls_sends_nothing_in_plain_text() -> None:
    inbound = [{"port": 80, "tags": {"kuma.io/service": "web"}}]
    calls = [{"port": 10000, "tags": {"kuma.io/service": "web"}}]
    networking = {"address": "10.0.0.1", "inbound": inbound, "outbound": calls}
    web, compiler = document("Dataplane", "web", networking=networking), Compiler(policies(OfNoCluster()))
    plain = World.of([MESH, web, timeout("1s")], kinds(discover()))
    strict = World.of([with_mtls("STRICT"), web, timeout("1s")], kinds(discover()))

    before = compiler.proxy(plain, next(iter(dataplanes(plain)))).snapshot.get(CLUSTER, "web")
    after = compiler.proxy(strict, next(iter(dataplanes(strict)))).snapshot.get(CLUSTER, "web")

    assert before is not None
    assert after is None
