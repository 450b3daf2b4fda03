"""Of legacy policies with equally specific selectors the newest holds, and of equally old ones the first by name."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cp.model.document import Document, Source
from cp.resources.world import World
from cp.rules.legacy import legacy_rules
from tests.rules.worlds import dataplane, documents, kinds, world_of

MESH_AND_WEB = """
type: Mesh
name: default
---
type: Dataplane
mesh: default
name: web
networking:
  address: 127.0.0.1
  inbound: [{port: 80, tags: {kuma.io/service: web}}]
"""
OLD, NEW = "2024-01-01T00:00:00.000000Z", "2024-01-01T00:00:00.000001Z"

NAMES = st.sampled_from(["a", "b", "c", "d"])
AGES = st.sampled_from(["", OLD, NEW])


def timeout(name: str, seconds: int = 1) -> Document:
    everything = [{"match": {"kuma.io/service": "*"}}]
    conf = {"connectTimeout": f"{seconds}s"}
    data = {"type": "Timeout", "mesh": "default", "name": name, "conf": conf}
    (document,) = documents(json.dumps({**data, "sources": everything, "destinations": everything}))
    return document


def made(document: Document, created: str) -> Document:
    return replace(document, source=replace(document.source, created=created))


def of(ages: Mapping[str, str]) -> list[Document]:
    return [made(timeout(name), created) for name, created in ages.items()]


def with_policies(policies: Iterable[Document]) -> World:
    return World.of([*documents(MESH_AND_WEB), *policies], kinds())


def winner(world: World) -> str:
    conf = legacy_rules(world, dataplane(world)).of_service("backend", "http")["MeshTimeout"]
    (field,) = conf.fields.values()
    return field.winner.origin.policy.name


def test_the_newest_holds_whatever_its_name() -> None:
    assert winner(with_policies(of({"a": NEW, "b": OLD}))) == "a"
    assert winner(with_policies(of({"a": OLD, "b": NEW}))) == "b"


def test_a_policy_of_which_nobody_knows_when_it_was_made_counts_as_the_oldest() -> None:
    assert winner(with_policies(of({"a": "", "b": OLD}))) == "b"


@given(names=st.permutations(["a", "b", "c", "d"]), created=AGES)
def test_of_equally_old_ones_the_first_by_name_holds(names: list[str], created: str) -> None:
    assert winner(with_policies(of(dict.fromkeys(names, created)))) == "a"


@given(ages=st.dictionaries(NAMES, AGES, min_size=1), data=st.data())
def test_the_order_in_which_policies_are_read_does_not_matter(ages: dict[str, str], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(of(ages)))
    newest = max(ages.values())

    expected = min(name for name, created in ages.items() if created == newest)
    assert winner(with_policies(shuffled)) == expected


@given(ages=st.dictionaries(NAMES, AGES, min_size=1), edits=st.lists(st.tuples(NAMES, AGES), max_size=5))
def test_an_edited_world_finds_the_winner_of_one_that_is_read_anew(
    ages: dict[str, str], edits: list[tuple[str, str]]
) -> None:
    world = with_policies(of(ages))
    winner(world)
    for revision, (name, created) in enumerate(edits, 2):
        document = made(timeout(name), created)
        world = world.next({document.key: document}, revision)
        assert winner(world) == winner(World.of((resource.document for resource in world), kinds()))


def test_documents_of_a_folder_say_when_they_were_made() -> None:
    text = MESH_AND_WEB + "".join(
        f"---\n{json.dumps({**timeout(name).data, 'creationTime': created})}\n"
        for name, created in (("b", "2024-06-01T12:00:00.5+02:00"), ("a", "2024-06-01T10:00:00Z"))
    )

    assert winner(world_of(text)) == "b"


def test_a_place_is_the_same_whenever_the_document_was_made() -> None:
    assert Source("a.yaml", created=OLD) == Source("a.yaml", created=NEW)
