"""Which World a proxy is served from while a rollout is under way, and that nothing outdated is served from it."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from random import Random
from weakref import ref

import pytest

from cp.api.rollout_orders import reason_against
from cp.metrics import Metrics
from cp.model.document import Document
from cp.model.duration import Duration
from cp.model.names import Key, proxy_id
from cp.policies import kinds
from cp.resources.assignment import assigned_world, candidate_of
from cp.resources.rollout import RolledResource, RolloutSpec, RolloutState, content_of, rollout_document, rollout_key
from cp.resources.world import World
from cp.serving.turn import TurnCompiler
from cp.translate.compiler import Compiler
from cp.translate.packing import TYPES
from cp.translate.snapshot import Snapshot
from tests.random_mesh import EVERY, LEGACY, MESH, random_document, seeds
from tests.snapshots import policies

KINDS = kinds(policies())
POLICIES = tuple(name for name in (*EVERY, *LEGACY) if name in KINDS and not reason_against(KINDS[name]))
"""The kinds that can be rolled out."""

MOMENT = "2026-01-01T00:00:00.000000Z"


def rollout(
    documents: dict[Key, Document | None], proxies: list[str], state: RolloutState = "Going", step: int = 1
) -> Document:
    """A rollout of the mesh `default`, as it is stored."""
    resources = [RolledResource(type=key.type, name=key.name, based_on=0, change="Updated") for key in documents]
    spec = RolloutSpec(
        number=1,
        author="ann",
        begun=MOMENT,
        resources=resources,
        content=content_of(documents.values()),
        steps=["1", "100%"],
        hold=Duration.parse("30s"),
        state=state,
        step=step,
        since=MOMENT,
        proxies=proxies,
    )
    return rollout_document("default", spec)


@pytest.mark.parametrize("content", ["no JSON", "7", "[]", "[7]", '["a"]', '{"a": {}}', '[{"data": {}, "source": {}}]'])
def test_a_rollout_that_is_damaged_stops_nobody_from_being_served(content: str) -> None:
    """Such as in a folder, or restored from a backup of another version."""
    damaged = rollout({Key("MeshTimeout", "default", "slow"): None}, ["web-1"])
    damaged = Document(damaged.key, {**damaged.data, "spec": {**damaged.data["spec"], "content": content}})

    world = World.of([MESH, damaged], kinds(policies()))
    assert candidate_of(world, "default") is None
    assert [finding.path for finding in world.findings] == ["spec.content"]


@dataclass
class Meshful:
    """Documents that are edited, and a rollout that begins, goes on and ends among the edits."""

    chance: Random
    documents: dict[Key, Document] = field(default_factory=lambda: {MESH.key: MESH})
    proposed: dict[Key, Document | None] = field(default_factory=dict)
    served: set[str] = field(default_factory=set)

    def edit(self) -> dict[Key, Document | None]:
        changes: dict[Key, Document | None] = {}
        for _ in range(self.chance.choice([1, 1, 2, 5])):
            made = random_document(self.chance, (*EVERY, *LEGACY))
            changes[made.key] = None if self.chance.random() < 0.2 and made.key.type != "Mesh" else made
        self._take(changes)
        return changes

    def roll(self) -> dict[Key, Document | None]:
        names = [key.name for key in self.documents if key.type == "Dataplane"]
        if not self.proposed:
            made = [random_document(self.chance, POLICIES) for _ in range(self.chance.choice([1, 2]))]
            self.proposed = {each.key: None if self.chance.random() < 0.2 else each for each in made}
            self.served = set()
        elif self.chance.random() < 0.3:
            return self._end(is_good=self.chance.random() < 0.5)
        self.served |= {name for name in names if self.chance.random() < 0.4}
        going = rollout(self.proposed, sorted(self.served), self.chance.choice(["Going", "Holding", "Paused"]))
        return self._stored(going)

    def _end(self, *, is_good: bool) -> dict[Key, Document | None]:
        over = rollout({}, sorted(self.served), "Done" if is_good else "RolledBack")
        changes = {**(self.proposed if is_good else {}), over.key: over}
        self.proposed, self.served = {}, set()
        self._take(changes)
        return changes

    def _stored(self, document: Document) -> dict[Key, Document | None]:
        changes: dict[Key, Document | None] = {document.key: document}
        self._take(changes)
        return changes

    def _take(self, changes: dict[Key, Document | None]) -> None:
        for key, document in changes.items():
            self.documents.pop(key, None)
            if document is not None:
                self.documents[key] = document

    def expected(self, world: World, name: str) -> Snapshot:
        """What a proxy is to be served, worked out anew from the documents that are its own."""
        valid = {resource.key: resource.document for resource in world if resource.type != "Rollout"}
        proposed = self.proposed if name in self.served else {}
        own = {key: document for key, document in (valid | proposed).items() if document is not None}
        anew = World.of(own.values(), kinds(policies()))
        dataplane = anew.get(Key("Dataplane", "default", name))
        assert dataplane is not None
        return Compiler(policies()).snapshot(anew, dataplane)


@pytest.mark.drawn
def test_at_every_moment_a_proxy_is_served_what_follows_from_the_world_that_it_is_assigned() -> None:
    for seed in seeds(times=0.1):
        mesh, turns = Meshful(Random(seed)), TurnCompiler(policies(), Metrics(), None, checks_itself=False)
        world = World.of([MESH], kinds(policies()))
        for revision in range(1, 14):
            changes = mesh.edit() if revision < 4 or mesh.chance.random() < 0.5 else mesh.roll()
            world = world.next(changes, revision)
            names = [dataplane.name for dataplane in world.table("Dataplane", "default")]
            proxies = [proxy_id(Key("Dataplane", "default", name)) for name in names]
            served = turns.compute(world, proxies).snapshots
            turns.keep_only(world, [Key("Dataplane", "default", name) for name in names])
            for name, proxy in zip(names, proxies, strict=True):
                assert versions(served[proxy]) == versions(mesh.expected(world, name)), (
                    f"seed {seed}, {revision}, {name}"
                )


def versions(snapshot: Snapshot) -> dict[tuple[str, str], str]:
    return {(url, packed.name): packed.version for url in TYPES for packed in snapshot.of(url)}


def timeout(name: str, request: str) -> Document:
    default = {"http": {"requestTimeout": request}}
    spec = {"to": [{"targetRef": {"kind": "Mesh"}, "default": default}]}
    key = Key("MeshTimeout", "default", name)
    return Document(key, {"type": key.type, "mesh": "default", "name": name, "spec": spec})


def test_what_changes_elsewhere_leaves_what_is_proposed_as_it_was() -> None:
    """A table with proposals is the same object for as long as nothing in it is another."""
    proposal, elsewhere = timeout("a", "1s"), timeout("b", "2s")
    going = rollout({proposal.key: proposal}, ["web"])
    first = World.of([MESH, timeout("a", "9s"), going], kinds(policies()))
    before = candidate_of(first, "default")
    gateway = Document(Key("MeshExternalService", "default", "x"), {"type": "MeshExternalService"})
    second = first.next({gateway.key: gateway}, 2)
    after = candidate_of(second, "default")
    third = second.next({elsewhere.key: elsewhere}, 3)
    last = candidate_of(third, "default")

    assert before is not None
    assert after is not None
    assert last is not None
    assert after.world.table("MeshTimeout", "default") is before.world.table("MeshTimeout", "default")
    assert [each.name for each in last.world.table("MeshTimeout", "default")] == ["a", "b"]
    assert last.world.get(proposal.key) is before.world.get(proposal.key)
    assert first.get(proposal.key) is not before.world.get(proposal.key)


def test_a_rollout_that_deletes_something_else_than_the_one_before_deletes_that() -> None:
    """Both have the same content: of what is deleted there is none."""
    first, second = timeout("first", "1s"), timeout("second", "1s")
    world = World.of([MESH, first, second, rollout({first.key: None}, ["web-1"])], kinds(policies()))
    assert deleted(world) == {first.key}

    after = rollout({second.key: None}, ["web-1"])
    assert deleted(world.next({after.key: after}, 1)) == {second.key}


def deleted(world: World) -> set[Key]:
    candidate = candidate_of(world, "default")
    assert candidate is not None
    return {
        key for key in (timeout("first", "1s").key, timeout("second", "1s").key) if candidate.world.get(key) is None
    }


def test_only_who_is_named_is_assigned_what_is_proposed_and_nobody_once_it_has_ended() -> None:
    proposal = timeout("a", "1s")
    web, api = Key("Dataplane", "default", "web"), Key("Dataplane", "default", "api")
    world = World.of([MESH, rollout({proposal.key: proposal}, ["web"])], kinds(policies()))
    done = world.next({rollout({}, ["web"], "RolledBack").key: rollout({}, ["web"], "RolledBack")}, 2)

    assert assigned_world(world, web).get(proposal.key) is not None
    assert assigned_world(world, api) is world
    assert assigned_world(done, web) is done


def test_worlds_of_a_rollout_are_freed_without_a_garbage_collection() -> None:
    """Also where another mesh has one, which began earlier."""
    proposal, shop = timeout("a", "1s"), Document(Key("Mesh", "", "shop"), {"type": "Mesh", "name": "shop"})
    going, first = rollout({proposal.key: proposal}, ["web"]), rollout({}, [])
    of_shop = Document(rollout_key("shop"), {**first.data, "mesh": "shop"})
    world = World.of([MESH, shop, of_shop], kinds(policies()))
    begun_earlier = candidate_of(world, "shop")
    assert begun_earlier is not None
    earlier = [ref(begun_earlier.world)]
    del begun_earlier
    world = world.next({going.key: going}, 1)
    gc.collect()
    gc.disable()
    try:
        for revision in range(1, 6):
            assigned = assigned_world(world, Key("Dataplane", "default", "web"))
            of_other = candidate_of(world, "shop")
            assert of_other is not None
            earlier += [ref(world), ref(assigned), ref(of_other.world)]
            edited = timeout("b", f"{revision}s")
            world = world.next({edited.key: edited}, revision)
            del assigned, of_other
            candidate_of(world, "default")
            assert [old() for old in earlier] == [None] * len(earlier)
    finally:
        gc.enable()
