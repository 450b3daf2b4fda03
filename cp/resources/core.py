"""The kinds that are no policies."""

from __future__ import annotations

from typing import Final

from cp.resources.dataplane import DATAPLANE
from cp.resources.gateway import MESH_GATEWAY
from cp.resources.hostname_generator import HOSTNAME_GENERATOR
from cp.resources.kinds import Kind
from cp.resources.legacy import LEGACY_KINDS
from cp.resources.mesh import MESH
from cp.resources.mesh_identity import MESH_IDENTITY
from cp.resources.mesh_trust import MESH_TRUST
from cp.resources.otel_backend import OTEL_BACKEND
from cp.resources.rollout import ROLLOUT
from cp.resources.secret import GLOBAL_SECRET, SECRET
from cp.resources.services import EXTERNAL_SERVICE, MESH_EXTERNAL_SERVICE, MESH_SERVICE, MULTI_ZONE_SERVICE

CORE: Final[tuple[Kind, ...]] = (
    MESH,
    DATAPLANE,
    MESH_SERVICE,
    MULTI_ZONE_SERVICE,
    MESH_EXTERNAL_SERVICE,
    EXTERNAL_SERVICE,
    MESH_GATEWAY,
    HOSTNAME_GENERATOR,
    OTEL_BACKEND,
    MESH_IDENTITY,
    MESH_TRUST,
    SECRET,
    GLOBAL_SECRET,
    ROLLOUT,
    *LEGACY_KINDS,
)
