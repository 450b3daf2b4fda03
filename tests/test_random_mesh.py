"""Whatever valid resources there are, everybody is served, and Envoy takes all of it."""

from __future__ import annotations

from random import Random

import pytest

from cp.pipeline import Compiler
from cp.policies import kinds
from cp.resources.world import World
from cp.snapshot import Part, Snapshot
from tests.ads import resources
from tests.random_mesh import MESH, random_document
from tests.snapshots import policies
from tests.witness import Witness

MESHES = 40


@pytest.mark.envoy
def test_a_real_envoy_takes_what_any_mesh_comes_to(witness: Witness) -> None:
    refusals = {}
    for seed in range(MESHES):
        chance = Random(seed)
        documents = {made.key: made for made in (random_document(chance) for _ in range(chance.randrange(5, 40)))}
        world = World.of([MESH, *documents.values()], kinds(policies()))
        compiler = Compiler(policies())
        for dataplane in world.table("Dataplane", "default"):
            refusal = witness.refusal(compiler.snapshot(world, dataplane))
            if refusal:
                refusals[seed, dataplane.name] = refusal

    assert refusals == {}


@pytest.mark.envoy
def test_the_witness_says_what_envoy_has_against_a_snapshot(witness: Witness) -> None:
    faulty = Snapshot(Part([resources.cluster("faulty", broken=True)]))

    assert "faulty" in witness.refusal(faulty)
    assert witness.refusal(Snapshot(Part([resources.cluster("sound"), resources.endpoints("sound")]))) == ""
