"""A proxy that cannot be compiled, by a fault of ours."""

from __future__ import annotations

from typing import Any

import pytest

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
