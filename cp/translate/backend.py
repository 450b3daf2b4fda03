"""One backend of a class: its cluster and, unless Envoy finds them by itself, its endpoints."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from cp.model.dependency import Name
from cp.model.failure import failure
from cp.model.names import Destination
from cp.policies import Policies
from cp.resources.caller import Caller
from cp.resources.limits import DestinationRoom
from cp.resources.schema import decode
from cp.resources.world import World
from cp.translate.dependencies import names_in, names_of
from cp.translate.effective import (
    CalledService,
    ConfWriters,
    Effective,
    Rules,
    at_listener,
    defaults,
    has_hook,
    of_destination,
)
from cp.translate.failed import with_cause
from cp.translate.fragments import NO_TASK, Fragment, FragmentCache, Task
from cp.translate.view.backends import BackendKey, mark_of, reached
from cp.translate.view.mtls import with_tls
from cp.translate.view.services import backend_of, cluster_name, endpoints_of, outside_of, protocol_of
from generators.proxy import Endpoints

_FIXED_BYTES: Final = 3_200
"""The bytes of a backend beside its endpoints and the contents of its resources."""


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

    size: int = 0
    """The estimated bytes that it takes of the room for backends; 0 if it is left out."""

    kept_bytes: int = 0
    """The bytes that it takes of the room of the proxy; 0 if it is left out."""

    @property
    def is_over_limit(self) -> bool:
        return any(fragment.is_over_limit for fragment in self.fragments)


def endpoints_to_arrange(world: World, mesh: str, destination: Destination, caller: Caller) -> Endpoints:
    """Return the endpoints of a destination as they are before policies arrange them."""
    external = backend_of(world, mesh, destination, caller.withheld).external
    if external and not destination.is_real:
        return Endpoints(cluster_name(destination), external, is_external=True)
    return endpoints_of(world, mesh, destination)


class BackendStage:
    """From the rules of a class to the backends that its outbounds use."""

    def __init__(self, policies: Policies, fragments: FragmentCache) -> None:
        self._fragments = fragments
        self._defaults = defaults(policies, "outbound_default")
        self._arranging = [policy for policy in policies if has_hook(policy, "arrange")]
        self._cluster_writers = ConfWriters(policies, ("cluster", "finish"))
        self._endpoints_writers = ConfWriters(policies, ("endpoints",))

    def result(  # noqa: PLR0913  # all on which it depends
        self, world: World, mesh: str, rules: Rules, key: BackendKey, caller: Caller, *, room: DestinationRoom
    ) -> BackendResult:
        """One backend. Without it, what is sent there is answered with 503."""
        destination, mark = reached(key), mark_of(key)
        part = f"the cluster of {destination.service}"
        try:
            result = self._result(world, mesh, rules, destination, caller, room=room, mark=mark)
        except Exception as error:  # noqa: BLE001  # whatever it is, all other backends are served
            fragment = Fragment((), failure=failure(error, part))
            result = BackendResult(destination, {}, (NO_TASK,), (fragment,), names_of(destination))
        of_part = partial(with_cause, part=part, rules=rules, effective=result.effective)
        return replace(result, fragments=tuple(map(of_part, result.fragments)))

    def tasks(  # noqa: PLR0913  # all on which they depend
        self, world: World, mesh: str, destination: Destination, effective: Effective, caller: Caller, *, mark: str = ""
    ) -> tuple[Task, ...]:
        """The generator's tasks for the cluster of a destination and its endpoints, from its effective confs."""
        backend = with_tls(backend_of(world, mesh, destination, caller.withheld), world, mesh, destination, caller.tls)
        name = f"{backend.cluster}{mark}"
        site = replace(backend, cluster=name, is_of_gateway=caller.is_gateway) if caller.is_gateway else backend
        if site.external and not destination.is_real:  # an ExternalService can say in which zone it is
            external = Endpoints(name, site.external, is_external=True)
            site = replace(site, external=self._arranged(external, effective, caller).endpoints)
        cluster = Task(site, self._cluster_writers.confs(world, mesh, effective), is_grpc=caller.is_grpc)
        if site.external:
            return (cluster,)
        endpoints = replace(endpoints_of(world, mesh, destination), cluster=name)
        arranged = self._arranged(endpoints, effective, caller)
        confs = self._endpoints_writers.confs(world, mesh, effective)
        return cluster, Task(arranged, confs, is_grpc=caller.is_grpc)

    def _result(  # noqa: PLR0913  # all on which it depends
        self,
        world: World,
        mesh: str,
        rules: Rules,
        destination: Destination,
        caller: Caller,
        *,
        room: DestinationRoom,
        mark: str,
    ) -> BackendResult:
        of_caller = at_listener if caller.is_gateway else of_destination
        outside = outside_of(world, mesh, destination, caller.withheld)
        called = CalledService(destination, protocol_of(world, mesh, destination), outside is not None)
        effective = of_caller(self._defaults, rules, called)
        tasks = self.tasks(world, mesh, destination, effective, caller, mark=mark)
        size = self._fragments.take(room, *tasks)
        fragments, kept = self._fragments.get_within(room, *tasks, fixed=_FIXED_BYTES)
        tasks = tuple(fragment.task or task for fragment, task in zip(fragments, tasks, strict=True))
        names = names_of(destination) | names_in(effective)
        names = names if outside is None else names | outside.names
        return BackendResult(destination, effective, tasks, fragments, names, size, kept)

    def _arranged(self, endpoints: Endpoints, effective: Effective, caller: Caller) -> Endpoints:
        for policy in self._arranging:
            merged = effective.get(policy.kind.name)
            conf = None if merged is None else decode(policy.conf, merged.value)
            endpoints = policy.arrange(conf, endpoints, caller)
        return endpoints
