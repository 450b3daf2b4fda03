"""Any sequence of writes does to a store what it does to a dict and a list."""

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
from cp.store.port import ABSENT, Change, Conflict, Delete, HistoryLimits, Outdated, Put
from tests.drawing import examples
from tests.store.harness import WRITABLE, changes, contained, document, key, next_batch, opened

KEPT = 6

names = st.sampled_from(["a", "b", "c"])
bases = st.sampled_from(["any", "right", "wrong"])
puts = st.tuples(names, st.one_of(st.none(), st.integers(0, 2)), bases)


class Machine(RuleBasedStateMachine):
    """A store beside what it should be like."""

    kind = ""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.context = opened(self.kind, Path(self.folder.name), limits=HistoryLimits(kept=KEPT))
        self.store = self.runner.run(self.context.__aenter__())
        self.documents: dict[Key, tuple[Document, int]] = {}
        self.log: list[list[tuple[Key, Document | None, Document | None]]] = []

    @rule(wanted=st.lists(puts, max_size=3))
    def write(self, wanted: list[tuple[str, int | None, str]]) -> None:
        writes = [self.one(*want) for want in wanted]
        if any(base == "wrong" for _, _, base in wanted):
            with pytest.raises(Conflict):
                self.runner.run(self.store.write(*writes))
        else:
            self.expect(writes)
            assert self.runner.run(self.store.write(*writes)) == len(self.log)

    def one(self, name: str, value: int | None, base: str) -> Put | Delete:
        revision = self.documents[key(name)][1] if key(name) in self.documents else ABSENT
        based_on = {"any": None, "right": revision, "wrong": revision + 1}[base]
        return Delete(key(name), based_on) if value is None else Put(document(name, value), based_on)

    def expect(self, writes: list[Put | Delete]) -> None:
        before = {at: held for at, (held, _) in self.documents.items()}
        after = dict(before)
        for write in writes:
            after.pop(write.key, None)
            if isinstance(write, Put):
                after[write.key] = write.document
        differing = [at for at in {**before, **after} if before.get(at) != after.get(at)]
        if differing:
            self.log.append([(at, before.get(at), after.get(at)) for at in differing])
            for at in differing:
                self.documents.pop(at, None)
                if at in after:
                    self.documents[at] = (after[at], len(self.log))

    @rule(since=st.integers(0, 40))
    def follow(self, since: int) -> None:
        newest = len(self.log)
        if since > newest or since < newest - KEPT:
            with pytest.raises(Outdated):
                self.runner.run(next_batch(self.store, since))
        elif since < newest:
            seen = self.runner.run(changes(self.store, since, until=newest))
            for revision in range(since + 1, newest + 1):
                of_revision = [_said(change) for change in seen if change.revision == revision]
                assert sorted(of_revision, key=str) == sorted(self.log[revision - 1], key=str)
            assert [change.revision for change in seen] == sorted(change.revision for change in seen)

    @rule(name=names, limit=st.integers(1, 5))
    def history(self, name: str, limit: int) -> None:
        seen = self.runner.run(self.store.history(key(name), limit))
        oldest = max(0, len(self.log) - KEPT)
        kept = [entry for batch in self.log[oldest:] for entry in batch if entry[0] == key(name)]
        assert [_said(change) for change in seen] == kept[::-1][:limit]

    @rule()
    def reopen(self) -> None:
        if self.kind in {"sqlite", "postgres"}:  # the revisions of the others count what one process has seen
            self.runner.run(self.store.close())
            self.context = opened(self.kind, Path(self.folder.name), limits=HistoryLimits(kept=KEPT))
            self.store = self.runner.run(self.context.__aenter__())

    @invariant()
    def holds_what_it_should(self) -> None:
        contents = self.runner.run(self.store.read())
        assert contents.revision == len(self.log)
        assert contained(contents) == {at: held for at, (held, _) in self.documents.items()}
        assert {held.document.key: held.revision for held in contents.stored} == {
            at: revision for at, (_, revision) in self.documents.items()
        }

    def teardown(self) -> None:
        self.runner.run(self.context.__aexit__(None, None, None))
        self.runner.close()
        self.folder.cleanup()


def _said(change: Change) -> tuple[Key, Document | None, Document | None]:
    return change.key, change.before, change.after


@pytest.mark.drawn
@pytest.mark.parametrize("usual", [pytest.param(8, id="few"), pytest.param(25, id="many", marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", WRITABLE)
def test_a_store_is_like_its_model(kind: str, usual: int) -> None:
    machine = type(f"{kind.title()}Machine", (Machine,), {"kind": kind})
    count = examples(usual)
    run_state_machine_as_test(machine, settings=settings(max_examples=count, stateful_step_count=25, deadline=None))
