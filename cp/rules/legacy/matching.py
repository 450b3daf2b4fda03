"""Which legacy policies select a proxy, and which of its inbounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from cp.model.memo import Memo, SharingMemo
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.kinds import LegacySide
from cp.resources.resource import Resource
from cp.resources.world import Table, World
from cp.rules.legacy.selectors import NO_RANK, ByService, Rank, best_rank, selectors_of
from cp.rules.matching.profile import DataplaneProfile, profile


@dataclass(frozen=True, slots=True)
class LegacyMatch:
    """A legacy policy that selects a proxy."""

    policy: Resource
    rank: Rank = NO_RANK
    """How specific the selector is by which it does: that of `sources` or `selectors`."""

    inbounds: tuple[tuple[int, Rank], ...] = ()
    """The inbounds that its `destinations` choose, each with the rank of the best of them."""


Matches: TypeAlias = tuple[LegacyMatch, ...]
"""Of all kinds. Equal ones are one object."""

_Class: TypeAlias = tuple[str, DataplaneProfile]


def legacy_matches(world: World, dataplane: Resource) -> Matches:
    """The legacy policies that select a proxy. Proxies that are alike get the same object."""
    if not world.recall(_Tables, dataplane.mesh):
        return ()
    return world.recall(_Matches, (dataplane.mesh, profile(dataplane)))


def side_of(policy: Resource) -> LegacySide:
    assert policy.kind.legacy is not None  # noqa: S101  # narrows the type
    return policy.kind.legacy.side


class _Tables(Memo[World, str, tuple[Table, ...]]):
    """The legacy policies of a mesh, by kind; nothing where there are none, as in most meshes."""

    def basis(self, source: World, key: str) -> tuple[Table, ...]:
        return tuple(source.table(kind.name, key) for kind in source.kinds.values() if kind.legacy is not None)

    def work_out(self, source: World, key: str) -> tuple[Table, ...]:
        return tuple(table for table in self.basis(source, key) if len(table))


class _Matches(SharingMemo[World, _Class, Matches]):
    """An edit of one policy asks those proxies again that it can select, and no others."""

    def basis(self, source: World, key: _Class) -> tuple[Resource, ...]:
        """The policies that can select such proxies, by kind and in the order of their names."""
        services = services_of(key[1])
        tables = (table.derived(_by_service) for table in source.recall(_Tables, key[0]))
        return tuple(policy for table in tables for policy in table.candidates(services))

    def work_out(self, source: World, key: _Class) -> Matches:
        return tuple(match for policy in self.basis(source, key) for match in _match(policy, key[1]))


def _by_service(table: Table) -> ByService[Resource]:
    return ByService((policy, _selecting(policy)) for policy in table)


def services_of(proxy: DataplaneProfile) -> list[str]:
    return [tags[SERVICE_TAG] for tags in whole_tags(proxy) if SERVICE_TAG in tags]


def _selecting(policy: Resource) -> list[Mapping[str, str]]:
    """The selectors by which a policy chooses proxies; without any `selectors` it is for every proxy."""
    match side_of(policy):
        case LegacySide.OUTBOUND:
            return selectors_of(policy.data, "sources")
        case LegacySide.INBOUND:
            return selectors_of(policy.data, "destinations")
    return selectors_of(policy.data, "selectors") or [{}]


def _match(policy: Resource, proxy: DataplaneProfile) -> Iterator[LegacyMatch]:
    selecting = _selecting(policy)
    if side_of(policy) is LegacySide.INBOUND:
        inbounds = _tags_of_inbounds(proxy)
        ranks = ((index, best_rank(selecting, [tags])) for index, tags in enumerate(inbounds))
        chosen = tuple((index, rank) for index, rank in ranks if rank is not None)
        if chosen:
            yield LegacyMatch(policy, inbounds=chosen)
        return
    rank = best_rank(selecting, whole_tags(proxy))
    if rank is not None:
        yield LegacyMatch(policy, rank)


def whole_tags(proxy: DataplaneProfile) -> list[Mapping[str, str]]:
    """The tags by which a proxy is known as a whole: those of each of its inbounds, and those of a gateway."""
    return [*_tags_of_inbounds(proxy), *([dict(proxy.gateway_tags)] if proxy.gateway_type else [])]


def _tags_of_inbounds(proxy: DataplaneProfile) -> list[Mapping[str, str]]:
    return [dict(section.tags) for section in proxy.sections]
