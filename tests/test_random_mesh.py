"""Whatever valid resources there are, everybody is served, and Envoy takes all of it."""

from __future__ import annotations

import pytest

from cp.translate.compiler import Compiler
from cp.translate.snapshot import Snapshot, SnapshotPart
from tests.ads import resources
from tests.random_mesh import dataplanes, mesh_of
from tests.snapshots import policies
from tests.witness import Witness

MESHES = 40


@pytest.mark.envoy
def test_a_real_envoy_takes_what_any_mesh_comes_to(witness: Witness) -> None:
    refusals = {}
    for seed in range(MESHES):
        mesh = mesh_of(seed)
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
