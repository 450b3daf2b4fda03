"""Which policies a resource of a proxy was made of, and which services or Dataplane it is about. See record 0034."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from cp.model.dependency import Name
from cp.model.names import Key
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules import PolicyRules
from cp.rules.merging import Origin
from cp.translate.compiler import CompiledProxy
from cp.translate.effective import BUILT_IN, Effective, Rules, rules_of
from cp.translate.fragments import Fragment, Task
from cp.translate.inbound import rules_side_by_side
from cp.translate.outbound import OutboundResult
from cp.translate.packing import SECRET
from cp.translate.proxy_class import ProxyClass
from cp.translate.view.proxies import inbounds

_PATCH: Final = "MeshProxyPatch"
"""It may change every resource. Fragments remember which of its modifications changed them (`Fragment.used`)."""

_Name: TypeAlias = tuple[str, str]
"""The type and the name of a resource."""


@dataclass(frozen=True, slots=True, order=True)
class PolicyPart:
    """A part of a policy: an item, or a modification of a proxy patch."""

    policy: Key
    path: str
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        place = f", {self.file}:{self.line}" if self.file and self.line else ""
        return f"{self.policy.type} {self.policy.name} ({self.path}{place})" if self.path else str(self.policy)


@dataclass(frozen=True, slots=True)
class ResourceCauses:
    """What a resource was made of."""

    policies: tuple[PolicyPart, ...] = ()
    """The parts of policies whose values it may have."""

    resources: tuple[PolicyPart, ...] = ()
    """The services that are called, or the Dataplane itself."""


@dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """A fragment and what it was made of."""

    fragment: Fragment
    kinds: frozenset[str]
    """The kinds of policies that wrote in it."""

    confs: tuple[Effective, ...]
    structure: tuple[Origin, ...] = ()
    """Who decides which routes and filters it has: the policies of routes, and the rules for some of the clients."""

    names: frozenset[Name] = frozenset()
    """The names of the services that it is about."""

    def policy_parts(self) -> Iterator[PolicyPart]:
        """Patches first: they are the likeliest, as what other policies write is validated when they are stored."""
        for effective in self.confs:
            yield from self._patches(effective)
        for effective in self.confs:
            for kind in sorted(self.kinds & effective.keys() - {_PATCH}):
                yield from _items(effective, kind)
        yield from map(_policy_part, self.structure)

    def _patches(self, effective: Effective) -> Iterator[PolicyPart]:
        for kind, path in sorted(self.fragment.used):
            if kind not in effective:
                continue
            field, where = effective[kind].written(path)
            origin = field.winner.origin
            yield PolicyPart(origin.policy, where, origin.file, origin.source.line(where))


class CauseFinder:
    """Finds what resources were made of, in one World.

    What proxies of a class have in common is indexed once, by the identity of the class. The index keeps the class
    itself too: as long as it does, no other object can get the same `id`.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._by_class: dict[int, tuple[ProxyClass, Mapping[_Name, _Source]]] = {}

    def of(self, proxy: CompiledProxy, type_url: str, name: str) -> ResourceCauses:
        """What a resource of a proxy was made of."""
        resource_name = (type_url, name)
        dataplane = proxy.dataplane
        if (source := self._shared(proxy.proxy_class).get(resource_name)) is not None:
            services = (self._world.get(Key(kind, dataplane.mesh, service)) for kind, service in sorted(source.names))
            return ResourceCauses(
                _policies(source, type_url), tuple(_whole_resource(service) for service in services if service)
            )
        source = self._own(proxy).get(resource_name)
        return ResourceCauses(_policies(source, type_url), (_whole_resource(dataplane),))

    def _shared(self, proxy_class: ProxyClass) -> Mapping[_Name, _Source]:
        if id(proxy_class) not in self._by_class:
            self._by_class[id(proxy_class)] = (proxy_class, _indexed(_of_class(proxy_class)))
        return self._by_class[id(proxy_class)][1]

    def _own(self, proxy: CompiledProxy) -> Mapping[_Name, _Source]:
        return _indexed(_of_proxy(rules_of(self._world, proxy.dataplane), proxy))


def _policies(source: _Source | None, type_url: str) -> tuple[PolicyPart, ...]:
    """None for a certificate or a key: a service names it, and no policy writes in it."""
    return () if source is None or type_url == SECRET else tuple(dict.fromkeys(source.policy_parts()))


def _indexed(sources: Iterable[_Source]) -> Mapping[_Name, _Source]:
    return {(packed.type_url, packed.name): source for source in sources for packed in source.fragment}


def _of_class(proxy_class: ProxyClass) -> Iterator[_Source]:
    for outbound in proxy_class.outbounds.values():
        confs = (outbound.effective, *outbound.of_routes.values())
        yield _Source(outbound.fragment, _writers(outbound.task), confs, _routes(outbound), outbound.depends_on)
    for backend in proxy_class.backends.values():
        for task, fragment in zip(backend.tasks, backend.fragments, strict=True):
            yield _Source(fragment, _writers(task), (backend.effective,), names=backend.depends_on)


def _of_proxy(rules: Rules, proxy: CompiledProxy) -> Iterator[_Source]:
    for (index, _), inbound in zip(inbounds(proxy.dataplane), proxy.inbounds, strict=True):
        clients = rules.keys() & {kind for kind, _ in inbound.task.clients}
        of_clients = tuple(origin for kind in sorted(clients) for origin in _of_clients(rules[kind], index))
        yield _Source(inbound.fragment, _writers(inbound.task), (inbound.effective,), of_clients)
    sidecar = proxy.sidecar
    yield _Source(sidecar.fragment, _writers(sidecar.task), (sidecar.effective,))


def _writers(task: Task) -> frozenset[str]:
    return frozenset(kind for confs in (task.confs, *(of_route for _, of_route in task.routes)) for kind, _ in confs)


def _routes(outbound: OutboundResult) -> tuple[Origin, ...]:
    return tuple(dict.fromkeys(origin for rule in outbound.route_rules.values() for origin in rule.origins))


def _of_clients(rules: PolicyRules, index: int) -> Iterator[Origin]:
    if rules.shape.side_by_side:
        yield from (origin for _, combined in rules_side_by_side(rules, index) for origin in combined.origins)
        return
    for subset in rules.from_(index).rules if rules.shape.from_ else ():
        yield from subset.combined.origins
    for rule in rules.inbound(index).with_matches:
        yield from rule.combined.origins


def _items(effective: Effective, kind: str) -> Iterator[PolicyPart]:
    origins = (field.winner.origin for field in effective[kind].fields.values())
    return (_policy_part(origin) for origin in dict.fromkeys(origins) if origin.part != BUILT_IN)


def _whole_resource(resource: Resource) -> PolicyPart:
    return PolicyPart(resource.key, "", resource.source.file, resource.source.line(""))


def _policy_part(origin: Origin) -> PolicyPart:
    return PolicyPart(origin.policy, origin.path, origin.file, origin.line)
