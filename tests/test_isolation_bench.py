"""The worst allowed documents: there is one of each kind, the API accepts it, and the benchmark measures it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.isolation.run import QUICK, is_held, p99
from bench.isolation.stand import Isolation, measure
from bench.isolation.worst import BY_KOGUMA, SHAPES, Shape, documents, every_kind, is_accepted, largest
from bench.serving.mesh import of
from cp.resources.world import World
from cp.translate.compiler import Compiler
from tests.snapshots import policies

GATEWAY = next(shape for shape in SHAPES if shape.kind == "MeshGateway")


def test_every_kind_has_a_worst_document() -> None:
    assert {shape.kind for shape in SHAPES} == every_kind().keys() - BY_KOGUMA


@pytest.mark.parametrize("shape", SHAPES, ids=[f"{shape.kind} {shape.grows}" for shape in SHAPES])
def test_smallest_document_of_a_shape_is_accepted(shape: Shape) -> None:
    assert is_accepted(shape.document(1), every_kind())
    assert all(is_accepted(each, every_kind()) for each in documents(shape))


def test_largest_document_is_at_a_limit() -> None:
    ports = next(shape for shape in SHAPES if shape.grows == "ports")

    size = largest(ports, every_kind())

    assert is_accepted(ports.document(size), every_kind())
    assert not is_accepted(ports.document(size + size // 32), every_kind())


@pytest.mark.long
def test_worst_hostnames_and_rules_are_bounded() -> None:
    written = [*documents(GATEWAY), GATEWAY.document(300)]
    world = World.of([of(each) for each in written], every_kind())
    (edge,) = (each for each in world.table("Dataplane", "a") if each.spec.is_builtin_gateway)

    proxy = Compiler(policies()).proxy(world, edge)

    assert [failure.is_limit for failure in proxy.failures] == [True]


def test_promises_of_a_measurement() -> None:
    held = Isolation(
        "Mesh", "", 1, delivery=(0.1, 0.9), delivery_cpu=(0.1,), idle=100.0, peak=140.0, health=(0.1,), cpu=1.0
    )
    slow = Isolation(
        "Mesh", "", 1, delivery=(0.1, 1.1), delivery_cpu=(0.1,), idle=100.0, peak=140.0, health=(0.1,), cpu=1.0
    )

    assert (is_held(held), is_held(slow)) == (True, False)
    assert p99([3.0, 1.0, 2.0]) == 3.0


@pytest.mark.long
@pytest.mark.parametrize("kind", QUICK)
def test_edits_of_another_mesh_are_delivered(kind: str, tmp_path: Path) -> None:
    shape = next(shape for shape in SHAPES if shape.kind == kind)

    result = measure(shape, tmp_path / "run", edits=2)

    assert len(result.delivery) == 2
    assert result.health
    assert result.peak >= result.idle * 0.9


def test_copies_of_a_document_have_different_names() -> None:
    shape = next(shape for shape in SHAPES if shape.copies > 1)
    stored = list(shape.stored(1))

    assert len({document["name"] for document in stored}) == len(stored) == shape.copies
