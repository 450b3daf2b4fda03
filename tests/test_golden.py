"""Golden cases of what is served. Adding a case is adding a file under tests/cases; nothing here changes.

`proxies` holds whole snapshots, `grpc_clients` those of gRPC clients without a proxy, `policies/NAME` what one policy
makes different, and `legacy/NAME` what one legacy policy does: the snapshot is generated with and without the documents
of that kind, and only what differs is written down.
"""

from __future__ import annotations

import betterproto2
import pytest
from envoy_data_plane.envoy.config.cluster.v3 import Cluster
from envoy_data_plane.envoy.config.endpoint.v3 import ClusterLoadAssignment
from envoy_data_plane.envoy.config.listener.v3 import Listener
from envoy_data_plane.envoy.config.route.v3 import RouteConfiguration
from envoy_data_plane.envoy.extensions.transport_sockets.tls.v3 import Secret
from envoy_data_plane.envoy.service.runtime.v3 import Runtime
from google.protobuf import symbol_database

from cp.model.source import LEGACY_POLICIES
from cp.translate.packing import CLUSTER, ENDPOINTS, LISTENER, ROUTES, RUNTIME, SECRET, PackedResource
from tests.golden import Case, Golden, cases, strays
from tests.snapshots import Question, changed, policies, shown
from tests.witness import Witness

STAGES = {"proxies", "grpc_clients", "policies", "rules", "validation", "explain", "lint", "documents", "legacy"}
SERVED = [*cases("proxies"), *cases("policies"), *cases("legacy")]

_SECOND_READER: dict[str, type[betterproto2.Message]] = {
    CLUSTER: Cluster,
    ENDPOINTS: ClusterLoadAssignment,
    LISTENER: Listener,
    ROUTES: RouteConfiguration,
    SECRET: Secret,
    RUNTIME: Runtime,
}


def test_every_file_among_the_cases_belongs_to_one() -> None:
    assert strays(STAGES) == []


@pytest.mark.parametrize("case", [*cases("proxies"), *cases("grpc_clients")])
def test_what_a_proxy_is_served(case: Case, golden: Golden) -> None:
    question = Question.of(case)

    golden.check(case, shown(question, question.snapshot()))


@pytest.mark.parametrize("case", cases("policies"))
def test_what_a_policy_changes(case: Case, golden: Golden) -> None:
    question = Question.of(case)
    kind = next(p.kind.name for p in policies() if case.name.split("/")[1] == _folder(p.kind.name))

    golden.check(case, changed(question, question.snapshot(), question.snapshot(without=kind)))


@pytest.mark.parametrize("case", cases("legacy"))
def test_what_a_legacy_policy_changes(case: Case, golden: Golden) -> None:
    question = Question.of(case)
    kind = next(name for name in LEGACY_POLICIES if case.name.split("/")[1] == _folder(name))

    golden.check(case, changed(question, question.snapshot(), question.snapshot(without=kind)))


@pytest.mark.envoy
@pytest.mark.xdist_group("witness")
@pytest.mark.parametrize("case", SERVED)
def test_a_real_envoy_takes_it(case: Case, witness: Witness) -> None:
    assert witness.refusal(Question.of(case).snapshot()) == ""


@pytest.mark.parametrize("case", [*SERVED, *cases("grpc_clients")])
def test_a_second_reader_understands_every_byte(case: Case) -> None:
    """Another implementation of protobuf, with Envoy's messages generated anew, reads and writes the same."""
    snapshot = Question.of(case).snapshot()

    assert [p.name for part in snapshot.parts for p in part if _read_and_written(p) != p.body] == []


def test_each_legacy_kind_has_a_case() -> None:
    shown = {case.values[0].name.split("/")[1] for case in cases("legacy")}
    assert shown == {_folder(kind) for kind in LEGACY_POLICIES}


def _read_and_written(packed: PackedResource) -> bytes:
    """Fields come back in another order: so both are compared in the order of the first writer."""
    again = bytes(_SECOND_READER[packed.type_url].parse(packed.body))
    message = symbol_database.Default().GetSymbol(packed.type_url.partition("/")[2])
    return bytes(message.FromString(again).SerializeToString(deterministic=True))


def _folder(kind: str) -> str:
    """MeshHTTPRoute's cases are in `mesh_http_route`."""
    words = kind.replace("HTTP", "Http").replace("TCP", "Tcp").replace("TLS", "Tls")
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in words).strip("_")
