"""Which endpoints a caller sees, and in what order: its own zone before others, what is near before what is far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from cp.policies.mesh_load_balancing_strategy.schema import AffinityTag, Failover, FailoverThreshold, LocalityAwareness
from cp.resources.checks import number
from generators.proxy import Endpoint, Endpoints, Locality

if TYPE_CHECKING:
    from cp.policies.mesh_load_balancing_strategy.schema import CrossZone
    from cp.resources.caller import Caller

_OWN: Final = 0
_REMOTE: Final = 1
_LEAST_WEIGHT: Final = 1

# Envoy NACKs a higher priority, and weights with a larger sum.
_LAST_PRIORITY: Final = 128
_LARGEST_SUM: Final = 2**32 - 1

_DEFAULT_THRESHOLD: Final = 50
_ALL: Final = 100


def arranged(awareness: LocalityAwareness, endpoints: Endpoints, caller: Caller) -> Endpoints:
    """The endpoints of a destination as one caller sees them. A caller without a zone is near to all."""
    view = _View(awareness, caller, is_external=endpoints.is_external)
    if not view.differs(endpoints):
        return endpoints
    placed = [(endpoint, locality) for endpoint in endpoints.endpoints if (locality := view.of(endpoint)) is not None]
    final = _numbered(_weighed(view, [locality for _, locality in placed]))
    return replace(
        endpoints, endpoints=tuple(replace(endpoint, locality=final[locality]) for endpoint, locality in placed)
    )


def is_weighed(awareness: LocalityAwareness | None) -> bool:
    """Whether localities of one priority get shares by weight."""
    return awareness is not None and bool(_affinity(awareness))


def overprovisioning(cross_zone: CrossZone) -> int:
    """Envoy's factor for the share of well endpoints, in percent, below which the next priority gets requests too."""
    threshold = cross_zone.failover_threshold or FailoverThreshold()
    share = number(_DEFAULT_THRESHOLD if threshold.percentage is None else threshold.percentage) or _ALL
    return min(round(_ALL * _ALL / share), _LARGEST_SUM)


class _View:
    """The localities of endpoints, as one caller sees them."""

    def __init__(self, awareness: LocalityAwareness, caller: Caller, *, is_external: bool) -> None:
        self._zone = caller.zone
        self._is_exact = awareness.local_zone is not None or awareness.cross_zone is not None
        self._is_off = awareness.disabled is True and not self._is_exact
        failover = (awareness.cross_zone.failover if awareness.cross_zone else None) or []
        self._rules = [(place, rule) for place, rule in enumerate(failover, _REMOTE) if _is_from(rule, caller.zone)]
        affinity = () if is_external else _affinity(awareness)
        self.is_weighed = bool(affinity)
        self._near = list(_near(affinity, dict(caller.tags)))

    def differs(self, endpoints: Endpoints) -> bool:
        """Whether this caller needs other localities than the endpoints have already."""
        if self._is_off:
            return False
        return self.is_weighed or not all(self._is_own(endpoint) for endpoint in endpoints.endpoints)

    def of(self, endpoint: Endpoint) -> Locality | None:
        """The locality of an endpoint; None: this caller must not reach it."""
        if self._is_own(endpoint):
            return self._own(endpoint)
        zone = endpoint.locality.zone
        priority = _priority(self._rules, zone) if self._is_exact else _REMOTE
        return None if priority is None else Locality(zone, priority=priority)

    def _is_own(self, endpoint: Endpoint) -> bool:
        """Whether an endpoint is in the zone of the caller, or either has no zone."""
        return not self._zone or endpoint.locality.zone in {"", self._zone}

    def _own(self, endpoint: Endpoint) -> Locality:
        tags = dict(endpoint.tags)
        # A weight is for all that share a tag: a caller without a zone does not tell zones apart among them.
        zone = self._zone if self.is_weighed else self._zone or endpoint.locality.zone
        for key, value, weight in self._near:
            if tags.get(key) == value:
                return Locality(zone, f"{key}={value}", _OWN, weight)
        return Locality(zone, weight=_LEAST_WEIGHT if self.is_weighed else None)


def _affinity(awareness: LocalityAwareness) -> Sequence[AffinityTag]:
    return (awareness.local_zone.affinity_tags if awareness.local_zone else None) or ()


def _near(affinity: Sequence[AffinityTag], tags: Mapping[str, str]) -> Iterator[tuple[str, str, int]]:
    """The tags of the caller that count, with the weight of those who share them: each ten times that of the next."""
    for place, tag in enumerate(affinity, 1):
        if tag.key in tags:
            weight = 9 * 10 ** (len(affinity) - place) if tag.weight is None else tag.weight
            yield tag.key, tags[tag.key], weight


def _is_from(rule: Failover, zone: str) -> bool:
    return rule.from_ is None or zone in (rule.from_.zones or ())


def _priority(rules: Iterable[tuple[int, Failover]], zone: str) -> int | None:
    """The priority of the first rule that lets requests into a zone; None where `None` or no rule does."""
    for place, rule in rules:
        named = zone in (rule.to.zones or ())
        if rule.to.type == "None":
            return None
        if rule.to.type == "Any" or (rule.to.type == "Only" and named) or (rule.to.type == "AnyExcept" and not named):
            return place
    return None


def _weighed(view: _View, localities: Sequence[Locality]) -> Mapping[Locality, Locality]:
    """Each locality with its weight. Without affinity tags there are none, and each endpoint counts the same."""
    if not view.is_weighed:
        return {locality: locality for locality in localities}
    weighed = {
        locality: locality if locality.weight is not None else replace(locality, weight=count)
        for locality, count in Counter(localities).items()
    }
    total = Counter[int]()
    for locality in weighed.values():
        total[locality.priority] += locality.weight or 0
    return {locality: _within(with_weight, total[with_weight.priority]) for locality, with_weight in weighed.items()}


def _within(locality: Locality, total: int) -> Locality:
    """A locality whose weight is small enough for the sum of its priority."""
    if locality.weight is None or total <= _LARGEST_SUM:
        return locality
    return replace(locality, weight=max(_LEAST_WEIGHT, locality.weight * (_LARGEST_SUM // 2) // total))


def _numbered(localities: Mapping[Locality, Locality]) -> Mapping[Locality, Locality]:
    """The same localities, with priorities from 0 without gaps, as Envoy requires."""
    priorities = sorted({locality.priority for locality in localities.values()})
    place = {priority: min(index, _LAST_PRIORITY) for index, priority in enumerate(priorities)}
    return {locality: replace(final, priority=place[final.priority]) for locality, final in localities.items()}
