"""The routes of a destination: the merged confs of its MeshHTTPRoutes or MeshTCPRoutes, rule by rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cp.model.checkpoint import pass_checkpoint
from cp.model.names import Destination, Identity, kri
from cp.rules.build import PolicyRules
from cp.rules.destinations import of_service
from cp.rules.matches import matches_hash
from cp.rules.merging import MergedConf, Origin

_BACKENDS = "default.backendRefs"
_TRAFFIC_ROUTE = "TrafficRoute"


@dataclass(frozen=True, slots=True)
class RouteRule:
    """One rule of a route table: the requests that it is for, and what happens to them."""

    matches: Sequence[Mapping[str, Any]]
    """Empty for a TCP route."""

    default: Mapping[str, Any]
    origins: tuple[Origin, ...]
    """The origins that contribute to the rule, the strongest first (record 0039).

    The first is the strongest of all with these matches and owns the rule. Of each other, the rule has some value.
    """

    backends: Origin
    """The origin of the route that set the backends: their references are resolved from its zone and namespace."""

    path: str
    """The path of the rule in the merged conf, under which the origins of its values are found."""

    backends_path: str = ""
    """Where the backends are written in the document of that route; empty if nobody set any."""

    @property
    def origin(self) -> Origin:
        return self.origins[0]

    @property
    def owner(self) -> Identity:
        """The route resource that the rule belongs to."""
        return self.origin.identity

    @property
    def is_in_order(self) -> bool:
        """Whether it is tried where it stands: the rules of a TrafficRoute are, however specific they are."""
        return self.owner.type == _TRAFFIC_ROUTE

    @property
    def contributors(self) -> tuple[Identity, ...]:
        """The route resources whose policies hold for this rule, the strongest first."""
        return tuple(dict.fromkeys(origin.identity for origin in self.origins))

    @property
    def name(self) -> str:
        """A name for each set of contributors: policies hold alike for all rules of one name."""
        return "+".join(map(kri, self.contributors))

    @property
    def hash(self) -> str:
        """The matches as one text."""
        return matches_hash(self.matches)


def routes(rules: PolicyRules, destination: Destination) -> tuple[RouteRule, ...] | None:
    """The rules that hold for a destination, those of the most specific policy first. None: there is no route.

    A route without rules is a route all the same (docs/concepts/routes.md#http-routes-before-tcp-routes).

    A real service has the routes that name it by its identity or its labels, and no others: several services can have
    one display name, so what is written for the `kuma.io/service` of that name is for destinations by tags alone.
    """
    combined = of_service(rules, destination)
    return None if combined is None else routes_of(combined.conf)


def routes_of(conf: MergedConf) -> tuple[RouteRule, ...]:
    """The rules of one merged conf."""
    return tuple(_http(conf)) if "rules" in conf.value else tuple(_tcp(conf))


def _http(conf: MergedConf) -> Iterator[RouteRule]:
    for entry in conf.entries("rules"):
        pass_checkpoint()
        backends = conf.fields.get(f"{entry.path}.{_BACKENDS}")
        source = entry.owner if backends is None else backends.winner.origin
        where = "" if backends is None else backends.winner.path
        origins = tuple(
            origin for origin in reversed(entry.origins) if origin == entry.owner or origin in entry.setters
        )
        yield RouteRule(entry.key or (), entry.value.get("default") or {}, origins, source, entry.path, where)


def _tcp(conf: MergedConf) -> Iterator[RouteRule]:
    backends = conf.fields.get(_BACKENDS)
    if backends is not None:
        owner = backends.winner.origin
        yield RouteRule((), conf.value.get("default") or {}, (owner,), owner, "", backends.winner.path)
