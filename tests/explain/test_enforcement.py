"""Warnings about the resources of a call begin with its client."""

from cp.insight.explain.enforcement import enforcement_warnings
from tests.rules.texts import MESH, Data, policy, proxy, text
from tests.rules.worlds import world_of


def permission(name: str) -> Data:
    """A permission for one proxy; without mTLS it has no effect."""
    top = {"kind": "Dataplane", "name": name}
    client = {"spiffeID": {"type": "Exact", "value": "spiffe://default/db"}}
    return policy("MeshTrafficPermission", f"to-{name}", top=top, rules=[{"default": {"allow": [client]}}])


def test_enforcement_warnings_begin_with_the_client() -> None:
    world = world_of(text(MESH, proxy("web"), proxy("api"), permission("web"), permission("api")))
    dataplanes = {each.name: each for each in world.table("Dataplane", "default")}

    warnings = list(enforcement_warnings(world, dataplanes["web"], [dataplanes["api"]]))

    assert [warning.partition(":")[0].rpartition("/")[2] for warning in warnings] == ["to-web", "to-api"]
