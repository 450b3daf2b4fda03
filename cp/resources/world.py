"""`World`: every resource at one revision of the store, immutable and indexed.

The next World shares all that did not change: a table whose resources are the same is the same object, with
everything that was ever looked up in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar, cast

from cp.model.checkpoint import checked, pass_checkpoint
from cp.model.document import Document
from cp.model.memo import Memo
from cp.model.names import Identity, Key
from cp.model.remembered import remembered
from cp.model.violation import Finding
from cp.resources.kinds import Kinds
from cp.resources.parse import ParsedDocument, parse
from cp.resources.resource import Resource

T = TypeVar("T")
MemoKey = TypeVar("MemoKey", bound=Hashable)


class Table:
    """The resources of one type in one mesh, by name, in the order of their names."""

    def __init__(self, resources: Mapping[str, Resource], *, are_sorted: bool = False) -> None:
        self._by_name = resources if are_sorted else dict(sorted(resources.items()))
        self._derived: dict[Callable[[Table], Any], Any] = {}

    def get(self, name: str) -> Resource | None:
        return self._by_name.get(name)

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    @remembered
    def by_identity(self) -> Mapping[Identity, Resource]:
        return {resource.identity: resource for resource in self}

    def labelled(self, labels: Mapping[str, str]) -> tuple[Resource, ...]:
        """The resources that carry all of these labels."""
        if not labels:
            return tuple(self)
        first, *further_labels = labels.items()
        candidates = self._by_label.get(first, ())
        return tuple(
            resource
            for resource in candidates
            if all(resource.selectable_labels.get(name) == value for name, value in further_labels)
        )

    @remembered
    def _by_label(self) -> Mapping[tuple[str, str], tuple[Resource, ...]]:
        by_label: dict[tuple[str, str], list[Resource]] = {}
        for resource in self:
            for label in resource.selectable_labels.items():
                by_label.setdefault(label, []).append(resource)
        return {label: tuple(resources) for label, resources in by_label.items()}

    def derived(self, function: Callable[[Table], T]) -> T:
        """What a function makes of this table, worked out once for as long as the table does not change."""
        if function not in self._derived:
            return cast("T", self._derived.setdefault(function, function(self)))
        return cast("T", self._derived[function])

    def differing(self, other: Table) -> Iterator[Resource]:
        """The resources of either table that are not there in the other, or are another object there."""
        if self is other:
            return
        for table, counterpart in ((self, other), (other, self)):
            yield from (resource for resource in table if counterpart.get(resource.name) is not resource)

    def changed(self, changes: Mapping[str, Resource | None]) -> Table:
        """The table with some resources replaced or, where `None`, removed."""
        resources = {**self._by_name, **changes}
        if any(resource is None for resource in changes.values()):
            resources = {name: resource for name, resource in resources.items() if resource is not None}
        # Only a new name can stand in the wrong place. To sort the names of 10,000 resources takes milliseconds.
        return Table(cast("dict[str, Resource]", resources), are_sorted=changes.keys() <= self._by_name.keys())


_EMPTY = Table({})

_SHARED_KINDS: Final = frozenset({"MeshIdentity", "MeshTrust", "Secret"})
"""The kinds that decide which mesh has a trust domain: of two meshes that claim the same one, only one may sign."""


def concerns(type_: str, mesh_of_resource: str, mesh: str) -> bool:
    """True if resources of a type in one mesh can change what the proxies of `mesh` are served."""
    return mesh_of_resource in {"", mesh} or type_ in _SHARED_KINDS


class World:
    """Every resource at one revision. Invalid documents are not in it, but their findings are."""

    def __init__(
        self,
        kinds: Kinds,
        reads: Mapping[Key, ParsedDocument],
        tables: Mapping[tuple[str, str], Table],
        revision: int,
        store_findings: tuple[Finding, ...] = (),
    ) -> None:
        self.kinds = kinds
        self.revision = revision
        self._reads = reads
        self._tables = tables
        self._store_findings = store_findings
        self._derived: dict[Callable[..., Any], Any] = {}
        self._inherited: Mapping[Callable[..., Any], Any] = {}

    @classmethod
    def of(
        cls,
        documents: Iterable[Document],
        kinds: Kinds,
        revision: int = 0,
        findings: tuple[Finding, ...] = (),
    ) -> World:
        reads = {document.key: parse(document, kinds) for document in checked(documents, pass_checkpoint)}
        grouped: dict[tuple[str, str], dict[str, Resource]] = {}
        for key, read in reads.items():
            if read.resource is not None:
                grouped.setdefault((key.type, key.mesh), {})[key.name] = read.resource
        tables = {of: Table(resources) for of, resources in grouped.items()}
        return cls(kinds, reads, tables, revision, findings)

    def next(
        self,
        changes: Mapping[Key, Document | None],
        revision: int,
        findings: tuple[Finding, ...] | None = None,
    ) -> World:
        """The World after some documents were written (or, where `None`, removed).

        A document that became invalid takes its resource away from nobody: the last good state stays in force,
        beside the finding. Only removing it removes it.
        """
        reads = dict(self._reads)
        of_tables: dict[tuple[str, str], dict[str, Resource | None]] = {}
        for key, document in changes.items():
            if document is None:
                reads.pop(key, None)
                of_tables.setdefault((key.type, key.mesh), {})[key.name] = None
                continue
            read = reads[key] = parse(document, self.kinds)
            if read.resource is not None:
                of_tables.setdefault((key.type, key.mesh), {})[key.name] = read.resource
        changed = {of: self._tables.get(of, _EMPTY).changed(resources) for of, resources in of_tables.items()}
        tables = {**self._tables, **changed}
        kept = self._store_findings if findings is None else findings
        world = World(self.kinds, reads, tables, revision, kept)
        # What was not asked for in this World is handed on: it is compared with what there is when it is asked for.
        world._inherited = self.handed_on
        return world

    def of_mesh(self, mesh: str, earlier: World | None) -> World:
        """The part of this World that the proxies of one mesh depend on (`concerns`). It has no findings.

        What was looked up in `earlier`, such a part of a World before, is handed on.
        """
        tables = {of: table for of, table in self._tables.items() if concerns(*of, mesh)}
        world = World(self.kinds, {}, tables, self.revision)
        if earlier is not None:
            world._inherited = earlier.handed_on
        return world

    def proposed(
        self, proposals: Mapping[Key, ParsedDocument | None], earlier: World | None, *, without: Callable[..., Any]
    ) -> World:
        """This World with changes that are not stored (`None`: without a resource).

        `earlier` is the World with the changes before: what is the same in it is taken over, with all that was looked
        up there. What was derived by `without` is not.
        """
        of_tables: dict[tuple[str, str], dict[str, Resource | None]] = {}
        for key, read in proposals.items():
            if read is None or read.resource is not None:
                resource = None if read is None else read.resource
                of_tables.setdefault((key.type, key.mesh), {})[key.name] = resource
        tables = {of: self._proposed_table(of, resources, earlier) for of, resources in of_tables.items()}
        reads = {**self._reads, **{key: read for key, read in proposals.items() if read is not None}}
        gone = [key for key, read in proposals.items() if read is None]
        kept = {key: read for key, read in reads.items() if key not in gone} if gone else reads
        world = World(self.kinds, kept, {**self._tables, **tables}, self.revision, self._store_findings)
        known = (self if earlier is None else earlier).handed_on
        world._inherited = {made_by: value for made_by, value in known.items() if made_by is not without}
        return world

    @property
    def handed_on(self) -> Mapping[Callable[..., Any], Any]:
        """What the next World is given of what was derived in this one, and in those before."""
        return {**self._inherited, **self._derived}

    def _proposed_table(
        self, of: tuple[str, str], resources: Mapping[str, Resource | None], earlier: World | None
    ) -> Table:
        """A table with proposals in it: the one that was there before, if nothing in it is another."""
        before = (self if earlier is None else earlier).table(*of)
        table = self.table(*of).changed(resources)
        return table if any(True for _ in table.differing(before)) else before

    def afresh(self) -> World:
        """The same World, in which nothing was looked up or worked out yet."""
        tables = {of: Table({resource.name: resource for resource in table}) for of, table in self._tables.items()}
        return World(self.kinds, self._reads, tables, self.revision, self._store_findings)

    def derived(self, function: Callable[[World, T | None], T]) -> T:
        """What a function makes of this World, worked out once.

        It is also given what it made of the World before, so that it can take over all that did not change. What it
        returns must not hold this World: objects that hold each other are freed by the garbage collector alone.
        """
        derived = self._derived.get(function)
        if derived is None:
            # Of threads that ask at once the first wins, so that all have the same object.
            derived = self._derived.setdefault(function, function(self, self._inherited.get(function)))
            # A new mapping, not a change of this one: threads may derive different things at once.
            self._inherited = {made_by: value for made_by, value in self._inherited.items() if made_by is not function}
        return cast("T", derived)

    def recall(self, memo: type[Memo[World, MemoKey, T]], key: MemoKey) -> T:
        """The value that a memo has for a key in this World, worked out now unless that of the World before holds."""
        return self.derived(memo).get(self, key)

    def table(self, type_: str, mesh: str = "") -> Table:
        return self._tables.get((type_, mesh), _EMPTY)

    def of_type(self, type_: str) -> Iterator[Resource]:
        """The resources of one type, in all meshes."""
        for (kind, _), table in self._tables.items():
            if kind == type_:
                yield from table

    def get(self, key: Key) -> Resource | None:
        return self.table(key.type, key.mesh).get(key.name)

    def find(self, identity: Identity) -> Resource | None:
        return self.table(identity.type, identity.mesh).by_identity.get(identity.whole)

    def mesh(self, name: str) -> Resource | None:
        return self.table("Mesh").get(name)

    def __iter__(self) -> Iterator[Resource]:
        for table in self._tables.values():
            yield from table

    @property
    def counts(self) -> Mapping[str, int]:
        """How many resources there are of each kind."""
        counts: Counter[str] = Counter()
        for (kind, _), table in self._tables.items():
            counts[kind] += len(table)
        return counts

    def findings_of(self, key: Key) -> Iterator[Finding]:
        """What is wrong with one document."""
        read = self._reads.get(key)
        return read.findings() if read is not None else iter(())

    @property
    def store_findings(self) -> frozenset[Finding]:
        """What is wrong with the store itself, such as a file that cannot be read."""
        return frozenset(self._store_findings)

    @property
    def findings(self) -> Iterator[Finding]:
        """What is wrong with the documents themselves."""
        yield from self._store_findings
        for read in self._reads.values():
            yield from read.findings()
