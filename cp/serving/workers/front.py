"""`WorkersFront`: what is in force, for the process that serves no proxies itself but has workers that do."""

from __future__ import annotations

from collections.abc import Mapping

from cp.resources.resource import Resource
from cp.resources.world import World
from cp.serving.reconcile import Reconciler
from cp.serving.workers.crew import Crew
from cp.translate.snapshot import Snapshot


class WorkersFront:
    def __init__(self, reconciler: Reconciler, crew: Crew) -> None:
        self._reconciler = reconciler
        self._crew = crew

    async def current(self) -> World:
        return await self._reconciler.current()

    @property
    def loaded_world(self) -> World | None:
        return self._reconciler.loaded_world

    @property
    def is_ready(self) -> bool:
        return self._reconciler.is_ready and self._crew.is_ready

    @property
    def follows(self) -> bool:
        return self._reconciler.follows

    @property
    def late_meshes(self) -> Mapping[str, float]:
        """None: this process serves no proxies. Workers log those that are late, and have metrics of them."""
        return self._reconciler.late_meshes

    @property
    def is_stuck(self) -> bool:
        return self._reconciler.is_stuck

    @property
    def is_stopping(self) -> bool:
        return self._reconciler.is_stopping

    async def snapshot(self, dataplane: Resource, *, is_certified_client: bool) -> Snapshot:
        return await self._reconciler.snapshot(dataplane, is_certified_client=is_certified_client)
