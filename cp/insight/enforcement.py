"""The parts of resources that have no effect: what nobody does yet, and what needs mTLS where there is none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cp.identity.security import security_of
from cp.identity.workloads import KIND, workload_identities
from cp.model.document import Document
from cp.model.violation import Finding, Severity
from cp.resources.capabilities import MissingPart, missing_parts, parts_with_mtls, warning
from cp.resources.parse import finding
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.view.reachability import PERMISSION

MTLS_OFF: Final = "mtls-off"
"""The code of findings about what has an effect only with mTLS, where there is none."""


_DECIDING: Final = frozenset({"Mesh", KIND})
"""The kinds that say whether a mesh has mTLS."""


def parts_without_effect(world: World, resource: Resource) -> tuple[MissingPart, ...]:
    """The parts of a resource that no proxy does anything of."""
    return (*resource.derived(_never), *parts_without_mtls(world, resource))


def parts_without_mtls(world: World, resource: Resource) -> tuple[MissingPart, ...]:
    """The parts of a resource that have no effect because its mesh has no mTLS."""
    parts = () if decides_reach(world, resource.type) else resource.derived(only_with_mtls)
    return parts if parts and not has_mtls(world, resource.mesh) else ()


def decides_reach(world: World, kind: str) -> bool:
    """Whether policies of a kind say of whom proxies are told, with mTLS or without."""
    return kind == PERMISSION and world.kinds.derives_reachability


def has_mtls(world: World, mesh: str) -> bool:
    """Whether a mesh has mTLS, or gets it as soon as an authority is made and trusted."""
    identities = workload_identities(world, mesh).identities
    return security_of(world, mesh) is not None or any(identity.spec.authority is not None for identity in identities)


def only_with_mtls(resource: Resource) -> tuple[MissingPart, ...]:
    """The parts of a resource that have an effect only with mTLS. Use it as `resource.derived(only_with_mtls)`."""
    return tuple(parts_with_mtls(resource.type, resource.document.data))


def may_bring_mtls(document: Document) -> bool:
    return document.key.type in _DECIDING


def needs_mtls(document: Document) -> bool:
    """Whether a part of a document has an effect only with mTLS."""
    return any(True for _ in parts_with_mtls(document.key.type, document.data))


def warnings_without_mtls(world: World, documents: Sequence[Document]) -> Iterator[Finding]:
    """What has no effect of documents that are written together, because their meshes have no mTLS then."""
    deciding = {document.key: document for document in documents if may_bring_mtls(document)}
    world = world.next(deciding, world.revision) if deciding else world
    for document in documents:
        parts = tuple(parts_with_mtls(document.key.type, document.data))
        if parts and not has_mtls(world, document.key.mesh) and not decides_reach(world, document.key.type):
            root = world.kinds[document.key.type].root
            yield from (finding(document, MTLS_OFF, Severity.WARNING, warning(part, root)) for part in parts)


def _never(resource: Resource) -> tuple[MissingPart, ...]:
    return tuple(missing_parts(resource.type, resource.document.data))
