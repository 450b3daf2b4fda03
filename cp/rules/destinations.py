"""What holds for a destination, and for one route to it: from the mesh to the route, field by field (decision 2)."""

from __future__ import annotations

from typing import TypeAlias

from cp.model.names import Destination, Identity
from cp.rules.build import PolicyRules
from cp.rules.calls import names_of_call
from cp.rules.combined import CombinedConf
from cp.rules.items import SERVICE_TAG
from cp.rules.merging import NOTHING, MergedConf
from cp.rules.subsets import MATCHES_TAG

Via: TypeAlias = tuple[Identity, ...]
"""The routes that contribute to a way to a destination, the strongest first."""


def effective(rules: PolicyRules, destination: Destination, via: Via = (), matches: str = "") -> MergedConf:
    """The conf of a destination or, field by field over it, of routes to it. The policy's defaults are not in it.

    `matches` is the hash of the route's matches: by it, policies are found that name the route at their top level and
    are for destinations by tags.
    """
    call = (destination, via, matches)
    found = rules.calls.get(call)
    if found is None:
        found = _effective(rules, destination, via, matches)
        rules.calls.put(call, found, names_of_call(call))
    return found


def levels(rules: PolicyRules, destination: Destination, via: Via = (), matches: str = "") -> tuple[CombinedConf, ...]:
    """What is said of a destination and of the routes to it, each level by itself, the most general first."""
    of_routes = (level for route in reversed(via) for level in _of_route(rules, destination, route))
    return tuple(found for found in (of_service(rules, destination, matches), *of_routes) if found is not None)


def _effective(rules: PolicyRules, destination: Destination, via: Via, matches: str) -> MergedConf:
    return _laid(rules, tuple(level.conf for level in levels(rules, destination, via, matches)))


def _laid(rules: PolicyRules, levels: tuple[MergedConf, ...]) -> MergedConf:
    said = tuple(level for level in levels if level is not NOTHING)
    return said[0] if len(said) == 1 else rules.lay(said)


def at_gateway(rules: PolicyRules, via: Via = (), matches: str = "") -> MergedConf:
    """What holds for a listener of a builtin gateway or, field by field over it, for routes on it.

    A gateway's listener is no destination: what is said to the whole mesh holds for it. The rules are those of the
    listener alone (`PolicyRules.at_listeners`).
    """
    whole = rules.to_subsets.of({MATCHES_TAG: matches} if matches else {})
    of_routes = (rules.to.route(route) for route in reversed(via))
    levels = (None if one is None else one.combined for one in (whole, *of_routes))
    return _laid(rules, tuple(map(_conf, levels)))


def of_service(rules: PolicyRules, destination: Destination, matches: str = "") -> CombinedConf | None:
    """What holds for a service as a whole."""
    if destination.identity is not None:
        found = rules.to.rule(destination.identity)
        return None if found is None else found.combined
    tags = {SERVICE_TAG: destination.service, **dict(destination.tags)}
    if matches and (found_route := rules.to_subsets.of({**tags, MATCHES_TAG: matches})) is not None:
        return found_route.combined
    found_service = rules.to_subsets.of(tags)
    return None if found_service is None else found_service.combined


def _of_route(rules: PolicyRules, destination: Destination, route: Identity) -> tuple[CombinedConf | None, ...]:
    """What is said of the route itself: the new way over the old one (decision 6).

    For a destination by tags the old way is part of the rules by tags, where Kuma has it.
    """
    found = rules.to.route(route)
    old = rules.to.outdated(route) if destination.is_real else ()
    return rules.combine(old) if old else None, None if found is None else found.combined


def _conf(combined: CombinedConf | None) -> MergedConf:
    return NOTHING if combined is None else combined.conf
