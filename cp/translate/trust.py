"""The roots that the proxies of a mesh trust: one secret, the same for all Envoys, and one for all gRPC clients."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cp.resources.world import World
from cp.translate.fragments import Fragment, FragmentCache, Task
from cp.translate.snapshot import SnapshotPart
from cp.translate.view.mtls import trust_of, trust_of_grpc_clients
from generators.proxy import Trust


@dataclass(frozen=True, slots=True, eq=False)
class TrustResult:
    """The roots of a mesh, and the secret with them."""

    trust: Trust
    fragment: Fragment
    part: SnapshotPart


class TrustStage:
    """From the World to the roots of each mesh. What does not change from World to World is the same object."""

    def __init__(self, fragments: FragmentCache) -> None:
        self._fragments = fragments
        self._results: dict[tuple[str, bool], TrustResult] = {}

    def result(self, world: World, mesh: str, *, is_grpc: bool) -> TrustResult | None:
        """None where there is nothing to trust. `is_grpc`: for gRPC clients without a proxy."""
        trust, key = trust_of_grpc_clients(world, mesh) if is_grpc else trust_of(world, mesh), (mesh, is_grpc)
        before = self._results.get(key)
        if trust is None:
            self._results.pop(key, None)
            return None
        if before is None or before.trust != trust or not before.fragment.is_made:
            self._results[key] = self._result(trust, before)
        return self._results[key]

    def _result(self, trust: Trust, before: TrustResult | None) -> TrustResult:
        """Roots that cannot be served, by a fault of ours, leave those of before."""
        fragment = self._fragments.get(Task(trust))
        if fragment.failure is not None:
            fragment = Fragment((), failure=replace(fragment.failure, part="the roots of the mesh"))
            fragment = fragment if before is None else before.fragment.in_place_of(fragment)
        return TrustResult(trust, fragment, SnapshotPart(fragment))
