"""Warnings to whoever switches mTLS on where nothing permits a call: from then on nobody may call anybody."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request

from cp.api.caller import caller_of
from cp.api.collaborators import Collaborators
from cp.insight.enforcement import may_bring_mtls
from cp.insight.lint import closed_meshes
from cp.model.document import Document
from cp.model.violation import Finding
from cp.policies import discover


async def closed_by_write(api: Collaborators, request: Request, documents: Sequence[Document]) -> tuple[Finding, ...]:
    """What lint says of Meshes into which the caller may look. Proxies are compiled for it, as for a plan."""
    if not any(map(may_bring_mtls, documents)):
        return ()
    world = await api.state.current()
    findings = await api.works.plans.do(
        request, lambda checkpoint: tuple(closed_meshes(discover(), world, documents, checkpoint))
    )
    return tuple(filter(caller_of(request).may_know, findings))
