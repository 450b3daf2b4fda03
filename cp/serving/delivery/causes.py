"""What stands behind a resource of a proxy: the policies of whose confs it was made."""

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
from cp.translate.compiler import CompiledProxy, ProxyClass
from cp.translate.effective import BUILT_IN, Effective, Rules, rules_of
from cp.translate.fragments import Fragment, Task
from cp.translate.outbound import OutboundResult
from cp.translate.packing import SECRET
from cp.translate.view.proxies import inbounds

_PATCH: Final = "MeshProxyPatch"
"""It may change every resource, and says of each which of its modifications did."""

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
    """What a resource follows from."""

    policies: tuple[PolicyPart, ...] = ()
    """Every part of a policy that has a say in it."""

    resources: tuple[PolicyPart, ...] = ()
    """What it is about: the services that are called, or the Dataplane itself."""


@dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """What a fragment was made of."""

    fragment: Fragment
    kinds: frozenset[str]
    """The policies that had something to write in it."""

    confs: tuple[Effective, ...]
    others: tuple[Origin, ...] = ()
    """Those of whom it depends what there is at all: routes, and rules for some of the clients."""

    names: frozenset[Name] = frozenset()
    """By what names it knows the services that it is about."""

    def places(self) -> Iterator[PolicyPart]:
        """Patches first: what other policies write is checked before, and what patches write only Envoy can judge."""
        for effective in self.confs:
            yield from self._patches(effective)
        for effective in self.confs:
            for kind in sorted(self.kinds & effective.keys() - {_PATCH}):
                yield from _items(effective, kind)
        yield from map(_place, self.others)

    def _patches(self, effective: Effective) -> Iterator[PolicyPart]:
        for kind, path in sorted(self.fragment.used):
            if kind not in effective:
                continue
            field, where = effective[kind].written(path)
            origin = field.winner.origin
            yield PolicyPart(origin.policy, where, origin.file, origin.source.line(where))


class CauseFinder:
    """Finds them. What proxies of a class have in common is looked through once."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._of_bundles: dict[int, tuple[ProxyClass, Mapping[_Name, _Source]]] = {}

    def of(self, proxy: CompiledProxy, type_url: str, name: str) -> ResourceCauses:
        """What a resource of a proxy follows from."""
        wanted = (type_url, name)
        dataplane = proxy.dataplane
        if (source := self._shared(proxy.bundle).get(wanted)) is not None:
            found = (self._world.get(Key(type_, dataplane.mesh, name)) for type_, name in sorted(source.names))
            return ResourceCauses(_policies(source, type_url), tuple(_written(one) for one in found if one))
        source = self._own(proxy).get(wanted)
        return ResourceCauses(_policies(source, type_url), (_written(dataplane),))

    def _shared(self, bundle: ProxyClass) -> Mapping[_Name, _Source]:
        if id(bundle) not in self._of_bundles:
            self._of_bundles[id(bundle)] = (bundle, _indexed(_of_bundle(bundle)))
        return self._of_bundles[id(bundle)][1]

    def _own(self, proxy: CompiledProxy) -> Mapping[_Name, _Source]:
        return _indexed(_of_proxy(rules_of(self._world, proxy.dataplane), proxy))


def _policies(source: _Source | None, type_url: str) -> tuple[PolicyPart, ...]:
    """What policies have a say. A certificate or a key is what a service names, and no policy writes in it."""
    return () if source is None or type_url == SECRET else tuple(dict.fromkeys(source.places()))


def _indexed(sources: Iterable[_Source]) -> Mapping[_Name, _Source]:
    return {(packed.type_url, packed.name): source for source in sources for packed in source.fragment}


def _of_bundle(bundle: ProxyClass) -> Iterator[_Source]:
    for entry in bundle.entries.values():
        confs = (entry.effective, *entry.of_routes.values())
        yield _Source(entry.fragment, _writers(entry.task), confs, _routes(entry), entry.names)
    for upstream in bundle.upstreams.values():
        for task, fragment in zip(upstream.tasks, upstream.fragments, strict=True):
            yield _Source(fragment, _writers(task), (upstream.effective,), names=upstream.names)


def _of_proxy(rules: Rules, proxy: CompiledProxy) -> Iterator[_Source]:
    for (index, _), reached in zip(inbounds(proxy.dataplane), proxy.inbounds, strict=True):
        clients = {kind for kind, _ in reached.task.clients}
        others = tuple(origin for kind in sorted(clients) for origin in _of_clients(rules[kind], index))
        yield _Source(reached.fragment, _writers(reached.task), (reached.effective,), others)
    beside = proxy.sidecar
    yield _Source(beside.fragment, _writers(beside.task), (beside.effective,))


def _writers(task: Task) -> frozenset[str]:
    return frozenset(kind for confs in (task.confs, *(own for _, own in task.routes)) for kind, _ in confs)


def _routes(entry: OutboundResult) -> tuple[Origin, ...]:
    return tuple(dict.fromkeys(origin for rule in entry.owners.values() for origin in rule.origins))


def _of_clients(of_kind: PolicyRules, index: int) -> Iterator[Origin]:
    for subset in of_kind.from_(index).rules if of_kind.shape.from_ else ():
        yield from subset.combined.origins
    for rule in of_kind.inbound(index).for_some:
        yield from rule.combined.origins


def _items(effective: Effective, kind: str) -> Iterator[PolicyPart]:
    origins = (field.winner.origin for field in effective[kind].fields.values())
    return (_place(origin) for origin in dict.fromkeys(origins) if origin.part != BUILT_IN)


def _written(resource: Resource) -> PolicyPart:
    return PolicyPart(resource.key, "", resource.source.file, resource.source.line(""))


def _place(origin: Origin) -> PolicyPart:
    return PolicyPart(origin.policy, origin.path, origin.file, origin.line)
