"""Which RateLimit holds where a proxy calls an ExternalService: nobody behind it could count, so the caller does.

Of those whose `sources` fit the proxy, and whose `destinations` fit the service, which is known by `kuma.io/service`
alone, the most specific holds, then the newest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from cp.model.memo import SharingMemo
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.resource import Resource
from cp.resources.services import EXTERNAL_SERVICE
from cp.resources.world import Table, World
from cp.rules.legacy.matching import whole_tags
from cp.rules.legacy.selectors import Rank, age, best_rank, selectors_of, strongest
from cp.rules.matching.profile import DataplaneProfile, profile

RATE_LIMIT: Final = "RateLimit"

Limits: TypeAlias = tuple[tuple[str, Resource], ...]
"""A RateLimit for each service, in the order of their names. Equal ones are one object."""

NO_LIMITS: Final[Limits] = ()

_Class: TypeAlias = tuple[str, DataplaneProfile]


def limits_of_calls(world: World, dataplane: Resource) -> Limits:
    """What holds for the ExternalServices that a proxy can call. Proxies that are alike get the same object."""
    mesh = dataplane.mesh
    if not len(world.table(EXTERNAL_SERVICE.name, mesh)) or not len(world.table(RATE_LIMIT, mesh)):
        return NO_LIMITS
    return world.recall(_Limits, (mesh, profile(dataplane)))


def is_for_service_outside(world: World, limit: Resource) -> bool:
    """Whether the `destinations` of a RateLimit fit an ExternalService."""
    destinations = selectors_of(limit.data, "destinations")
    return any(
        best_rank(destinations, [{SERVICE_TAG: service}]) is not None
        for service in _names(world.table(EXTERNAL_SERVICE.name, limit.mesh))
    )


class _Limits(SharingMemo[World, _Class, Limits]):
    def basis(self, source: World, key: _Class) -> tuple[tuple[str, ...], Table]:
        return source.table(EXTERNAL_SERVICE.name, key[0]).derived(_names), source.table(RATE_LIMIT, key[0])

    def work_out(self, source: World, key: _Class) -> Limits:
        services, limits = self.basis(source, key)
        of_services = ((service, _holding(limits, service, key[1])) for service in services)
        return tuple((service, limit) for service, limit in of_services if limit is not None)


def _names(services: Table) -> tuple[str, ...]:
    return tuple(sorted({str((service.spec.tags or {}).get(SERVICE_TAG, "")) for service in services}))


def _holding(limits: Iterable[Resource], service: str, proxy: DataplaneProfile) -> Resource | None:
    ranked = [(rank, age(limit), limit) for limit in limits for rank in _rank(limit, service, proxy)]
    return strongest(ranked)


def _rank(limit: Resource, service: str, proxy: DataplaneProfile) -> Iterator[Rank]:
    """How specific a limit is; nothing if it is not for these calls."""
    of_caller = best_rank(selectors_of(limit.data, "sources"), whole_tags(proxy))
    of_service = best_rank(selectors_of(limit.data, "destinations"), [{SERVICE_TAG: service}])
    if of_caller is not None and of_service is not None:
        yield of_caller.plus(of_service)
