"""A plan is what is served in two Worlds, compared: both are worked out by the compiler that serves proxies.

See record 0086.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from cp.insight.comparison import ChangedResource, Decode, ProxyDifference, SnapshotOrFailure, comparison_of
from cp.insight.plan.causes import ChangedDocuments
from cp.insight.plan.changed_values import ResourceSides
from cp.insight.plan.drains import drain
from cp.insight.plan.model import DocumentChange, MeshPlan, PlannedDifference, PlannedDocument
from cp.insight.plan.values import ValueFinder
from cp.insight.sources import ResourceSource, SourceIndex
from cp.model.checkpoint import Allowance, Checkpoint, checked, never_stopped
from cp.model.document import Document
from cp.model.failure import Failure
from cp.model.names import Key
from cp.model.violation import Finding
from cp.resources.world import World
from cp.translate.compiler import CompiledProxy, Compiler

_PLACE: Final = re.compile(r" \([^()]*:\d+\)")
"""How a message says where a policy stands that it names."""


def planned_documents(
    before: Mapping[Key, Document], changes: Mapping[Key, Document | None]
) -> tuple[PlannedDocument, ...]:
    """What becomes of documents; those that stay as they are, wherever they stand, are left out."""
    return tuple(_documents(before, changes))


def _documents(before: Mapping[Key, Document], changes: Mapping[Key, Document | None]) -> Iterator[PlannedDocument]:
    for key, document in sorted(changes.items(), key=lambda change: change[0]):
        known = before.get(key)
        if document is None and known is not None:
            yield PlannedDocument(key, DocumentChange.DELETED)
        elif document is not None and document != known:
            change = DocumentChange.CREATED if known is None else DocumentChange.UPDATED
            yield PlannedDocument(key, change, document.source.file, document.source.line(""))


@dataclass(frozen=True, slots=True)
class CompiledMesh:
    """The proxies of a mesh in one World. Those that cannot be compiled are among the failures."""

    proxies: Mapping[Key, CompiledProxy]
    failures: Mapping[Key, Failure]
    sources: SourceIndex

    @classmethod
    def of(cls, compiler: Compiler, world: World, mesh: str, checkpoint: Checkpoint = never_stopped) -> CompiledMesh:
        dataplanes = checked(world.table("Dataplane", mesh), checkpoint)
        outcomes = {dataplane.key: compiler.proxy_or_failure(world, dataplane) for dataplane in dataplanes}
        proxies = {key: outcome for key, outcome in outcomes.items() if isinstance(outcome, CompiledProxy)}
        failures = {key: outcome for key, outcome in outcomes.items() if isinstance(outcome, Failure)}
        return cls(proxies, failures, SourceIndex(world))

    @property
    def snapshots(self) -> Mapping[Key, SnapshotOrFailure]:
        return {**{key: proxy.snapshot for key, proxy in self.proxies.items()}, **self.failures}


@dataclass(frozen=True, slots=True)
class PlanScope:
    """A change, and how far it is looked at."""

    before: World
    after: World
    changed: Collection[Key]
    """The documents that are not the same in both."""

    meshes: Sequence[str]
    """The meshes of which the proxies are compared."""


def mesh_plans(
    scope: PlanScope,
    compiler: Compiler,
    decode: Decode,
    checkpoint: Checkpoint = never_stopped,
    allowance: Allowance | None = None,
) -> Iterator[MeshPlan]:
    """What a change would do to the proxies of some meshes.

    The compiler is one that knows the first World, or a World like it: then it costs what the change costs. It is left
    in the first World, ready for the next plan. Raises `TooLarge` if more would be told than is allowed.
    """
    before = {mesh: CompiledMesh.of(compiler, scope.before, mesh, checkpoint) for mesh in scope.meshes}
    finder = ValueFinder(compiler.fragments, decode, checkpoint, allowance or Allowance())
    fork = compiler.fork()
    for mesh, compiled in before.items():
        after = CompiledMesh.of(fork, scope.after, mesh, checkpoint)
        documents = ChangedDocuments.of_mesh(scope.changed, mesh, (scope.before, scope.after))
        comparison = comparison_of(mesh, compiled.snapshots, after.snapshots, checkpoint)
        differences = tuple(
            _difference(difference, (compiled, after), documents, finder)
            for difference in checked(comparison.differences, checkpoint)
        )
        yield MeshPlan(
            mesh, len(comparison.in_both), comparison.added, comparison.removed, differences, comparison.failures
        )


def _difference(
    different: ProxyDifference,
    sides: tuple[CompiledMesh, CompiledMesh],
    documents: ChangedDocuments,
    finder: ValueFinder,
) -> PlannedDifference:
    change, proxies = different.resource, different.proxies
    made_of = ResourceSides(*(_source(side, proxies[0], change) for side in sides))
    told_fields = finder.fields(change, made_of)
    sources = [source for source in (made_of.before, made_of.after) if source is not None]
    values = list(chain.from_iterable(told_fields.values)) or list(made_of.changes)
    is_explained = len(sources) == 1 or all(field.values for field in told_fields.fields)
    causes = documents.behind(proxies, sources, values, is_explained=is_explained)
    return PlannedDifference(change, proxies, told_fields, causes, drain(change, finder.decode))


def _source(side: CompiledMesh, proxy: Key, change: ChangedResource) -> ResourceSource | None:
    return side.sources.of(side.proxies[proxy], change.type_url, change.name)


def meshes_of(keys: Iterable[Key], *worlds: World) -> tuple[str, ...]:
    """The meshes that changed documents can reach: all, if one of them is in no mesh."""
    keys = tuple(keys)
    names = {key.name if key.type == "Mesh" else key.mesh for key in keys}
    if "" in names:
        names |= {mesh.name for world in worlds for mesh in world.table("Mesh")}
    return tuple(sorted(names - {""}))


def finding_changes(
    before: Iterable[Finding], after: Iterable[Finding]
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """The findings that would appear, and those that would vanish."""
    before, after = tuple(before), tuple(after)
    return _not_among(after, before), _not_among(before, after)


def _not_among(findings: Iterable[Finding], known: Iterable[Finding]) -> tuple[Finding, ...]:
    """That a finding stands on another line, or names a policy that does, makes it no other one."""
    identities = set(map(_identity, known))
    return tuple(finding for finding in findings if _identity(finding) not in identities)


def _identity(finding: Finding) -> tuple[object, ...]:
    return finding.code, finding.severity, finding.resource, finding.path, _PLACE.sub("", finding.message)
