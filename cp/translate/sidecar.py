"""What a proxy has beside its inbounds and outbounds, because some policy is about the proxy itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cp.model.failure import failure
from cp.policies import Policies
from cp.resources.client import is_grpc_client
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.effective import ConfWriters, Effective, Rules, of_proxy
from cp.translate.failed import with_cause
from cp.translate.fragments import NO_TASK, Fragment, FragmentCache, Task
from cp.translate.view.sidecars import sidecar_of
from generators.proxy import Sidecar


@dataclass(frozen=True, slots=True, eq=False)
class SidecarResult:
    """What a proxy has beside its inbounds and outbounds, and what holds for it."""

    effective: Effective
    """What holds for the proxy as a whole; nothing for a gRPC client, which could do nothing of it."""

    task: Task
    fragment: Fragment


class SidecarStage:
    """From the rules of a proxy to what it has for itself."""

    def __init__(self, policies: Policies, fragments: FragmentCache) -> None:
        self._fragments = fragments
        self._writers = ConfWriters(policies, ("sidecar", "finish"))

    def result(self, world: World, rules: Rules, dataplane: Resource) -> SidecarResult:
        """Nothing, unless some policy is about that."""
        part = "what a proxy has beside its inbounds and outbounds"
        try:
            result = self._result(world, rules, dataplane)
        except Exception as error:  # noqa: BLE001  # whatever it is, inbounds and outbounds are served
            result = SidecarResult({}, NO_TASK, Fragment((), failure=failure(error, part)))
        return replace(result, fragment=with_cause(result.fragment, part, rules, result.effective))

    def _result(self, world: World, rules: Rules, dataplane: Resource) -> SidecarResult:
        effective = {} if is_grpc_client(dataplane) else of_proxy(rules)
        confs = self._writers.confs(world, dataplane.mesh, effective)
        task = Task(dataplane.derived(sidecar_of) if confs else Sidecar(), confs)
        return SidecarResult(effective, task, self._fragments.get(task))
