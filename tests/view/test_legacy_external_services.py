"""ExternalServices, for which nothing is served: calls are answered with the reason, and no empty cluster is made."""

from __future__ import annotations

from typing import Any, Final

import pytest

from cp.insight.lint import lint
from cp.model.document import Document
from cp.model.names import Key
from cp.policies import kinds
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.packing import CLUSTER
from tests.snapshots import policies

PAYMENTS: Final = "payments"


def document(kind: str, name: str, **data: Any) -> Document:
    mesh = {} if kind == "Mesh" else {"mesh": "default"}
    return Document(Key(kind, mesh.get("mesh", ""), name), {"type": kind, **mesh, "name": name, **data})


def dataplane(name: str, address: str, service: str, *called: str) -> Document:
    inbound = {"port": 8080, "tags": {"kuma.io/service": service, "kuma.io/protocol": "http"}}
    outbound = [{"port": 10080 + at, "tags": {"kuma.io/service": one}} for at, one in enumerate(called)]
    networking = {"address": address, "inbound": [inbound], "outbound": outbound}
    return document("Dataplane", name, networking=networking)


MESH: Final = document("Mesh", "default")
WEB: Final = dataplane("web", "10.0.0.1", "web", PAYMENTS)
LEGACY: Final = document(
    "ExternalService",
    PAYMENTS,
    tags={"kuma.io/service": PAYMENTS, "kuma.io/protocol": "http"},
    networking={"address": "example.com:80"},
)
SERVED: Final = dataplane("payments-1", "10.0.0.2", PAYMENTS)


def world(*documents: Document) -> World:
    return World.of([MESH, WEB, *documents], kinds(policies()))


def web(of: World) -> Resource:
    found = of.get(WEB.key)
    assert found is not None
    return found


def clusters(of: World, compiler: Compiler) -> set[str]:
    return {one.name for one in compiler.snapshot(of, web(of)).of(CLUSTER)} - {"localhost:8080"}


def test_there_is_no_cluster_for_one_and_it_is_told_once() -> None:
    made = world(LEGACY)
    codes = [one.code for one in lint(policies(), made) if one.severity != "info"]

    assert clusters(made, Compiler(policies())) == set()
    assert codes == ["not-enforced"]


def test_a_service_of_its_name_in_the_mesh_is_served() -> None:
    assert clusters(world(LEGACY, SERVED), Compiler(policies())) == {PAYMENTS}


@pytest.mark.parametrize("first", [[], [LEGACY], [SERVED], [LEGACY, SERVED]])
@pytest.mark.parametrize("then", [[], [LEGACY], [SERVED], [LEGACY, SERVED]])
def test_whatever_comes_or_goes_it_is_as_if_it_had_always_been_so(first: list[Document], then: list[Document]) -> None:
    compiler, before = Compiler(policies()), world(*first)
    compiler.snapshot(before, web(before))
    changes = {one.key: (one if one in then else None) for one in (LEGACY, SERVED)}
    after = before.next(changes, 1)

    assert compiler.snapshot(after, web(after)) == Compiler(policies()).snapshot(after.afresh(), web(after))
