"""At random gateways, the timeouts and retries that are served are those that the documents say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

import pytest

from cp.insight.simulate import simulate
from cp.model.violation import Severity
from cp.translate.compiler import Compiler
from tests.edge.draws import call_of, requests
from tests.edge.holding import Holding
from tests.edge.listeners import mesh_gateway
from tests.edge.oracle import Request
from tests.edge.policy_draws import draw_with_policies
from tests.edge.served import served
from tests.oracle.reading import Documents, Resource, read
from tests.oracle.request import is_judged
from tests.random_mesh import Mesh, dataplanes
from tests.snapshots import policies

REQUESTS: Final = 20


def gateways(documents: Documents) -> Iterator[tuple[Resource, Resource]]:
    """The proxies that are builtin gateways, each with its MeshGateway."""
    for proxy in documents.of("Dataplane"):
        is_builtin = (proxy.spec["networking"].get("gateway") or {}).get("type") == "BUILTIN"
        gateway = mesh_gateway(documents, proxy) if is_builtin and is_judged(proxy) else None
        if gateway is not None:
            yield proxy, gateway


def differences(mesh: Mesh, counted: Counter[str]) -> Iterator[str]:
    """Every request for which something else is served than the documents say."""
    world, documents, compiler = mesh.world(), read(mesh.documents), Compiler(policies())
    assert not [str(finding) for finding in world.findings if finding.severity is Severity.ERROR], mesh
    of_name = {dataplane.name: dataplane for dataplane in dataplanes(world)}
    for proxy, gateway in gateways(documents):
        holding, snapshot = Holding(documents, proxy), compiler.snapshot(world, of_name[proxy.stored])
        for request in requests(Random(mesh.seed), gateway.spec["conf"]["listeners"], REQUESTS):
            connected = holding.of_connection(request)
            expected = connected or holding.of_request(request)
            if expected is None:
                continue
            actual = served(snapshot, request, simulate(snapshot, call_of(request, _address(proxy))))
            if not connected and expected["retry"] and "retryOn" not in expected["retry"]:
                actual["retry"].pop("retryOn", None)  # no document says what it is beside headers of responses
            counted.update(["connections"] if connected else _kinds(holding, request))
            if expected != actual:
                yield f"{proxy.stored}: {request}\n  is served {actual}\n  documents {expected}\n{mesh}"


def _address(proxy: Resource) -> str:
    return str(proxy.spec["networking"]["address"])


def _kinds(holding: Holding, request: Request) -> Iterator[str]:
    """What makes a request one of interest."""
    yield "requests"
    competitors = holding.competitors(request)
    yield from (f"several {level}" for level, policies in competitors.items() if len(policies) > 1)
    if any(_differ_in_tags_alone(policies) for policies in competitors.values()):
        yield "targets that differ in tags of listeners alone"
    names = [policy.identity.name for policies in competitors.values() for policy in policies]
    if len(set(names)) < len(names):
        yield "namesakes"


def _differ_in_tags_alone(policies: Sequence[Resource]) -> bool:
    targets = [policy.spec.get("targetRef") or {} for policy in policies]
    of_gateways = {
        str(sorted((target.get("tags") or {}).items())) for target in targets if target.get("kind") == "MeshGateway"
    }
    return len(of_gateways) > 1


def judge(seeds: Sequence[int]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for seed in seeds:
        mesh = draw_with_policies(seed, "127.0.0.77").mesh
        assert list(differences(mesh, counted)) == []
    return counted


def test_what_holds_for_a_request_at_a_gateway_is_what_the_documents_say() -> None:
    counted = judge(range(60))

    assert counted["requests"] > 300
    assert counted["connections"] > 10, counted
    for kind in ("several of a route", "several of the mesh", "several of the service", "several of clients"):
        assert counted[kind] > 20, counted
    assert counted["targets that differ in tags of listeners alone"] > 20, counted
    assert counted["namesakes"] > 20, counted


@pytest.mark.long
@pytest.mark.parametrize("first", range(60, 1060, 50))
def test_what_holds_for_a_great_many_requests_is_what_the_documents_say(first: int) -> None:
    judge(range(first, first + 50))
