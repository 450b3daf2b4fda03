"""What is explained is what is served: over random meshes, field by field, compared with Envoy's bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)

from cp.insight.explain import CallQuery, Explanation, explain
from cp.insight.explain.model import ENVOY, FieldValue
from cp.model.duration import Duration
from cp.resources.client import is_grpc_client
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.view.proxies import OutboundAddress, outbounds
from tests.explain.served import CONDITIONS, Fields, Sent, of_manager, of_proxy, of_row
from tests.random_mesh import CALLS, PATHS, Mesh, dataplanes, for_meshes
from tests.snapshots import policies

OURS = ("MeshTimeout", "MeshRetry")


def calls(world: World, chance: Random) -> Iterator[tuple[Resource, OutboundAddress, CallQuery]]:
    """For every outbound a few calls, among them those that routes ask for."""
    for dataplane in (proxy for proxy in dataplanes(world) if not is_grpc_client(proxy)):
        for listening in outbounds(world, dataplane):
            for path in chance.sample([*PATHS, "/%00"], 2):
                headers = chance.choice([(), (("x-version", "1"),)])
                target = path + chance.choice(["", "/x", "?q"])
                method = chance.choice(["GET", "POST"])
                yield dataplane, listening, CallQuery(method, listening.address, listening.port, target, headers)


@for_meshes(CALLS, times=0.75, also=(28,))
def test_every_timeout_and_retry_is_explained_with_the_value_that_is_served(mesh: Mesh) -> None:
    world, compiler = mesh.world(), Compiler(policies())
    for dataplane, listening, call in calls(world, Random(mesh.seed)):
        sent = Sent(compiler.snapshot(world, dataplane))
        found = explain(compiler, policies(), world, dataplane, call)

        assert_same(of_request(found), served_for_request(sent, listening, found))
        for backend in found.backends:
            if not backend.missing_reason:
                assert_same([*backend.values, *found.values], sent.cluster(backend.cluster), "cluster")


@for_meshes(CALLS, times=0.5)
def test_limits_of_servers_are_those_that_their_proxies_are_served(mesh: Mesh) -> None:
    world, compiler = mesh.world(), Compiler(policies())
    for dataplane, _, call in calls(world, Random(mesh.seed)):
        for hop in explain(compiler, policies(), world, dataplane, call).hops:
            limits = {(one.policy, one.field): _text(one.origin.value) for one in hop.limits if one.side == "server"}
            for name in hop.servers:
                server = next(one for one in dataplanes(world) if one.name == name)
                if len(server.spec.networking.inbound) > 1 or is_grpc_client(server):
                    continue
                served = of_inbound(Sent(compiler.snapshot(world, server)), server)

                assert limits == {key: served[key] for key in limits if key in served}


@for_meshes(CALLS, times=0.5)
def test_the_first_limit_of_both_sides_is_the_binding_one(mesh: Mesh) -> None:
    world, compiler = mesh.world(), Compiler(policies())
    for dataplane, _, call in calls(world, Random(mesh.seed)):
        for hop in explain(compiler, policies(), world, dataplane, call).hops:
            for of in {one.subject for one in hop.limits}:
                limits = [one for one in hop.limits if one.subject == of]
                smallest = min((one.seconds for one in limits if one.seconds > 0), default=None)

                assert [one.is_binding for one in limits] == [one.seconds == smallest for one in limits]


@for_meshes(CALLS, times=0.5)
def test_every_value_stands_on_the_line_that_is_named(mesh: Mesh) -> None:
    world, compiler, lines = mesh.world(), Compiler(policies()), mesh.text.splitlines()
    for dataplane, _, call in calls(world, Random(mesh.seed)):
        found = explain(compiler, policies(), world, dataplane, call)
        values = [*found.values, *(value for backend in found.backends for value in backend.values)]
        for value in values:
            for one in (value.winner, *value.losers):
                if one.policy is not None:
                    line, names = lines[one.line - 1].strip(), value.path.split(".")
                    is_of_a_section = line in {f"{name}: null" for name in names}
                    assert is_of_a_section or line.startswith(f"{names[-1]}:"), (value.path, line)


def of_request(found: Explanation) -> list[FieldValue]:
    """What is said of timeouts and retries of the request, less what a zero switches off."""
    values = [one for one in found.values if not one.note.startswith(("has no meaning", "has no effect"))]
    retries = found.outcome.forward is not None and found.outcome.forward.retry is not None
    return [one for one in values if retries or one.policy != "MeshRetry" or one.path.startswith("tcp")]


def assert_same(values: Iterable[FieldValue], served: Fields, at: str = "") -> None:
    """All that is served is explained; all that is explained is served, unless it is what Envoy does by itself."""
    ours = [value for value in values if value.policy in OURS and value.winner.value is not None]
    said = {(one.policy, one.path): _text(_with_default(one)) for one in reversed(ours)}
    certain = {(one.policy, one.path) for one in ours if one.winner.level != ENVOY and (not at or one.served_in == at)}

    assert {key: said.get(key) for key in served} == served
    assert certain - served.keys() == set()


def _with_default(value: FieldValue) -> Any:
    """A list of methods alone says in its note on which conditions."""
    _, _, conditions = value.note.partition("on the default ")
    return [*value.winner.value, *conditions.split(", ")] if conditions else value.winner.value


def _text(value: Any) -> Any:
    """As the bytes have it: durations in one form, lists that are sets in one order, predicates by Envoy's names."""
    if isinstance(value, str):
        return str(Duration.parse(value))
    if isinstance(value, list) and value and isinstance(value[0], str):
        return sorted(CONDITIONS.get(one, one) for one in value)
    if isinstance(value, list) and value and "predicate" in value[0]:
        return ["previous_hosts"]
    return value


def served_for_request(sent: Sent, listening: OutboundAddress, found: Explanation) -> Fields:
    end = sent.listener(listening.address, listening.port)
    if not isinstance(end, HttpConnectionManager):
        return of_proxy(end)
    row = found.outcome.row
    section = "grpc" if found.outbound.protocol == "grpc" else "http"
    return of_manager(end) | ({} if row is None else of_row(sent.row(end, row.index), section))


def of_inbound(sent: Sent, server: Resource) -> Fields:
    networking = server.spec.networking
    (inbound,) = networking.inbound
    end = sent.listener(networking.address, inbound.port)
    of_cluster = sent.cluster(f"localhost:{inbound.service_port}")
    if not isinstance(end, HttpConnectionManager):
        return of_cluster | of_proxy(end)
    return of_cluster | of_manager(end) | of_row(sent.row(end, 0), "http")
