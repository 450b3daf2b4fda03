"""What holds for a destination, and for one route to it: from the mesh to the route, field by field (decision 2)."""

from __future__ import annotations

from cp.merging import NOTHING, Merged
from cp.model.names import Destination, Identity
from cp.rules.build import PolicyRules
from cp.rules.combined import Combined
from cp.rules.items import SERVICE_TAG
from cp.rules.subsets import MATCHES_TAG


def effective(rules: PolicyRules, destination: Destination, route: Identity | None = None, matches: str = "") -> Merged:
    """The conf of a destination or, field by field over it, of a route to it. The policy's defaults are not in it.

    `matches` is the hash of the route's matches: by it, policies are found that name the route at their top level and
    are for destinations by tags.
    """
    call = (destination, route, matches)
    found = rules.calls.get(call)
    if found is None:
        found = _effective(rules, destination, route, matches)
        rules.calls.put(call, found)
    return found


def _effective(rules: PolicyRules, destination: Destination, route: Identity | None, matches: str) -> Merged:
    levels = [
        _conf(of_service(rules, destination, matches)),
        *(_of_route(rules, destination, route) if route is not None else ()),
    ]
    said = tuple(level for level in levels if level is not NOTHING)
    return said[0] if len(said) == 1 else rules.lay(said)


def of_service(rules: PolicyRules, destination: Destination, matches: str = "") -> Combined | None:
    """What holds for a service as a whole."""
    if destination.identity is not None:
        found = rules.to.rule(destination.identity)
        return None if found is None else found.combined
    tags = {SERVICE_TAG: destination.service, **dict(destination.tags)}
    if matches and (found_route := rules.to_subsets.of({**tags, MATCHES_TAG: matches})) is not None:
        return found_route.combined
    found_service = rules.to_subsets.of(tags)
    return None if found_service is None else found_service.combined


def _of_route(rules: PolicyRules, destination: Destination, route: Identity) -> tuple[Merged, ...]:
    """What is said of the route itself: the new way over the old one (decision 6).

    For a destination by tags the old way is part of the rules by tags, where Kuma has it.
    """
    found = rules.to.route(route)
    old = rules.to.outdated(route) if destination.is_real else ()
    return _conf(rules.combine(old) if old else None), _conf(None if found is None else found.combined)


def _conf(combined: Combined | None) -> Merged:
    return NOTHING if combined is None else combined.conf
