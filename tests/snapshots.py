"""Golden cases of whole snapshots: what a case says, and what is served for it as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from cp.api.envoy_json import decoded
from cp.model.document import Document
from cp.model.names import Key
from cp.model.source import read_documents
from cp.model.yaml import parse_all
from cp.policies import Policy, discover, kinds
from cp.resources.world import World
from cp.translate.compiler import Compiler
from cp.translate.packing import SHORT, TYPES, PackedResource
from cp.translate.snapshot import Snapshot
from tests.golden import Case

_KEYS: Final = {"proxy", "mesh", "types", "only", "certified"}


@cache
def policies() -> tuple[Policy[Any], ...]:
    return discover()


@dataclass(frozen=True, slots=True)
class Question:
    """The first document of a case: which proxy, and (where it matters) which resources of it are of interest."""

    proxy: str
    mesh: str
    types: tuple[str, ...]
    documents: tuple[Document, ...]
    is_certified: bool = False
    """Whether the proxy is a gRPC client that says that it finds certificates."""

    @classmethod
    def of(cls, case: Case) -> Question:
        first, *_ = parse_all(case.text)
        unknown = set(first.data) - _KEYS
        assert not unknown, f"{case.name} asks in words that no case knows: {unknown}"
        _, _, rest = case.text.partition("\n---\n")
        reading = read_documents(rest)
        assert not reading.findings, [str(finding) for finding in reading.findings]
        types = tuple(first.data.get("types") or SHORT.values())
        asked = first.data
        return cls(asked["proxy"], asked.get("mesh", "default"), types, reading.documents, "certified" in asked)

    def world(self, *, without: str = "") -> World:
        documents = [document for document in self.documents if document.key.type != without]
        world = World.of(documents, kinds(policies()))
        findings = [str(finding) for finding in world.findings if finding.severity == "error"]
        assert not findings, findings
        return world

    def snapshot(self, *, without: str = "") -> Snapshot:
        world = self.world(without=without)
        dataplane = world.get(Key("Dataplane", self.mesh, self.proxy))
        assert dataplane is not None, f"there is no Dataplane {self.proxy}"
        compiler = Compiler(policies())
        compiler.certified_clients = frozenset({dataplane.key} if self.is_certified else ())
        return compiler.snapshot(world, dataplane)


def shown(question: Question, snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot by type and name, as Envoy's API writes it in JSON."""
    return {
        SHORT[type_url]: resources
        for type_url in TYPES
        if SHORT[type_url] in question.types and (resources := _named(snapshot, type_url))
    }


def changed(question: Question, snapshot: Snapshot, before: Snapshot) -> dict[str, Any]:
    """Only the resources that are not as they would be without a policy, and the names of those that are gone."""
    found: dict[str, Any] = {}
    for type_url in TYPES:
        old = {packed.name: packed.version for packed in before.of(type_url)}
        new = {packed.name: packed for packed in snapshot.of(type_url)}
        differing = {name: _decoded(p) for name, p in sorted(new.items()) if old.get(name) != p.version}
        gone = dict.fromkeys(sorted(old.keys() - new.keys()), "gone")
        if SHORT[type_url] in question.types and (differing or gone):
            found[SHORT[type_url]] = {**differing, **gone}
    return found


def _named(snapshot: Snapshot, type_url: str) -> Mapping[str, Any]:
    return {packed.name: _decoded(packed) for packed in sorted(snapshot.of(type_url), key=lambda one: one.name)}


def _decoded(packed: PackedResource) -> Any:
    """Without the name, under which it is shown."""
    return {name: value for name, value in decoded(packed).items() if name not in {"name", "clusterName"}}
