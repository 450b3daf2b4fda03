"""At random gateways, explanations agree with the served bytes: what holds for clients, for rows and for clusters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random

import pytest
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy

from cp.insight.explain import AmbiguousCall, CallQuery, Explanation, explain
from cp.insight.explain.model import FieldValue
from cp.insight.simulate import UnsimulatedFeature
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.matching.profile import gateway_of
from cp.translate.compiler import Compiler
from cp.translate.packing import LISTENER
from cp.translate.snapshot import Snapshot
from tests.drawing import expect_more
from tests.edge.draws import draw
from tests.edge.policy_draws import draw_with_policies
from tests.explain.served import DecodedSnapshot, Fields, client_fields, row_fields, tcp_fields, terminal_filter_of
from tests.explain.test_served import assert_same, values_of_request
from tests.random_mesh import EDGE, IN_SHARES, Mesh, dataplanes, seeds, share
from tests.random_mesh.gateways import CALLED, PATHS
from tests.snapshots import policies

SCHEMES = {"HTTP": "http", "HTTPS": "https", "TLS": "tls", "TCP": "tcp"}

KINDS = (*EDGE, "MeshTimeout", "MeshRetry")
MORE = {
    "certificate of a gateway": 6,
    "MeshHTTPRoute of a gateway": 3,
    "MeshTCPRoute of a gateway": 2,
    "Dataplane": 3,
    "MeshService": 3,
    "policy of a gateway": 12,
}
IDLE = "makes no difference"


def calls(world: World, chance: Random) -> Iterator[tuple[Resource, CallQuery]]:
    """A few calls to every listener of every gateway."""
    for dataplane in dataplanes(world):
        gateway = gateway_of(world, dataplane) if dataplane.spec.is_builtin_gateway else None
        for listener in () if gateway is None else gateway.spec.listeners:
            scheme = SCHEMES[listener.protocol or "HTTP"]
            for path in chance.sample([*PATHS, "/api/x"], 2):
                host = chance.choice([*CALLED, (listener.hostname or "a.test").replace("*", "x")]).partition(":")[0]
                yield dataplane, CallQuery("GET", host.lower(), listener.port, path, scheme=scheme)


def explanations(mesh: Mesh) -> Iterator[tuple[Snapshot, Explanation]]:
    """Of the calls that some hostname takes, and that are sent on."""
    world, compiler = mesh.world(), Compiler(policies())
    for dataplane, call in calls(world, Random(mesh.seed)):
        try:
            explanation = explain(compiler, policies(), world, dataplane, call)
        except (AmbiguousCall, UnsimulatedFeature):
            continue  # nothing listens there, or nobody knows what becomes of it
        if explanation.listener is not None and explanation.listener.hostname and explanation.outcome.forward:
            yield compiler.snapshot(world, dataplane), explanation


@IN_SHARES
def test_every_timeout_and_retry_at_a_gateway_is_explained_with_the_value_that_is_served(is_further: bool) -> None:
    compared = 0
    for seed in share(seeds(), is_further):
        mesh = draw(seed, "127.0.0.77", KINDS, MORE).mesh
        for snapshot, explanation in explanations(mesh):
            judge(snapshot, explanation)
            compared += sum(value.winner.policy is not None for value in explanation.values)

    expect_more(compared, 50)


@pytest.mark.long
@pytest.mark.parametrize("first", [0, 25, 50])
def test_what_holds_is_explained_where_many_policies_meet(first: int) -> None:
    for seed in range(first, first + 25):
        for snapshot, explanation in explanations(draw_with_policies(seed, "127.0.0.77").mesh):
            judge(snapshot, explanation)


def judge(snapshot: Snapshot, explanation: Explanation) -> None:
    last_filter, listener = filter_of(snapshot, explanation), explanation.listener
    assert listener is not None
    served = fields_of_calls(snapshot, last_filter, explanation)
    assert_same(without_idle(values_of_request(explanation), served), served)
    assert_same(listener.clients, client_fields(last_filter))
    for backend in explanation.backends:
        if not backend.missing_reason:
            of_cluster = DecodedSnapshot(snapshot).cluster(backend.cluster)
            assert_same([*backend.values, *explanation.values], of_cluster, "cluster")
    for value in explanation.values:
        takes_own_place = (value.winner.policy, value.winner.path) in {
            (loser.policy, loser.path) for loser in value.losers
        }
        assert value.winner.policy is None or not takes_own_place, value


def without_idle(values: Iterable[FieldValue], served: Fields) -> list[FieldValue]:
    """Without those that are told to make no difference, unless what they say is served anyway."""
    return [value for value in values if not value.note.startswith(IDLE) or (value.policy, value.path) in served]


def filter_of(snapshot: Snapshot, explanation: Explanation) -> HttpConnectionManager | TcpProxy:
    """The last filter of the chain that takes the call."""
    assert explanation.listener is not None
    for packed in snapshot.of(LISTENER):
        listener = Listener.FromString(packed.body)
        if listener.address.socket_address.port_value == explanation.listener.port:
            chains = {chain.name: chain for chain in listener.filter_chains}
            of_all = next(iter(chains.values()))
            return terminal_filter_of(chains.get(explanation.listener.hostname, of_all))
    raise KeyError(explanation.listener.port)


def fields_of_calls(
    snapshot: Snapshot, last_filter: HttpConnectionManager | TcpProxy, explanation: Explanation
) -> Fields:
    if not isinstance(last_filter, HttpConnectionManager):
        return {key: value for key, value in tcp_fields(last_filter).items() if key[0] == "MeshRetry"}
    outcome = explanation.outcome
    assert outcome.row is not None
    hosts = {host.name: host for host in DecodedSnapshot(snapshot).table(last_filter).virtual_hosts}
    row = hosts[outcome.virtual_host].routes[outcome.row.index]
    written = (value for value in values_of_request(explanation) if value.winner.value is not None)
    speaks_grpc = any(value.path.startswith("grpc.") for value in written)
    return row_fields(row, "grpc" if speaks_grpc else "http")
