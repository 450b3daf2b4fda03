"""Whatever valid resources there are, everybody is served, and Envoy takes all of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cp.translate.compiler import Compiler
from cp.translate.snapshot import Snapshot, SnapshotPart
from tests.ads import resources
from tests.random_mesh import EDGE, EVERY, IN_SHARES, dataplanes, mesh_of, share
from tests.snapshots import policies
from tests.witness import Witness

MESHES = 40


@pytest.mark.envoy
@IN_SHARES
@pytest.mark.parametrize("kinds", [pytest.param(EVERY, id="every"), pytest.param(EDGE, id="edge")])
def test_a_real_envoy_takes_what_any_mesh_comes_to(witness: Witness, kinds: Sequence[str], is_further: bool) -> None:
    refusals = {}
    for seed in share(range(MESHES), is_further):
        mesh = mesh_of(seed, kinds)
        world, compiler = mesh.world(), Compiler(policies())
        for dataplane in dataplanes(world):
            refusal = witness.refusal(compiler.snapshot(world, dataplane))
            if refusal:
                refusals[dataplane.name, mesh] = refusal

    assert refusals == {}


@pytest.mark.envoy
def test_the_witness_says_what_envoy_has_against_a_snapshot(witness: Witness) -> None:
    faulty = Snapshot(SnapshotPart([resources.cluster("faulty", broken=True)]))

    assert "faulty" in witness.refusal(faulty)
    assert witness.refusal(Snapshot(SnapshotPart([resources.cluster("sound"), resources.endpoints("sound")]))) == ""
