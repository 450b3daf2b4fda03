"""Decisions at a builtin gateway: what a conf comes to at one of its parts, and the routes of a listener.

There is no called service, so the hostnames of a listener take the place of a destination.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypeAlias

from cp.insight.effects import Build
from cp.insight.lint.decisions import ConfDecision, Unit, UnitOf, row_of
from cp.model.checkpoint import checked, pass_checkpoint
from cp.model.hosts import ANY_HOST, covering
from cp.model.remembered import remembered
from cp.resources.kinds import Kind
from cp.rules import CombinedConf, PolicyItem, PolicyRules, RouteRule, by_specificity
from cp.rules.gateways import (
    HostRoutes,
    RoutesByHost,
    entries_within,
    hosts_of_listener,
    patterns_of_listeners,
    route_items,
    routes_of_entries,
)
from cp.rules.merging import Conf
from cp.rules.routes import routes_of
from cp.translate.inbound import IsRemoved
from cp.translate.view.gateways import ServedListener, ServedPort

Match: TypeAlias = Mapping[str, Any]


def _nothing(conf: Conf) -> object:
    return conf


@dataclass(frozen=True, slots=True, eq=False)
class GatewayDecision(ConfDecision):
    """A merged conf decides at a part of a gateway."""

    place: str = ""
    """The part, in words."""

    build: Build = _nothing
    """What the policy builds there when it has some conf."""

    @property
    def key(self) -> Hashable:
        return self.kind.name, tuple(map(id, self.levels)), id(self.merged), self.protocol, self.place

    def is_built_differently_without(self, is_removed: IsRemoved) -> bool:
        """Whether what is built of the part would differ without some items."""
        conf = self.merged_without(is_removed)
        return self.build({} if conf is None else conf.value) != self.build(self.merged.value)


@dataclass(frozen=True, eq=False)
class GatewayTableDecision:
    """One kind of routes decides over the hostnames of a listener, and over the rows of each."""

    policy_rules: PolicyRules
    """The rules at the listener."""

    port: ServedPort
    listener: ServedListener
    left_out: AbstractSet[str] = frozenset()
    """The hostnames of the port whose rows exceed a limit, so that they are answered with 500."""

    destination: None = None
    """Always None: on a gateway there is no called service."""

    @property
    def kind(self) -> Kind:
        return self.policy_rules.kind

    @property
    def key(self) -> Hashable:
        hostnames = tuple(listener.hostname for listener in self.port.listeners)
        return "gateway table", id(self.policy_rules), self.listener.hostname, hostnames, self.port.is_http

    @property
    def items(self) -> Iterator[PolicyItem]:
        return route_items(self.policy_rules)

    @remembered
    def rules(self) -> Sequence[RouteRule]:
        """The rules with rows that requests come to."""
        rows = (rule for rows in self.tables.values() for _, rule in rows)
        return tuple({id(rule): rule for rule in rows}.values())

    @property
    def leaves_out(self) -> bool:
        """Whether hostnames of the listener are over a limit: what their rows would be is not computed."""
        return any(host.hostname in self.left_out for host in self._hosts)

    @remembered
    def tables(self) -> Mapping[str, list[tuple[Match, RouteRule]]]:
        """The rows of each hostname of the listener that is served."""
        return self._tables(self._hosts)

    @remembered
    def _hosts(self) -> Sequence[HostRoutes]:
        return tuple(self._hosts_with(self._routes))

    @remembered
    def _entries(self) -> Sequence[tuple[str, PolicyItem]]:
        return tuple(entries_within(self.policy_rules, self.listener.hostname))

    @remembered
    def _routes(self) -> RoutesByHost:
        return routes_of_entries(self.policy_rules, self._entries)

    @remembered
    def _narrower(self) -> AbstractSet[str]:
        """The hostnames of all listeners of the port."""
        return {listener.hostname for listener in self.port.listeners}

    def _hosts_with(self, routes: RoutesByHost) -> Iterator[HostRoutes]:
        """The hostnames of the listener if these were the routes."""
        hostname = self.listener.hostname
        patterns = patterns_of_listeners(self._narrower, routes).get(hostname, ())
        return hosts_of_listener(hostname, patterns, routes)

    def _tables(self, hosts: Iterable[HostRoutes]) -> Mapping[str, list[tuple[Match, RouteRule]]]:
        """The rows of those of the hostnames that are served."""
        served = checked(hosts, pass_checkpoint)
        return {host.hostname: list(self._rows(host.levels)) for host in served if host.hostname not in self.left_out}

    def surely_effective(self, unit_of: UnitOf) -> set[Unit]:
        """The owners of rows: without its owner a row would be missing, or have another owner.

        Another item of the same policy may take its place, and a connection may go where it goes without a route.
        Those with hostnames over a limit count, because the finding about the limit says what they lack.
        """
        if self.leaves_out:
            return {unit_of(item.origin) for _, item in self._entries}
        count = Counter(item.policy.key for item in self.items)
        alone = (rule.origin for rule in self.rules if self.port.is_http and count[rule.origin.policy] == 1)
        return {unit_of(origin) for origin in alone}

    def differs_without(self, is_removed: IsRemoved) -> bool:
        patterns = {pattern for pattern, item in self._entries if is_removed(item)}
        if not patterns:
            return False
        remaining = (entry for entry in self._entries if entry[0] in patterns and not is_removed(entry[1]))
        kept = {pattern: conf for pattern, conf in self._routes.items() if _unnamed(pattern) not in patterns}
        concerned = {pattern or ANY_HOST for pattern in patterns}
        hosts = self._hosts, self._hosts_with({**kept, **routes_of_entries(self.policy_rules, remaining)})
        before, after = (
            {
                hostname: [(match, row_of(rule)) for match, rule in rows]
                for hostname, rows in self._tables(
                    host for host in candidates if not concerned.isdisjoint(covering(host.hostname))
                ).items()
            }
            for candidates in hosts
        )
        return before != after

    def _rows(self, levels: Iterable[CombinedConf]) -> Iterator[tuple[Match, RouteRule]]:
        """The rows until one takes everything. A connection has one row."""
        for level in levels:
            rules = routes_of(level.conf)
            if not self.port.is_http:
                yield from (({}, rule) for rule in rules[:1])
                if rules:
                    return
                continue
            for match, rule in by_specificity(rules):
                yield match, rule
                if takes_everything(match):
                    return


def _unnamed(pattern: str) -> str:
    return "" if pattern == ANY_HOST else pattern


def takes_everything(match: Match) -> bool:
    """Whether a match takes every request."""
    path = match.get("path") or {}
    is_any_path = not path.get("type") or (path["type"], path.get("value")) == ("PathPrefix", "/")
    return is_any_path and not any(match.get(name) for name in ("method", "headers", "queryParams"))
