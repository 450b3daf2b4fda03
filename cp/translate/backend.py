"""One backend of a class: its cluster and, unless Envoy finds them by itself, its endpoints."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from cp.model.dependency import Name
from cp.model.failure import failure
from cp.model.names import Destination
from cp.policies import Policies
from cp.resources.caller import Caller
from cp.resources.schema import decode
from cp.resources.world import World
from cp.translate.dependencies import names_in, names_of
from cp.translate.effective import ConfWriters, Effective, Rules, defaults, has_hook, of_destination
from cp.translate.failed import with_cause
from cp.translate.fragments import NO_TASK, Fragment, FragmentCache, Task
from cp.translate.view.mtls import with_tls
from cp.translate.view.services import backend_of, endpoints_of, outside_of
from generators.proxy import Endpoints


@dataclass(frozen=True, slots=True, eq=False)
class BackendResult:
    """One backend of a class: its cluster and, unless Envoy finds them by itself, its endpoints."""

    destination: Destination
    effective: Effective
    """What holds for the destination, whichever route a call takes."""

    tasks: tuple[Task, ...]
    """That of the cluster and that of the endpoints; of the cluster alone if Envoy finds the endpoints by itself."""

    fragments: tuple[Fragment, ...]
    """One for each task."""

    depends_on: frozenset[Name]
    """The names of everything that it depends on, whether or not there is such a resource (record 0054)."""


class BackendStage:
    """From the rules of a class to the backends that its outbounds use."""

    def __init__(self, policies: Policies, fragments: FragmentCache) -> None:
        self._fragments = fragments
        self._defaults = defaults(policies, "outbound_default")
        self._arranging = [policy for policy in policies if has_hook(policy, "arrange")]
        self._cluster_writers = ConfWriters(policies, ("cluster", "finish"))
        self._endpoints_writers = ConfWriters(policies, ("endpoints",))

    def result(self, world: World, mesh: str, rules: Rules, destination: Destination, caller: Caller) -> BackendResult:
        """One backend. Without it, what is sent there is answered with 503."""
        part = f"the cluster of {destination.service}"
        try:
            result = self._result(world, mesh, rules, destination, caller)
        except Exception as error:  # noqa: BLE001  # whatever it is, all other backends are served
            fragment = Fragment((), failure=failure(error, part))
            result = BackendResult(destination, {}, (NO_TASK,), (fragment,), names_of(destination))
        of_part = partial(with_cause, part=part, rules=rules, effective=result.effective)
        return replace(result, fragments=tuple(map(of_part, result.fragments)))

    def tasks(
        self, world: World, mesh: str, destination: Destination, effective: Effective, caller: Caller
    ) -> tuple[Task, ...]:
        """The generator's tasks for the cluster of a destination and its endpoints, from its effective confs."""
        backend = with_tls(backend_of(world, mesh, destination), world, mesh, destination, caller.tls)
        cluster = Task(backend, self._cluster_writers.confs(world, mesh, effective), is_grpc=caller.is_grpc)
        if outside_of(world, destination) is not None:
            return (cluster,)
        arranged = self._arranged(endpoints_of(world, mesh, destination), effective, caller)
        confs = self._endpoints_writers.confs(world, mesh, effective)
        return cluster, Task(arranged, confs, is_grpc=caller.is_grpc)

    def _result(self, world: World, mesh: str, rules: Rules, destination: Destination, caller: Caller) -> BackendResult:
        effective = of_destination(self._defaults, rules, destination)
        outside = outside_of(world, destination)
        tasks = self.tasks(world, mesh, destination, effective, caller)
        names = names_of(destination) | names_in(effective)
        names = names if outside is None else names | outside.names
        return BackendResult(destination, effective, tasks, tuple(map(self._fragments.get, tasks)), names)

    def _arranged(self, endpoints: Endpoints, effective: Effective, caller: Caller) -> Endpoints:
        for policy in self._arranging:
            merged = effective.get(policy.kind.name)
            conf = None if merged is None else decode(policy.conf, merged.value)
            endpoints = policy.arrange(conf, endpoints, caller)
        return endpoints
