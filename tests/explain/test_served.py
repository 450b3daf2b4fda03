"""Explanations agree with the served bytes, field by field, over random meshes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)

from cp.identity.identities import identity_of
from cp.insight.explain import CallQuery, Explanation, explain
from cp.insight.explain.model import ENVOY, FieldValue
from cp.insight.explain.values import is_written_over
from cp.model.duration import Duration
from cp.resources.client import is_grpc_client
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.view.proxies import OutboundAddress, outbounds
from tests.explain.served import CONDITIONS, DecodedSnapshot, Fields, manager_fields, row_fields, tcp_fields
from tests.oracle.door import Client
from tests.random_mesh import CALLS, PATCHED, PATHS, Mesh, dataplanes, for_meshes
from tests.snapshots import policies

COMPARED_KINDS = ("MeshTimeout", "MeshRetry")


def calls(world: World, chance: Random) -> Iterator[tuple[Resource, OutboundAddress, CallQuery]]:
    """A few calls to every outbound, some of which match the routes of random meshes."""
    for dataplane in (proxy for proxy in dataplanes(world) if not is_grpc_client(proxy)):
        for address in outbounds(world, dataplane):
            for path in chance.sample([*PATHS, "/%00"], 2):
                headers = chance.choice([(), (("x-version", "1"),)])
                target = path + chance.choice(["", "/x", "?q"])
                method = chance.choice(["GET", "POST"])
                yield dataplane, address, CallQuery(method, address.address, address.port, target, headers)


@for_meshes(CALLS, times=0.75, also=(28,))
def test_every_timeout_and_retry_is_explained_with_the_value_that_is_served(mesh: Mesh) -> None:
    world, compiler = mesh.world(), Compiler(policies())
    for dataplane, address, call in calls(world, Random(mesh.seed)):
        snapshot = DecodedSnapshot(compiler.snapshot(world, dataplane))
        explanation = explain(compiler, policies(), world, dataplane, call)

        assert_same(values_of_request(explanation), served_fields(snapshot, address, explanation))
        for backend in explanation.backends:
            if not backend.missing_reason:
                assert_same([*backend.values, *explanation.values], snapshot.cluster(backend.cluster), "cluster")


@for_meshes(PATCHED, times=0.75, also=(14, 15, 40))
def test_beside_patches_no_value_is_explained_to_hold_that_is_not_served(mesh: Mesh) -> None:
    world, compiler = mesh.world(), Compiler(policies())
    for dataplane, address, call in calls(world, Random(mesh.seed)):
        snapshot = DecodedSnapshot(compiler.snapshot(world, dataplane))
        explanation = explain(compiler, policies(), world, dataplane, call)

        of_call = served_fields(snapshot, address, explanation)
        assert_held_or_written_over(values_of_request(explanation), explanation.values, of_call)
        for backend in explanation.backends:
            if not backend.missing_reason:
                of_backend = snapshot.cluster(backend.cluster)
                assert_held_or_written_over(backend.values, (*backend.values, *explanation.values), of_backend)


def assert_held_or_written_over(
    holding: Iterable[FieldValue], told_values: Iterable[FieldValue], served: Fields
) -> None:
    """What a patch wrote is in no field of a policy."""
    held = {
        (value.policy, value.path): _text(_with_default(value))
        for value in holding
        if value.policy in COMPARED_KINDS and value.winner.value is not None and value.winner.level != ENVOY
    }
    assert {key: value for key, value in held.items() if key in served} == {
        key: served[key] for key in held if key in served
    }
    written_over = {(value.policy, value.path) for value in told_values if is_written_over(value)}
    assert not written_over & {key for key, value in held.items() if served.get(key) == value}


@for_meshes(CALLS, times=0.5)
def test_limits_of_servers_are_those_that_their_proxies_are_served(mesh: Mesh) -> None:
    world, compiler = mesh.world(), Compiler(policies())
    for dataplane, _, call in calls(world, Random(mesh.seed)):
        for hop in explain(compiler, policies(), world, dataplane, call).hops:
            limits = {
                (limit.policy, limit.field): _text(limit.origin.value) for limit in hop.limits if limit.side == "server"
            }
            for name in hop.servers:
                server = next(proxy for proxy in dataplanes(world) if proxy.name == name)
                if len(server.spec.networking.inbound) > 1 or is_grpc_client(server):
                    continue
                shown = DecodedSnapshot(compiler.snapshot(world, dataplane)).shown_to(hop.cluster)
                identity = identity_of(world, dataplane) if shown is not None else None
                client = None if identity is None or shown is None else Client(identity.uris, shown)
                served = inbound_fields(DecodedSnapshot(compiler.snapshot(world, server)), server, client)

                assert limits == {key: served[key] for key in limits if key in served}


@for_meshes(CALLS, times=0.5)
def test_the_first_limit_of_both_sides_is_the_binding_one(mesh: Mesh) -> None:
    world, compiler = mesh.world(), Compiler(policies())
    for dataplane, _, call in calls(world, Random(mesh.seed)):
        for hop in explain(compiler, policies(), world, dataplane, call).hops:
            for subject in {limit.subject for limit in hop.limits}:
                limits = [limit for limit in hop.limits if limit.subject == subject]
                smallest = min((limit.seconds for limit in limits if limit.seconds > 0), default=None)

                assert [limit.is_binding for limit in limits] == [limit.seconds == smallest for limit in limits]


@for_meshes(CALLS, times=0.5)
def test_every_value_is_on_the_line_of_its_origin(mesh: Mesh) -> None:
    world, compiler, lines = mesh.world(), Compiler(policies()), mesh.text.splitlines()
    for dataplane, _, call in calls(world, Random(mesh.seed)):
        explanation = explain(compiler, policies(), world, dataplane, call)
        values = [*explanation.values, *(value for backend in explanation.backends for value in backend.values)]
        for value in values:
            for origin in (value.winner, *value.losers):
                if origin.policy is not None:
                    line, names = lines[origin.line - 1].strip(), value.path.split(".")
                    is_section_null = line in {f"{name}: null" for name in names}
                    assert is_section_null or line.startswith(f"{names[-1]}:"), (value.path, line)


def values_of_request(explanation: Explanation) -> list[FieldValue]:
    """The explained timeouts and retries of the request, without retries if a zero switches them off."""
    values = [value for value in explanation.values if not value.note.startswith(("has no meaning", "has no effect"))]
    has_retries = explanation.outcome.forward is not None and explanation.outcome.forward.retry is not None
    return [value for value in values if has_retries or value.policy != "MeshRetry" or value.path.startswith("tcp")]


def assert_same(values: Iterable[FieldValue], served: Fields, served_in: str = "") -> None:
    """Every served field is explained, and every explained field is served unless it is a default of Envoy's."""
    compared = [value for value in values if value.policy in COMPARED_KINDS and value.winner.value is not None]
    explained_fields = {(value.policy, value.path): _text(_with_default(value)) for value in reversed(compared)}
    certain_keys = {
        (value.policy, value.path)
        for value in compared
        if value.winner.level != ENVOY and (not served_in or value.served_in == served_in)
    }

    assert {key: explained_fields.get(key) for key in served} == served
    assert certain_keys - served.keys() == set()


