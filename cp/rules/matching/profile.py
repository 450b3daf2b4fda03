"""What policies can select a dataplane by. Dataplanes that are equal in this are matched once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from cp.resources.client import is_grpc_client
from cp.resources.gateway import carries
from cp.resources.labels import ZONE, ZONE_LABEL, zone_of
from cp.resources.resource import Resource
from cp.resources.world import World

Tags: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ProfileSection:
    """An inbound or an embedded listener: its tags, and its names (name and port)."""

    tags: Tags
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DataplaneProfile:
    """A dataplane without its name and addresses."""

    sections: tuple[ProfileSection, ...]
    """Its inbounds, and after them its embedded listeners."""

    gateway_type: str
    """DELEGATED or BUILTIN; empty for a sidecar."""

    gateway_tags: Tags
    namespace: str
    zone: str
    only_calls: bool = False
    """Whether it is a gRPC client without inbounds. It has no sections, so policies can select it only as a whole."""

    @property
    def proxy_type(self) -> str:
        return "Gateway" if self.gateway_type else "Sidecar"


@dataclass(frozen=True, slots=True)
class DataplaneSignature:
    """All that decides which policies select a dataplane, except those that name it."""

    profile: DataplaneProfile
    gateway: Resource | None
    """The MeshGateway that configures a builtin gateway; None for other dataplanes."""

    labels: Tags
    """The labels that some policy selects by."""

    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.profile, self.gateway, self.labels)))

    def __hash__(self) -> int:
        """The hash is computed once, because signatures are looked up for every proxy in every World."""
        return self._hash


def profile(dataplane: Resource) -> DataplaneProfile:
    return dataplane.derived(_profile)


def _profile(dataplane: Resource) -> DataplaneProfile:
    networking: Mapping[str, Any] = dataplane.data.get("networking") or {}
    gateway = networking.get("gateway")
    zone = zone_of(dataplane.document.data) or ZONE
    profile_sections = tuple(_section(section, zone) for section in sections(dataplane))
    return DataplaneProfile(
        sections=profile_sections,
        gateway_type="" if gateway is None else gateway.get("type") or "DELEGATED",
        gateway_tags=() if gateway is None else _tags(gateway.get("tags"), zone),
        namespace=dataplane.namespace,
        zone=dataplane.zone,
        only_calls=is_grpc_client(dataplane) and not profile_sections,
    )


def looking_at(whole: DataplaneProfile, names: AbstractSet[str]) -> DataplaneProfile:
    """A profile in which inbounds have only the tags of these names."""
    sections = (
        ProfileSection(tuple(tag for tag in section.tags if tag[0] in names), section.names)
        for section in whole.sections
    )
    return replace(whole, sections=tuple(sections))


def sections(dataplane: Resource) -> list[Mapping[str, Any]]:
    """The inbounds of a dataplane, then its embedded listeners. `MatchedPolicy.inbounds` has indexes of this list."""
    networking = dataplane.data.get("networking") or {}
    return [*(networking.get("inbound") or ()), *(networking.get("listeners") or ())]


def listeners(gateway: Resource) -> list[Mapping[str, Any]]:
    """The listeners of a MeshGateway: `MatchedPolicy.listeners` are indexes of these."""
    conf = gateway.data.get("conf") or {}
    return list(conf.get("listeners") or ())


def listener_tags(profile: DataplaneProfile, gateway: Resource, listener: Mapping[str, Any]) -> dict[str, str]:
    """The tags of one listener, over those of its gateway, over those of the dataplane.

    See docs/concepts/matching-and-merging.md#gateways.
    """
    return {**dict(profile.gateway_tags), **(gateway.data.get("tags") or {}), **(listener.get("tags") or {})}


def tags_of_listeners(world: World, dataplane: Resource) -> list[Mapping[str, str]]:
    """The tags of each listener of a builtin gateway; none for other proxies, and where no MeshGateway selects it."""
    gateway = gateway_of(world, dataplane)
    if gateway is None:
        return []
    return [listener_tags(profile(dataplane), gateway, listener) for listener in listeners(gateway)]


class ListenersByTags:
    """The listeners of a MeshGateway, found by their tags: there can be many, and many policies that select some."""

    def __init__(self, gateway: Resource) -> None:
        of_gateway = gateway.data.get("tags") or {}
        own = [{**of_gateway, **(listener.get("tags") or {})} for listener in listeners(gateway)]
        self._all = frozenset(range(len(own)))
        self._by_name: dict[str, set[int]] = {}
        self._by_tag: dict[tuple[str, str], set[int]] = {}
        for index, tags in enumerate(own):
            for tag in tags.items():
                self._by_name.setdefault(tag[0], set()).add(index)
                self._by_tag.setdefault(tag, set()).add(index)
        self._known: dict[tuple[Tags, Tags], tuple[int, ...]] = {}
        self._shared: dict[tuple[int, ...], tuple[int, ...]] = {}

    def carrying(self, selector: Mapping[str, str] | None, of_proxy: Tags) -> tuple[int, ...]:
        """The indexes of the listeners that a selector fits. The same listeners are the same tuple."""
        key = (tuple(sorted((selector or {}).items())), of_proxy)
        if key not in self._known:
            indexes = tuple(sorted(self._carrying(key[0], dict(of_proxy))))
            self._known[key] = self._shared.setdefault(indexes, indexes)
        return self._known[key]

    def _carrying(self, selector: Tags, of_proxy: Mapping[str, str]) -> AbstractSet[int]:
        chosen: AbstractSet[int] = self._all
        for name, value in selector:
            own = self._by_name.get(name, set()) if value == "*" else self._by_tag.get((name, value), set())
            if carries(of_proxy, {name: value}):
                own = own | (self._all - self._by_name.get(name, set()))
            chosen = chosen & own
        return chosen


def _section(section: Mapping[str, Any], zone: str) -> ProfileSection:
    names = (section.get("name") or "", str(section.get("port", "")))
    return ProfileSection(_tags(section.get("tags"), zone), tuple(name for name in names if name))


def _tags(tags: Mapping[str, str] | None, zone: str) -> Tags:
    """The tags with the zone, which Kuma's control plane adds where it is not written."""
    return tuple(sorted({ZONE_LABEL: zone, **(tags or {})}.items()))


