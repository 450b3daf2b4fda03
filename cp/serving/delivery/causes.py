"""Which policies a resource of a proxy was made of, and which services or Dataplane it is about. See record 0034."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cp.insight.sources import ResourceSource, SourceIndex
from cp.model.names import Key
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.merging import Origin
from cp.translate.compiler import CompiledProxy
from cp.translate.effective import BUILT_IN, Effective
from cp.translate.packing import SECRET

_PATCH: Final = "MeshProxyPatch"
"""It may change every resource. Fragments remember which of its modifications changed them (`Fragment.used`)."""


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


class CauseFinder:
    """Finds what resources were made of, in one World."""

    def __init__(self, world: World) -> None:
        self._sources = SourceIndex(world)

    def of(self, proxy: CompiledProxy, type_url: str, name: str) -> ResourceCauses:
        """What a resource of a proxy was made of."""
        dataplane, world = proxy.dataplane, self._sources.world
        if (source := self._sources.shared(proxy, type_url, name)) is not None:
            services = (world.get(Key(kind, dataplane.mesh, service)) for kind, service in sorted(source.names))
            return ResourceCauses(
                _policies(source, type_url), tuple(_whole_resource(service) for service in services if service)
            )
        source = self._sources.own(proxy, type_url, name)
        return ResourceCauses(_policies(source, type_url), (_whole_resource(dataplane),))


def _policies(source: ResourceSource | None, type_url: str) -> tuple[PolicyPart, ...]:
    """None for a certificate or a key: a service names it, and no policy writes in it."""
    return () if source is None or type_url == SECRET else tuple(dict.fromkeys(_policy_parts(source)))


def _policy_parts(source: ResourceSource) -> Iterator[PolicyPart]:
    """Patches first: they are the likeliest, as what other policies write is validated when they are stored."""
    for effective in source.confs:
        yield from _patches(source, effective)
    for effective in source.confs:
        for kind in sorted(source.kinds & effective.keys() - {_PATCH}):
            yield from _items(effective, kind)
    yield from map(_policy_part, source.structure)


def _patches(source: ResourceSource, effective: Effective) -> Iterator[PolicyPart]:
    for kind, path in sorted(source.fragment.used):
        if kind not in effective:
            continue
        field, where = effective[kind].written(path)
        origin = field.winner.origin
        yield PolicyPart(origin.policy, where, origin.file, origin.source.line(where))


def _items(effective: Effective, kind: str) -> Iterator[PolicyPart]:
    origins = (field.winner.origin for field in effective[kind].fields.values())
    return (_policy_part(origin) for origin in dict.fromkeys(origins) if origin.part != BUILT_IN)


def _whole_resource(resource: Resource) -> PolicyPart:
    return PolicyPart(resource.key, "", resource.source.file, resource.source.line(""))


def _policy_part(origin: Origin) -> PolicyPart:
    return PolicyPart(origin.policy, origin.path, origin.file, origin.line)
