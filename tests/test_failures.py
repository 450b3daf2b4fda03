"""A fault of ours costs the part of a proxy that meets it: what was made last stays, or calls are answered with 500."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from envoy.config.route.v3.route_components_pb2 import VirtualHost
from envoy.config.route.v3.route_pb2 import RouteConfiguration

from cp.insight.inspect import affected_proxies
from cp.insight.lint import lint
from cp.insight.lint.lint import RULES
from cp.insight.lint.survey import MeshSurvey
from cp.insight.simulate.virtual_hosts import virtual_host_of
from cp.model.document import Document
from cp.model.names import Key
from cp.policies import Policy, discover, kinds
from cp.policies.mesh_timeout import MeshTimeout
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.backend import BackendStage
from cp.translate.compiler import Compiler
from cp.translate.outbound import OutboundStage
from cp.translate.packing import CLUSTER, LISTENER, ROUTES
from cp.translate.snapshot import Snapshot
from generators.envoy.names import MISSING_CLUSTER
from tests.random_mesh import MESH, document

WEB = Key("Dataplane", "default", "web")
CURSE = "66s"
"""A timeout that the faulty policy cannot write."""


FOR_FINE = document(
    "MeshRetry",
    "fine",
    spec={"to": [{"targetRef": {"kind": "MeshService", "name": "fine"}, "default": {"http": {"numRetries": 2}}}]},
)


class Faulty(MeshTimeout):
    """A policy with a fault in one of its hooks, or in its defaults, which it meets for one value."""

    def __init__(self, hook: str) -> None:
        self._hook = hook

    def cluster(self, conf: Any, draft: Any) -> None:
        self._meet("cluster", conf)
        super().cluster(conf, draft)

    def listener(self, conf: Any, draft: Any) -> None:
        self._meet("listener", conf)
        super().listener(conf, draft)

    def route(self, conf: Any, draft: Any) -> None:
        self._meet("route", conf)
        super().route(conf, draft)

    def _meet(self, hook: str, conf: Any) -> None:
        if hook == self._hook and conf.connection_timeout and str(conf.connection_timeout) == "1m6s":
            raise RecursionError("too deep")


def policies(hook: str) -> list[Policy[Any]]:
    return [Faulty(hook) if isinstance(policy, MeshTimeout) else policy for policy in discover()]


def dataplane() -> Document:
    calls = [{"port": 10000 + n, "tags": {"kuma.io/service": name}} for n, name in enumerate(("cursed", "fine"))]
    inbound = [{"port": 8080, "tags": {"kuma.io/service": "web", "kuma.io/protocol": "http"}}]
    networking = {"address": "10.0.0.1", "inbound": inbound, "outbound": calls}
    return document("Dataplane", "web", networking=networking)


def servers(protocol: str = "http") -> list[Document]:
    """Who serves the names that are called."""
    return [
        document(
            "Dataplane",
            name,
            networking={
                "address": f"10.0.1.{n}",
                "inbound": [{"port": 80, "tags": {"kuma.io/service": name, "kuma.io/protocol": protocol}}],
            },
        )
        for n, name in enumerate(("cursed", "fine"), 1)
    ]


def timeout(value: str, part: str = "to") -> Document:
    target = {"kind": "MeshService", "name": "cursed"} if part == "to" else {"kind": "Mesh"}
    return document(
        "MeshTimeout", "slow", spec={part: [{"targetRef": target, "default": {"connectionTimeout": value}}]}
    )


def world(*documents: Document, used: list[Policy[Any]]) -> World:
    return World.of([MESH, dataplane(), *servers(), *documents], kinds(used))


def web(world: World) -> Resource:
    resource = world.get(WEB)
    assert resource is not None
    return resource


def contents(snapshot: Snapshot, *type_urls: str) -> dict[str, bytes]:
    return {packed.name: packed.body for type_url in type_urls for packed in snapshot.of(type_url)}


@pytest.mark.parametrize("hook", ["cluster", "listener", "route"])
def test_what_cannot_be_made_stays_as_it_was_and_the_rest_is_news(hook: str) -> None:
    used = policies(hook)
    compiler, before = Compiler(used), world(timeout("2s"), used=used)
    good = compiler.snapshot(before, web(before))
    calls_all = document(
        "MeshTimeout",
        "all",
        spec={
            "to": [
                {"targetRef": {"kind": "MeshService", "name": "fine"}, "default": {"http": {"requestTimeout": "3s"}}}
            ]
        },
    )
    after = before.next({timeout(CURSE).key: timeout(CURSE), calls_all.key: calls_all}, 1)

    proxy = compiler.proxy(after, web(after))

    kept = {"cluster": (CLUSTER,), "listener": (LISTENER,), "route": (LISTENER, ROUTES)}[hook]
    old, new = contents(good, *kept), contents(proxy.snapshot, *kept)
    cursed = [name for name in old if "cursed" in name or "10000" in name]
    assert len(cursed) == len(kept), list(old)
    assert {name: new.get(name) for name in cursed} == {name: old[name] for name in cursed}
    assert contents(good, LISTENER, ROUTES) != contents(proxy.snapshot, LISTENER, ROUTES)
    assert [(failure.kind, failure.policies, failure.is_kept) for failure in proxy.failures] == [
        ("MeshTimeout", (timeout("2s").key,), True)
    ]


def test_what_could_never_be_made_is_answered_with_500() -> None:
    used = policies("listener")
    at_once = world(timeout(CURSE), used=used)

    proxy = Compiler(used).proxy(at_once, web(at_once))

    listeners = contents(proxy.snapshot, LISTENER)
    (failed,) = [body for body in contents(proxy.snapshot, LISTENER, ROUTES).values() if b"RecursionError" in body]
    assert b"MeshTimeout: RecursionError in test_failures.py" in failed
    assert len(listeners) == 3
    assert [failure.instead for failure in proxy.failures] == ["an answer of 500"]


def test_what_could_never_be_made_of_tcp_is_closed_and_the_operator_reads_that() -> None:
    used = policies("listener")
    cursed, fine = servers(protocol="tcp")
    at_once = World.of([MESH, dataplane(), cursed, fine, timeout(CURSE)], kinds(used))

    proxy = Compiler(used).proxy(at_once, web(at_once))

    assert MISSING_CLUSTER.encode() in contents(proxy.snapshot, LISTENER)["outbound:127.0.0.1:10000"]
    assert [failure.instead for failure in proxy.failures] == ["closed connections"]


def test_what_could_never_be_made_for_a_grpc_client_fails_its_calls_and_the_operator_reads_that() -> None:
    used = policies("listener")
    client = document("Dataplane", "web", labels={"koguma.io/client": "grpc"}, networking={"address": "10.0.0.1"})
    service = document("MeshService", "cursed", spec={"ports": [{"port": 80, "appProtocol": "grpc"}]})
    at_once = World.of([MESH, client, service, timeout(CURSE)], kinds(used))

    proxy = Compiler(used).proxy(at_once, web(at_once))

    assert [failure.instead for failure in proxy.failures] == ["calls that fail"]


def test_nobody_is_let_in_where_it_is_not_known_whom_to_let_in() -> None:
    used = policies("listener")
    at_once = world(timeout(CURSE, part="from"), used=used)

    proxy = Compiler(used).proxy(at_once, web(at_once))

    assert len(contents(proxy.snapshot, LISTENER)) == 2
    assert [(failure.part, failure.instead) for failure in proxy.failures] == [("inbound 8080", "nothing")]


def test_what_is_mended_is_served() -> None:
    used = policies("route")
    compiler, faulty = Compiler(used), world(timeout(CURSE), used=used)
    compiler.proxy(faulty, web(faulty))
    mended = faulty.next({timeout("2s").key: timeout("2s")}, 1)

    proxy = compiler.proxy(mended, web(mended))

    assert proxy.failures == ()
    assert proxy.snapshot == Compiler(used).snapshot(mended, web(mended))


def test_a_failure_outlasts_changes_elsewhere() -> None:
    used = policies("cluster")
    compiler, before = Compiler(used), world(timeout("2s"), used=used)
    good = compiler.snapshot(before, web(before))
    faulty = before.next({timeout(CURSE).key: timeout(CURSE)}, 1)
    compiler.proxy(faulty, web(faulty))
    other = document(
        "MeshRetry",
        "other",
        spec={"to": [{"targetRef": {"kind": "Mesh"}, "default": {"tcp": {"maxConnectAttempt": 2}}}]},
    )
    later = faulty.next({other.key: other}, 2)

    proxy = compiler.proxy(later, web(later))

    assert [failure.is_kept for failure in proxy.failures] == [True]
    assert contents(proxy.snapshot, CLUSTER)["cursed"] == contents(good, CLUSTER)["cursed"]


@pytest.mark.parametrize("stage", ["outbounds", "backends", "inbounds", "sidecars"])
def test_a_fault_in_a_stage_costs_its_part_alone(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise KeyError("cursed")

    used = list(discover())
    here = world(used=used)
    compiler = Compiler(used)
    whole = compiler.snapshot(here, web(here))
    monkeypatch.setattr(getattr(compiler.translator, stage), "_result", failing)
    edited = document("Dataplane", "web", labels={"a": "b"}, networking=dataplane().data["networking"])
    after = here.next({edited.key: edited, timeout("2s").key: timeout("2s")}, 1)

    proxy = compiler.proxy(after, web(after))

    assert all("KeyError in test_failures.py" in failure.reason for failure in proxy.failures)
    assert proxy.failures
    for type_url in (LISTENER, CLUSTER):
        assert contents(proxy.snapshot, type_url).keys() == contents(whole, type_url).keys()


def test_a_fault_in_a_generator_after_one_in_its_stage_costs_its_part_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise KeyError("cursed")

    used = policies("cluster")
    compiler, here = Compiler(used), world(used=used)
    with monkeypatch.context() as patch:
        patch.setattr(compiler.translator.backends, "_result", failing)
        compiler.proxy(here, web(here))
    after = here.next({timeout(CURSE).key: timeout(CURSE)}, 1)

    proxy = compiler.proxy(after, web(after))

    assert [(failure.part, failure.kind) for failure in proxy.failures] == [("the cluster of cursed", "MeshTimeout")]
    assert "fine" in contents(proxy.snapshot, CLUSTER)


def test_lint_tells_the_failure_with_the_policy() -> None:
    used = policies("cluster")

    findings = [finding for finding in lint(used, world(timeout(CURSE), used=used)) if finding.code == "failed"]

    assert [finding.resource for finding in findings] == [timeout(CURSE).key]
    assert "a fault of koguma in MeshTimeout at the cluster of cursed" in findings[0].message


def test_a_rule_of_lint_with_a_fault_says_so_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(_: MeshSurvey) -> Any:
        raise KeyError("default")

    monkeypatch.setattr(sys.modules["cp.insight.lint.lint"], "RULES", (faulty, *RULES))
    used = list(discover())

    codes = {finding.code for finding in lint(used, world(timeout("2s"), used=used))}

    assert "failed" in codes
    assert len(codes) > 1


def test_lint_judges_a_passthrough_that_says_nothing() -> None:
    used = list(discover())
    networking = {**dataplane().data["networking"], "transparentProxying": {"redirectPortOutbound": 15001}}
    redirecting = document("Dataplane", "web", networking=networking)
    empty = document("MeshPassthrough", "empty", spec={})
    here = World.of([MESH, redirecting, *servers(), empty], kinds(used))

    assert "failed" not in {finding.code for finding in lint(used, here)}


def test_of_a_table_without_domains_nobody_is_chosen() -> None:
    assert virtual_host_of(RouteConfiguration(name="empty"), "backend") is None
    assert virtual_host_of(RouteConfiguration(virtual_hosts=[VirtualHost(name="nobody")]), "backend") is None


def shadowed(called: str = "cursed", to: str = "fine") -> Document:
    """A route that leads all calls of a service to another, so that its own cluster is not served."""
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
        "default": {"backendRefs": [{"kind": "MeshServiceSubset", "name": to}]},
    }
    item = {"targetRef": {"kind": "MeshService", "name": called}, "rules": [rule]}
    return document("MeshHTTPRoute", "away", spec={"to": [item]})


def told(hook: str) -> set[str]:
    used = policies(hook)
    here = world(timeout(CURSE), shadowed(), used=used)
    return {finding.code for finding in lint(used, here) if finding.resource == timeout(CURSE).key}


def test_of_a_part_that_could_not_be_made_lint_does_not_say_that_it_is_not_served() -> None:
    assert told("listener") == {"failed"}


def test_a_fault_that_would_be_met_in_a_part_that_is_not_served_is_nobody_s() -> None:
    assert told("cluster") == {"routed-elsewhere"}


def test_of_a_cluster_that_could_not_be_made_lint_calls_no_other_policy_idle() -> None:
    """Nobody calls it but by a route, so that it is there by itself."""
    used = policies("cluster")
    calls = [{"port": 10001, "tags": {"kuma.io/service": "fine"}}]
    only_fine = document("Dataplane", "web", networking={**dataplane().data["networking"], "outbound": calls})
    limits = document(
        "MeshCircuitBreaker",
        "limits",
        spec={
            "to": [
                {
                    "targetRef": {"kind": "MeshService", "name": "cursed"},
                    "default": {"connectionLimits": {"maxConnections": 7}},
                }
            ]
        },
    )
    here = World.of([MESH, only_fine, *servers(), timeout(CURSE), shadowed("fine", "cursed"), limits], kinds(used))
    findings = lint(used, here)

    assert "failed" in {finding.code for finding in findings if finding.resource == timeout(CURSE).key}
    assert not [str(finding) for finding in findings if finding.resource == limits.key]


@pytest.mark.parametrize(
    ("stage", "method"), [(OutboundStage, "_result"), (BackendStage, "_result"), (BackendStage, "tasks")]
)
def test_inspection_answers_where_a_part_cannot_be_made(
    stage: type, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise KeyError("cursed")

    monkeypatch.setattr(stage, method, failing)
    here = world(timeout("2s"), shadowed(), used=list(discover()))
    (policy,) = here.table("MeshTimeout", "default")
    (of_web,) = (one for one in affected_proxies(here, policy) if one.dataplane == WEB)

    assert [one.path for one in of_web.effects] == ["connectionTimeout"] * len(of_web.effects)
    assert of_web.effects
