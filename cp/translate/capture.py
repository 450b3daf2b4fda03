"""What takes the traffic that a machine redirects to its proxy and that is for none of the proxy's destinations."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cp.model.failure import failure
from cp.policies import Policies
from cp.resources.schema import decode
from cp.resources.world import World
from cp.translate.effective import ConfWriters, Rules, has_hook, of_proxy
from cp.translate.failed import with_cause
from cp.translate.fragments import Fragment, FragmentCache, Task
from generators.proxy import Capture


@dataclass(frozen=True, slots=True, eq=False)
class CaptureResult:
    """What takes the traffic that a machine redirects to its proxy."""

    capture: Capture
    """What the Dataplane and its Mesh say about it. What policies add (MeshPassthrough) is in the task alone."""

    task: Task
    fragment: Fragment


class CaptureStage:
    """From the rules of a proxy to what takes redirected traffic."""

    def __init__(self, policies: Policies, fragments: FragmentCache) -> None:
        self._fragments = fragments
        self._passing = [policy for policy in policies if has_hook(policy, "capture")]
        self._writers = ConfWriters(policies, ("finish",))

    def result(self, world: World, mesh: str, rules: Rules, capture: Capture) -> CaptureResult:
        part = "what takes redirected calls"
        try:
            result = self._result(world, mesh, rules, capture)
        except Exception as error:  # noqa: BLE001  # whatever it is, calls of destinations are served
            result = CaptureResult(capture, Task(capture), Fragment((), failure=failure(error, part)))
        return replace(result, fragment=with_cause(result.fragment, part, rules, {}))

    def _result(self, world: World, mesh: str, rules: Rules, capture: Capture) -> CaptureResult:
        effective, site = of_proxy(rules), capture
        for policy in self._passing:
            if (conf := effective.get(policy.kind.name)) is not None:
                site = policy.capture(decode(policy.conf, conf.value), site)
        task = Task(site, self._writers.confs(world, mesh, effective))
        return CaptureResult(capture, task, self._fragments.get(task))
