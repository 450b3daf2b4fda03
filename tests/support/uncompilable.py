"""A proxy that cannot be compiled, or some part of which cannot be made, by a fault of ours."""

from __future__ import annotations

from typing import Any

import pytest

from cp.model.duration import Duration
from cp.policies.mesh_timeout import MeshTimeout
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.view.proxies import outbounds

REASON = "RuntimeError in uncompilable.py, line "


def cannot_compile(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """From now on proxies of these names cannot be compiled, and all others can."""

    def some_outbounds(world: World, dataplane: Resource) -> Any:
        if dataplane.name in names:
            raise RuntimeError("out of order")
        return outbounds(world, dataplane)

    monkeypatch.setattr("cp.translate.compiler.outbounds", some_outbounds)


WRITTEN_BY_NOBODY = "66s"
"""A connection timeout that no MeshTimeout can write from then on."""


def cannot_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a part of a proxy that has that timeout cannot be made, and all other parts can."""
    write = MeshTimeout.cluster

    def cluster(policy: MeshTimeout, conf: Any, draft: Any) -> None:
        if conf.connection_timeout is not None and conf.connection_timeout == Duration.parse(WRITTEN_BY_NOBODY):
            raise RuntimeError("out of order")
        write(policy, conf, draft)

    monkeypatch.setattr(MeshTimeout, "cluster", cluster)
