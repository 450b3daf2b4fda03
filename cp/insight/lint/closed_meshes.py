"""Meshes in which nobody may call anybody once some documents are written: told with the answer to the write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cp.insight.enforcement import has_mtls, may_bring_mtls
from cp.insight.lint.mtls import has_permissions, judging_kinds, nobody
from cp.insight.lint.survey import MeshSurvey
from cp.model.checkpoint import Checkpoint
from cp.model.document import Document
from cp.model.names import Key
from cp.model.violation import Finding
from cp.policies import Policies
from cp.resources.world import World


def closed_meshes(
    policies: Policies, world: World, documents: Sequence[Document], checkpoint: Checkpoint
) -> Iterator[Finding]:
    """What lint says of the Meshes that have mTLS then, without a permission, where one of the documents decides that.

    All proxies are compiled for it, so it is done where permissions are missing altogether, and nowhere else.
    """
    after = world.next({document.key: document for document in documents}, world.revision)
    meshes = {_mesh_of(document.key) for document in documents if may_bring_mtls(document)}
    kinds = judging_kinds({policy.kind.name: policy for policy in policies})
    closed = {mesh for mesh in meshes if has_mtls(after, mesh) and not has_permissions(after, mesh, kinds)}
    if closed:
        survey = MeshSurvey(policies, after, checkpoint)
        keys = {Key("Mesh", "", mesh) for mesh in closed}
        yield from (finding for finding in nobody(survey) if finding.resource in keys)


def _mesh_of(key: Key) -> str:
    return key.mesh or key.name
