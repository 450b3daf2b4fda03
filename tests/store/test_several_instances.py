"""Several instances write to one store and follow it: whatever they do, in whatever order, all of them see the same."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from cp.model.document import Document
from cp.model.names import Key
from cp.store.port import ABSENT, ChangeBatch, Conflict, Delete, HistoryLimits, Outdated, Put, Store
from tests.drawing import examples
from tests.store.harness import contained, document, key, opened
from tests.support.postgres import shared_postgres

SHARED = ("sqlite", "postgres")
INSTANCES = 3
KEPT = 5

instances = st.integers(0, INSTANCES - 1)
names = st.sampled_from("abc")
edits = st.tuples(instances, names, st.none() | st.integers(0, 3))


class Follower:
    """A copy that an instance keeps by following, as a control plane does."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.revision = 0
        self.documents: dict[Key, Document] = {}

    async def catch_up(self, newest: int) -> None:
        while self.revision < newest:
            try:
                self.take(await anext(self.store.follow(self.revision)))
            except Outdated:
                contents = await self.store.read()
                self.revision, self.documents = contents.revision, contained(contents)

    def take(self, batch: ChangeBatch) -> None:
        assert [change.revision for change in batch.changes] == sorted(change.revision for change in batch.changes)
        assert {change.revision for change in batch.changes} == set(range(self.revision + 1, batch.revision + 1))
        for change in batch.changes:
            assert self.documents.get(change.key) == change.before
            self.documents.pop(change.key, None)
            if change.after is not None:
                self.documents[change.key] = change.after
        self.revision = batch.revision


class Machine(RuleBasedStateMachine):
    """Some instances, and what a single store would have come to."""

    kind = ""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.contexts = [
            opened(self.kind, Path(self.folder.name), limits=HistoryLimits(kept=KEPT)) for _ in range(INSTANCES)
        ]
        self.stores = [self.runner.run(context.__aenter__()) for context in self.contexts]
        self.followers = [Follower(store) for store in self.stores]
        self.documents: dict[Key, tuple[Document, int]] = {}
        self.revision = 0

    @rule(together=st.lists(edits, min_size=1, max_size=6))
    def write_at_once(self, together: list[tuple[int, str, int | None]]) -> None:
        """Each based on what is there now: of those that write to one document and change it, one wins."""
        attempts = [(*edit, self.documents.get(key(edit[1]), (None, ABSENT))[1]) for edit in together]

        async def all_of_them() -> list[int | None]:
            return await asyncio.gather(*(self.attempt(*attempt) for attempt in attempts))

        revisions = self.runner.run(all_of_them())
        made = sorted(
            (revision, name, value)
            for revision, (_, name, value, _) in zip(revisions, attempts, strict=True)
            if revision is not None and revision > self.revision
        )
        for revision, name, value in made:
            self.note(revision, name, value)
        assert self.runner.run(self.stores[0].revision()) == self.revision

    async def attempt(self, instance: int, name: str, value: int | None, based_on: int) -> int | None:
        """The revision that was made; none if there was a conflict, and none of its own if nothing changed."""
        write = Delete(key(name), based_on) if value is None else Put(document(name, value), based_on)
        before = self.documents.get(key(name))
        try:
            revision = await self.stores[instance].write(write)
        except Conflict:
            return None
        changes = (None if before is None else before[0]) != (None if value is None else document(name, value))
        return revision if changes else None

    def note(self, revision: int, name: str, value: int | None) -> None:
        assert revision == self.revision + 1
        self.revision = revision
        self.documents.pop(key(name), None)
        if value is not None:
            self.documents[key(name)] = document(name, value), revision

    @rule(instance=instances)
    def follow(self, instance: int) -> None:
        self.runner.run(self.followers[instance].catch_up(self.revision))
        assert self.followers[instance].documents == {at: held for at, (held, _) in self.documents.items()}

    @rule(instance=instances)
    def start_again(self, instance: int) -> None:
        self.runner.run(self.contexts[instance].__aexit__(None, None, None))
        self.contexts[instance] = opened(self.kind, Path(self.folder.name), limits=HistoryLimits(kept=KEPT))
        self.stores[instance] = self.runner.run(self.contexts[instance].__aenter__())
        self.followers[instance].store = self.stores[instance]

    @invariant()
    def all_read_the_same(self) -> None:
        for store in self.stores:
            contents = self.runner.run(store.read())
            assert contents.revision == self.revision
            assert contained(contents) == {at: held for at, (held, _) in self.documents.items()}

    def teardown(self) -> None:
        for instance in range(INSTANCES):
            self.follow(instance)
        for context in self.contexts:
            self.runner.run(context.__aexit__(None, None, None))
        self.runner.close()
        self.folder.cleanup()


@pytest.mark.drawn
@pytest.mark.parametrize("kind", SHARED)
def test_instances_that_share_a_store_agree_whatever_they_do(kind: str) -> None:
    if kind == "postgres":
        shared_postgres()
    machine = type(f"{kind.title()}Machine", (Machine,), {"kind": kind})
    count = examples(8)
    run_state_machine_as_test(machine, settings=settings(max_examples=count, stateful_step_count=15, deadline=None))