def _with_default(value: FieldValue) -> Any:
    """The value; with the conditions from its note if it lists methods only."""
    _, _, conditions = value.note.partition("on the default ")
    return [*value.winner.value, *conditions.split(", ")] if conditions else value.winner.value


def _text(value: Any) -> Any:
    """A value in the form of the bytes: durations in one form, sets in one order, predicates by Envoy's names."""
    if isinstance(value, str):
        return str(Duration.parse(value))
    if isinstance(value, list) and value and isinstance(value[0], str):
        return sorted(CONDITIONS.get(condition, condition) for condition in value)
    if isinstance(value, list) and value and "predicate" in value[0]:
        return ["previous_hosts"]
    return value


def served_fields(snapshot: DecodedSnapshot, address: OutboundAddress, explanation: Explanation) -> Fields:
    last_filter = snapshot.listener(address.address, address.port)
    if not isinstance(last_filter, HttpConnectionManager):
        return tcp_fields(last_filter)
    row = explanation.outcome.row
    assert explanation.outbound is not None
    section = "grpc" if explanation.outbound.protocol == "grpc" else "http"
    return manager_fields(last_filter) | (
        {} if row is None else row_fields(snapshot.row(last_filter, row.index), section)
    )


def inbound_fields(snapshot: DecodedSnapshot, server: Resource, client: Client | None) -> Fields:
    """What holds for a client; without one, for a caller in plain text."""
    networking = server.spec.networking
    (inbound,) = networking.inbound
    last_filter = snapshot.listener(networking.address, inbound.port)
    cluster_fields = snapshot.cluster(f"localhost:{inbound.service_port}")
    if not isinstance(last_filter, HttpConnectionManager):
        return cluster_fields | tcp_fields(last_filter)
    return cluster_fields | manager_fields(last_filter) | row_fields(snapshot.row_for(last_filter, client), "http")
