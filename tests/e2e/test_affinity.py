"""Who is near answers by the weight that is written, where nobody says in which zone anything is."""

from collections import Counter

import pytest

from tests.support.loopback import Address
from tests.support.mesh import Document, mesh_service, policy, service_item
from tests.support.playground import Playground
from tests.support.upstreams import answering
from tests.support.waiting import eventually

pytestmark = [pytest.mark.envoy, pytest.mark.long]

CALLS = 300


def weighed(*tags: Document) -> Document:
    awareness = {"localZone": {"affinityTags": list(tags)}}
    return policy("MeshLoadBalancingStrategy", "near", service_item("backend", {"localityAwareness": awareness}))


@pytest.fixture(scope="module")
def mesh(empty_mesh: Playground) -> Playground:
    empty_mesh.control_plane.apply(mesh_service("backend"))
    empty_mesh.bare("beside", "backend", rack="1", row="1")
    empty_mesh.bare("opposite", "backend", rack="2", row="1")
    empty_mesh.client("web", "backend", rack="1", row="1")
    empty_mesh.ready()
    return empty_mesh


@pytest.fixture
def backend(mesh: Playground) -> Address:
    return mesh.proxies["web"].outbound()


@pytest.mark.long
@pytest.mark.parametrize("weights", [(90, 10), (10, 90), (1, 1)])
def test_each_group_gets_its_weight(mesh: Playground, backend: Address, weights: tuple[int, int]) -> None:
    rack, row = weights
    share = rack / (rack + row)
    with mesh.having(weighed({"key": "rack", "weight": rack}, {"key": "row", "weight": row})):
        eventually(lambda: Counter(answering(backend, 40))["beside"] == pytest.approx(40 * share, abs=3))
        answers = Counter(answering(backend, CALLS))

    assert answers["beside"] == pytest.approx(CALLS * share, abs=CALLS * 0.04)
    assert answers["beside"] + answers["opposite"] == CALLS


def test_without_weights_those_who_share_no_tag_get_the_rest(mesh: Playground, backend: Address) -> None:
    """One tag has the weight 9, and all others together 1."""
    with mesh.having(weighed({"key": "rack"})):
        eventually(lambda: Counter(answering(backend, 40))["beside"] == pytest.approx(36, abs=3))
        answers = Counter(answering(backend, CALLS))

    assert answers["beside"] == pytest.approx(CALLS * 0.9, abs=CALLS * 0.04)
