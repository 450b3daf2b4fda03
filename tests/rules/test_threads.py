"""Several threads ask one World, and others still ask the World before while the next takes over from it.

What another thread does is done here at each place, one after the other, where a thread looks up a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from cp.resources.resource import Resource
from cp.resources.world import Table, World
from cp.rules.matching import match
from tests.rules.texts import MESH, Data, policy, proxy, text
from tests.rules.worlds import documents, kinds

PROXIES = tuple((mesh, name) for mesh in ("default", "other") for name in ("web", "shop"))
ITEMS: list[Data] = [{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "2s"}}]


def _documents(mesh: str, name: str) -> list[Data]:
    """A proxy, a policy that selects it by a label, and one that selects it by its name."""
    top: dict[str, Data] = {"broad": {"labels": {"of": name}}, "named": {"name": name}}
    policies = (
        policy("MeshTimeout", f"{kind}-{name}", top={"kind": "Dataplane", **selector}, to=ITEMS)
        for kind, selector in top.items()
    )
    return [{**data, "mesh": mesh} for data in (proxy(name, labels={"of": name}), *policies)]


DOCUMENTS = documents(text(MESH, {**MESH, "name": "other"}, *(data for of in PROXIES for data in _documents(*of))))
MOST_PLACES = 200


@contextmanager
def interrupted(place: int, meanwhile: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Do something else where a table is looked up for the so-and-so-many-th time; the list has all look-ups."""
    looked_up: list[str] = []
    table = World.table

    def interrupted_table(world: World, type_: str, mesh: str = "") -> Table:
        looked_up.append(type_)
        if len(looked_up) == place:
            meanwhile()
        return table(world, type_, mesh)

    with monkeypatch.context() as patched:
        patched.setattr(World, "table", interrupted_table)
        yield looked_up


def dataplane(world: World, name: str, mesh: str = "default") -> Resource:
    found = world.table("Dataplane", mesh).get(name)
    assert found is not None
    return found


def selecting(world: World, of: Resource) -> set[str]:
    return {matched.policy.name for matched in match(world, of)["MeshTimeout"]}


def test_threads_that_ask_one_world_at_once_miss_no_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in range(1, MOST_PLACES):
        world = World.of(DOCUMENTS, kinds())
        web, shop = dataplane(world, "web"), dataplane(world, "shop")
        seen: list[set[str]] = []
        with interrupted(place, lambda: seen.append(selecting(world, shop)), monkeypatch) as looked_up:  # noqa: B023
            assert selecting(world, web) == {"broad-web", "named-web"}
        if len(looked_up) < place:
            assert place > 1
            return
        assert seen == [{"broad-shop", "named-shop"}]
        assert selecting(world, shop) == {"broad-shop", "named-shop"}
    raise AssertionError("the places do not end")


def test_threads_that_ask_one_world_at_once_get_the_same_mapping(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in range(1, MOST_PLACES):
        world = World.of(DOCUMENTS, kinds())
        web = dataplane(world, "web")
        seen: list[object] = []
        with interrupted(place, lambda: seen.append(match(world, web)), monkeypatch) as looked_up:  # noqa: B023
            matched = match(world, web)
        if len(looked_up) < place:
            return
        assert seen[0] is matched is match(world, web)
    raise AssertionError("the places do not end")


def test_a_world_is_asked_while_the_next_takes_over_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in range(1, MOST_PLACES):
        world = World.of(DOCUMENTS, kinds())
        match(world, dataplane(world, "web"))
        later = world.next({DOCUMENTS[-1].key: DOCUMENTS[-1]}, 1)
        web, others = dataplane(later, "web"), [dataplane(world, "shop"), dataplane(world, "web", "other")]

        def ask_the_one_before() -> None:
            for other in others:  # noqa: B023
                match(world, other)  # noqa: B023

        with interrupted(place, ask_the_one_before, monkeypatch) as looked_up:
            assert selecting(later, web) == {"broad-web", "named-web"}
        if len(looked_up) < place:
            return
    raise AssertionError("the places do not end")
