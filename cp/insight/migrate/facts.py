"""`MeshFacts`: what a translation looks at of a mesh beside the policies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cp.model.names import Destination, Key
from cp.policies import Policies
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.world import World
from cp.rules.legacy.matching import whole_tags
from cp.rules.matching.profile import Tags, profile
from cp.translate.compiler import CompiledProxy
from cp.translate.view.services import protocol_of

_USUAL: Final = "http"


@dataclass(frozen=True, slots=True)
class MeshFacts:
    """What a translation looks at of a mesh beside the policies."""

    world: World
    mesh: str
    services: Mapping[str, str]
    """The protocol of each service that is known by its tag, by its name."""

    carried: Sequence[Mapping[str, str]]
    """The sets of tags by which proxies or their inbounds are known, each once."""

    has_real: bool
    """Whether there are destinations that legacy policies do not know."""

    has_gateways: bool
    """Whether there are builtin gateways, or may be."""

    defaults: Mapping[str, Mapping[str, Any]]
    """What holds for a destination where no policy says anything, by the kind of policy with a targetRef."""

    @property
    def usual_protocol(self) -> str:
        """The protocol that most services speak."""
        return max(Counter(sorted(self.services.values())).items(), key=lambda entry: entry[1], default=(_USUAL, 0))[0]

    @property
    def samples(self) -> Sequence[str]:
        """One service of each protocol: policies say the same of services with the same protocol."""
        return list({protocol: service for service, protocol in self.services.items()}.values())

    @property
    def mesh_data(self) -> Mapping[str, Any]:
        mesh = self.world.mesh(self.mesh)
        return {} if mesh is None else mesh.data

    @property
    def taken(self) -> frozenset[Key]:
        """The policies with a targetRef that are there already."""
        kinds = [kind for kind in self.world.kinds.values() if kind.policy is not None]
        return frozenset(resource.key for kind in kinds for resource in self.world.table(kind.name, self.mesh))


def facts_of(world: World, mesh: str, policies: Policies, proxies: Iterable[CompiledProxy]) -> MeshFacts:
    """The facts of a mesh, from what its proxies are served."""
    called = {destination for proxy in proxies for destination in _called(proxy)}
    carried = [dict(tags) for tags in sorted(_tags(world, mesh))]
    carried_names = {tags[SERVICE_TAG] for tags in carried if SERVICE_TAG in tags}
    names = carried_names | {destination.service for destination in called if not destination.is_real}
    services = {name: protocol_of(world, mesh, Destination(name)).value for name in sorted(names)}
    return MeshFacts(
        world,
        mesh,
        services,
        carried,
        any(destination.is_real for destination in called),
        len(world.table("MeshGateway", mesh)) > 0,
        {policy.kind.name: policy.outbound_default for policy in policies},
    )


def _called(proxy: CompiledProxy) -> Iterator[Destination]:
    for address, result in proxy.proxy_class.outbounds.items():
        yield address.destination
        yield from result.uses


def _tags(world: World, mesh: str) -> set[Tags]:
    proxies = {profile(dataplane) for dataplane in world.table("Dataplane", mesh)}
    return {tuple(sorted(tags.items())) for proxy in proxies for tags in whole_tags(proxy)}
