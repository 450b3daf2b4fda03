"""A plan is what happens: its fields are those that differ in what proxies are sent once the change is made."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from random import Random
from typing import Any, TypeAlias

import pytest
from hypothesis import settings

from cp.model.document import Document
from cp.model.names import Key
from tests.drawing import expect_more
from tests.plan.applied_fields import applied, in_any_order
from tests.plan.rig import PlannedControlPlane, Sent, planned_control_plane
from tests.random_mesh import EDGE, EVERY, LEGACY, MESH, random_document, seeds

EDITS = 3
PARTS = 6
"""Into how many tests the many plans are split, for a test that takes too long is taken for one that hangs."""

Planning: TypeAlias = Callable[[], Awaitable[Mapping[str, Any]]]
Making: TypeAlias = Callable[[], Awaitable[None]]


@pytest.mark.drawn
def test_the_fields_of_a_plan_are_those_in_which_what_proxies_are_sent_differs() -> None:
    edits = sum(asyncio.run(_judged(seed)) for seed in seeds(times=0.1))

    expect_more(edits, 0)


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_the_fields_of_many_plans_are_those_in_which_what_proxies_are_sent_differs(part: int) -> None:
    for seed in range(1000 + part, 1000 + max(120, settings().max_examples), PARTS):
        asyncio.run(_judged(seed))


async def _judged(seed: int) -> int:
    """Plan some edits and deletions and make them. Returns how many of them changed what is sent to a proxy."""
    chance, of_kinds = Random(seed), (EVERY, EDGE, (*LEGACY, "ExternalService"))[seed % 3]
    documents = _unique([MESH, *(random_document(chance, of_kinds) for _ in range(chance.randrange(5, 20)))])
    changed = 0
    async with planned_control_plane(documents.values()) as running:
        for _ in range(EDITS):
            edit = _unique([random_document(chance, of_kinds) for _ in range(chance.choice([1, 1, 2, 4]))])
            documents |= edit
            change = partial(running.plan, *edit.values()), partial(running.apply, *edit.values())
            changed += await _planned_and_made(running, *change, f"seed {seed}, {list(map(str, edit))}")
            gone = chance.choice([key for key in documents if key.type != "Mesh"])
            del documents[gone]
            change = partial(running.plan_of_deletion, gone), partial(running.delete, gone)
            changed += await _planned_and_made(running, *change, f"seed {seed}, without {gone}")
    return changed


def _unique(documents: Sequence[Document]) -> dict[Key, Document]:
    return {each.key: each for each in documents}


async def _planned_and_made(running: PlannedControlPlane, plan_of_it: Planning, make: Making, what: str) -> bool:
    plan, before = await plan_of_it(), await running.sent()
    await make()
    after = await running.sent()
    (mesh,) = plan["meshes"] or [{"differences": [], "added": [], "removed": []}]
    assert set(mesh["added"]) == after.keys() - before.keys(), what
    assert set(mesh["removed"]) == before.keys() - after.keys(), what
    for proxy in before.keys() & after.keys():
        differences = [each for each in mesh["differences"] if proxy in each["proxies"]]
        told = {(each["type"], each["name"]) for each in differences}
        assert told == set(_changed(before[proxy], after[proxy])), f"{what}: {proxy}"
        sides = _expected(before[proxy], differences), _without_secrets(after[proxy])
        expected, sent = ({name: in_any_order(value) for name, value in side.items()} for side in sides)
        assert expected == sent, f"{what}: {proxy}"
    return bool(mesh["differences"])


def _changed(before: Sent, after: Sent) -> list[tuple[str, str]]:
    return [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]


def _without_secrets(sent: Sent) -> Sent:
    return {name: value for name, value in sent.items() if name[0] != "secrets"}


def _expected(before: Sent, differences: Sequence[Mapping[str, Any]]) -> Sent:
    """What a proxy has after the differences of a plan, each field of which has the value that it says to have."""
    expected = deepcopy(dict(_without_secrets(before)))
    for difference in differences:
        name = difference["type"], difference["name"]
        for field in difference["fields"] if name[0] != "secrets" else ():
            if field["path"] != "":
                applied(expected[name], field)
            elif "after" in field:
                assert expected.get(name) == field.get("before"), field
                expected[name] = field["after"]
            else:
                assert expected.pop(name) == field["before"], field
    return expected
