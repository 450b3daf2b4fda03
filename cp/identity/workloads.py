"""MeshIdentities: which of them select a Dataplane, and which SPIFFE ID each gives it.

See record 0057.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cp.identity.trust import TrustRecord, trust_of
from cp.model.memo import Memo
from cp.model.remembered import remembered
from cp.model.secret_names import identity_trust_key
from cp.model.violation import Violation
from cp.resources.labels import WORKLOAD_LABEL, ZONE_LABEL
from cp.resources.mesh_identity import MeshIdentity
from cp.resources.resource import Resource
from cp.resources.spiffe import (
    SCHEME,
    MissingLabel,
    Template,
    TemplateLabel,
    fault_of_domain,
    fault_of_path,
    is_spiffe_id,
    render,
)
from cp.resources.world import Table, World

KIND: Final = "MeshIdentity"
_DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class WorkloadIdentity:
    """A MeshIdentity as it stands in one World."""

    resource: Resource
    domain: str
    """Its trust domain."""

    record: TrustRecord
    """Which of its authorities are trusted, and which of them signs."""

    @property
    def name(self) -> str:
        return self.resource.name

    @property
    def spec(self) -> MeshIdentity:
        spec: MeshIdentity = self.resource.spec
        return spec

    @property
    def signs(self) -> bool:
        """Whether proxies get certificates by it: everybody trusts its authority."""
        return self.spec.authority is not None and self.record.root(self.record.signer) is not None


@dataclass(frozen=True)
class WorkloadIdentities:
    """Those of a mesh, the most specific ones first."""

    identities: tuple[WorkloadIdentity, ...]

    def selecting(self, dataplane: Resource) -> tuple[WorkloadIdentity, ...]:
        """Those that select a Dataplane, the one that counts first."""
        if not self.identities:
            return ()
        labels = dataplane.selectable_labels
        candidates = {rank for label in (None, *labels.items()) for rank in self._ranks.get(label, ())}
        ranked = (self.identities[rank] for rank in sorted(candidates))
        return tuple(identity for identity in ranked if _matches(identity.spec, labels))

    @remembered
    def _ranks(self) -> Mapping[tuple[str, str] | None, list[int]]:
        """Where they stand, by one of the labels that they need: the first in the alphabet. None: they need none."""
        ranks: dict[tuple[str, str] | None, list[int]] = {}
        for rank, identity in enumerate(self.identities):
            labels = identity.spec.matched_labels or {}
            ranks.setdefault(min(labels.items(), default=None), []).append(rank)
        return ranks


def _matches(identity: MeshIdentity, labels: Mapping[str, str]) -> bool:
    return all(labels.get(name) == value for name, value in (identity.matched_labels or {}).items())


def workload_identities(world: World, mesh: str) -> WorkloadIdentities:
    """The MeshIdentities of a mesh that select Dataplanes. Equal in the next World is the same object there."""
    return world.recall(_Identities, mesh)


class _Identities(Memo[World, str, WorkloadIdentities]):
    def basis(self, source: World, key: str) -> tuple[Table, tuple[TrustRecord, ...]]:
        table = source.table(KIND, key)
        return table, tuple(record_of(source, resource) for resource in table)

    def work_out(self, source: World, key: str) -> WorkloadIdentities:
        table = source.table(KIND, key)
        return WorkloadIdentities(tuple(_usable(source, resource) for resource in sorted(_selecting(table), key=_rank)))


def is_named_by_workload(world: World, dataplane: Resource) -> bool:
    """Whether a Dataplane chooses who its proxy is by its label `kuma.io/workload`."""
    selecting = workload_identities(world, dataplane.mesh).selecting(dataplane)
    return any(TemplateLabel(WORKLOAD_LABEL) in identity.resource.derived(_path) for identity in selecting)


def record_of(world: World, identity: Resource) -> TrustRecord:
    """How far the authorities of a MeshIdentity are."""
    return trust_of(world.get(identity_trust_key(identity.mesh, identity.name)))


def _selecting(table: Table) -> Iterator[Resource]:
    """Those that select Dataplanes, have a trust domain, and have a provider that we serve, or none."""
    for resource in table:
        spec: MeshIdentity = resource.spec
        is_served = spec.provider is None or spec.authority is not None
        if is_served and spec.matched_labels is not None and resource.derived(domain_of):
            yield resource


def _rank(resource: Resource) -> tuple[int, str]:
    """Kuma's order: the most labels, and then the first name."""
    return -len(resource.spec.matched_labels), resource.name


def _usable(world: World, resource: Resource) -> WorkloadIdentity:
    return WorkloadIdentity(resource, resource.derived(domain_of), record_of(world, resource))


def lifetime_of(identity: Resource) -> float:
    """How long the certificates of proxies are valid, in seconds."""
    authority = identity.spec.authority
    parameters = None if authority is None else authority.certificate_parameters
    return _DAY if parameters is None or parameters.expiry is None else float(parameters.expiry.seconds)


def domain_of(identity: Resource) -> str:
    """The trust domain of a MeshIdentity; empty if its template asks for a label that it does not have.

    Use it as `identity.derived(domain_of)`.
    """
    fields = {".Mesh": identity.mesh, ".Zone": identity.selectable_labels[ZONE_LABEL]}
    try:
        domain = render(identity.spec.domain_template(), fields, identity.selectable_labels)
    except MissingLabel:
        return ""
    return "" if fault_of_domain(domain) else domain


def spiffe_id(identity: Resource, dataplane: Resource) -> str | Violation:
    """The ID that a MeshIdentity gives a Dataplane, or why it gives it none."""
    domain = identity.derived(domain_of)
    try:
        path = render(identity.derived(_path), {".TrustDomain": domain}, dataplane.selectable_labels)
    except MissingLabel as missing:
        hint = f"give the Dataplane the label `{missing.label}`"
        return Violation("", f"has no label `{missing.label}`, and `spec.spiffeID.path` asks for it", hint)
    if not is_spiffe_id(f"{SCHEME}{domain}{path}"):
        fault = fault_of_path(path) or "is too long"
        return Violation("", f"would have the path `{path}` in its SPIFFE ID, which {fault}", "give it other labels")
    return f"{SCHEME}{domain}{path}"


def _path(identity: Resource) -> Template:
    template: Template = identity.spec.path_template()
    return template