def gateway_of(world: World, dataplane: Resource) -> Resource | None:
    """The one MeshGateway by which a builtin gateway is configured: the one whose selector says most.

    See docs/concepts/matching-and-merging.md#gateways.
    """
    return next(iter(gateways_alike(world, dataplane)), None)


def gateways_alike(world: World, dataplane: Resource) -> tuple[Resource, ...]:
    """The MeshGateways whose selectors say most of a builtin gateway. The first of them configures it."""
    dataplane_profile = profile(dataplane)
    if dataplane_profile.gateway_type != "BUILTIN":
        return ()
    near = (
        gateway for gateway in world.table("MeshGateway", dataplane.mesh) if _is_near(gateway, dataplane_profile.zone)
    )
    ranked = [
        (rank, gateway)
        for gateway in near
        if (rank := _rank(gateway, dict(dataplane_profile.gateway_tags))) is not None
    ]
    best = max((rank for rank, _ in ranked), default=None)
    return tuple(gateway for rank, gateway in ranked if rank == best)


def _is_near(gateway: Resource, zone: str) -> bool:
    """Whether a MeshGateway can configure gateways of a zone: one of another zone cannot."""
    return gateway.origin != "zone" or not zone or gateway.zone in {"", zone}


def _rank(gateway: Resource, tags: Mapping[str, str]) -> tuple[int, int] | None:
    """The number of tags of the best selector that fits, and how many of them have a value; None if none fits."""
    selectors: Iterable[Mapping[str, str]] = [
        selector.get("match") or {} for selector in gateway.data.get("selectors") or [{}]
    ]
    fitting = [selector for selector in selectors if carries(tags, selector)]
    return max((_asks(selector) for selector in fitting), default=None)


def _asks(selector: Mapping[str, str]) -> tuple[int, int]:
    return len(selector), sum(1 for value in selector.values() if value != "*")
