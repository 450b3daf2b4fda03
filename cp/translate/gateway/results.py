"""What a builtin gateway is served, part by part. Serving and whoever explains it read the same results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias

from cp.model.dependency import ChangeScope, Name
from cp.model.failure import Failure, OverLimit
from cp.model.hosts import ANY_HOST
from cp.model.names import Key
from cp.resources.resource import Resource
from cp.rules import RouteRule
from cp.rules.gateways import HostRoutes
from cp.rules.targets import TargetTables
from cp.translate.effective import Effective, Rules
from cp.translate.fragments import NO_FRAGMENT, Confs, Fragment, RouteConfs, Task
from cp.translate.view.backends import BackendKey
from cp.translate.view.gateways import ServedGateway, ServedListener, ServedPort
from generators.proxy import Route, Sidecar


class HostKey(NamedTuple):
    """A hostname of a port, which is one for all listeners of the port."""

    port: int
    hostname: str


def chain_key(port: ServedPort, listener: ServedListener) -> HostKey:
    """The chain of a listener. Where clients tell no name before they are served, the port has one for all."""
    return HostKey(port.port, listener.hostname if port.tells_names else ANY_HOST)


SwitchedFilters: TypeAlias = Mapping[str, tuple[bytes, ...]]
"""The HTTP filters that some rows switch on, as bytes of Envoy's messages, by the kind of the policy that writes them.
"""

PoliciesByKind: TypeAlias = tuple[tuple[Resource, ...], ...]
"""The policies of several kinds, kind by kind."""


@dataclass(frozen=True, slots=True)
class ClusterRules:
    """The rules for the clusters that calls by some listeners reach."""

    rules: Rules = field(compare=False)
    policies: tuple[Key, ...]
    """The policies that say something of clusters."""


@dataclass(frozen=True, slots=True)
class HostBasis:
    """All on which a hostname depends, beside what its routes and confs refer to."""

    routes: HostRoutes
    policies: PoliciesByKind = field(compare=False)
    """They are compared once for all hostnames of a listener."""

    sidecar: Sidecar
    service: str
    table: str
    mark: str
    """What the names of the clusters end with to which its routes lead."""

    row_mark: str
    """What the names of its rows end with where other listeners of its port have other confs: the listener's name."""

    over: OverLimit | None = None
    """The limit that its rows exceed: then it answers with 500."""


@dataclass(frozen=True, slots=True, eq=False)
class HostResult:
    """One hostname of a gateway's port: its routes, their effective confs, and the virtual host built from them."""

    port: ServedPort
    listener: ServedListener
    hostname: str
    table: str
    """The name of the route table in which it is; empty for TCP."""

    routes: tuple[Route, ...]
    effective: Effective
    """What holds whichever route a call takes."""

    of_routes: Mapping[str, Effective]
    """What holds for calls by some of its routes, by `Route.owner`."""

    route_rules: Mapping[str, RouteRule]
    """The rule of route resources behind each owner."""

    confs: Confs
    own_confs: RouteConfs
    filters: SwitchedFilters
    task: Task
    fragment: Fragment
    uses: tuple[BackendKey, ...]
    depends_on: frozenset[Name]
    basis: HostBasis
    """Of it the port and the listener are not a part: only what follows from them for the hostname."""

    size: int = 0
    """The estimated bytes that it takes of the room of its gateway; 0 if it is left out."""

    @property
    def key(self) -> HostKey:
        return HostKey(self.port.port, self.hostname)

    def with_uses_of(self, last: HostResult | None) -> HostResult:
        """This hostname with what it led to before as well: what is kept of it leads there."""
        return self if last is None else replace(self, uses=tuple(dict.fromkeys((*last.uses, *self.uses))))


def hosts_by_listener(hosts: Iterable[HostResult]) -> Mapping[int, list[HostResult]]:
    of_listener: dict[int, list[HostResult]] = {}
    for host in hosts:
        of_listener.setdefault(host.listener.index, []).append(host)
    return of_listener


@dataclass(frozen=True, slots=True, eq=False)
class ChainResult:
    """What takes the connections of some clients at a port, and what holds for them.

    It knows of confs for single rows as little as it has to, so that it stays as it is when they change (record 0068).
    """

    entrance: Effective
    """What holds for the clients."""

    task: Task
    fragment: Fragment
    basis: tuple[object, ...] = ()
    """All on which the task depends."""


@dataclass(frozen=True, slots=True, eq=False)
class JoinedResult:
    """What was put together from several fragments: a listener, or a route table."""

    task: Task
    fragment: Fragment
    basis: tuple[object, ...]
    """All on which it depends, the fragments among it. Most of it is the same object from World to World."""


@dataclass(frozen=True, slots=True, eq=False)
class GatewayResult:
    """Everything that a builtin gateway is served at its ports."""

    gateway: Resource | None
    """None where no MeshGateway selects the proxy: then nothing is served."""

    served: ServedGateway
    hosts: Mapping[HostKey, HostResult] = field(default_factory=dict)
    chains: Mapping[HostKey, ChainResult] = field(default_factory=dict)
    """By the hostname of the listener, or `*` where all listeners of a port share the chain."""

    listeners: Mapping[int, JoinedResult] = field(default_factory=dict)
    """By port."""

    tables: Mapping[str, JoinedResult] = field(default_factory=dict)
    secrets: tuple[Fragment, ...] = ()
    limits: Fragment = NO_FRAGMENT
    """Of connections. Envoy asks for them before all else, so they are served even if there is none."""

    clusters: Mapping[str, ClusterRules] = field(default_factory=dict)
    """What holds for the clusters to which routes lead, by what their names end with."""

    failures_of_routes: tuple[Failure, ...] = ()
    """Of MeshGatewayRoutes that give no routes, by faults of ours."""

    @property
    def fragments(self) -> Iterator[Fragment]:
        """Those that are served."""
        yield from (joined.fragment for joined in (*self.listeners.values(), *self.tables.values()))
        yield from self.secrets
        yield self.limits

    @property
    def parts(self) -> Iterator[Fragment]:
        """Those of which others are put together."""
        yield from (host.fragment for host in self.hosts.values())
        yield from (chain.fragment for chain in self.chains.values())

    def hosts_by_listener(self) -> Mapping[int, list[HostResult]]:
        """The hostnames of each listener, by its place in the MeshGateway."""
        return hosts_by_listener(self.hosts.values())

    @property
    def uses(self) -> Iterable[BackendKey]:
        """The destinations to which its routes lead: each needs a backend."""
        return dict.fromkeys(key for host in self.hosts.values() for key in host.uses)


NO_GATEWAY: Final = GatewayResult(None, ServedGateway(()))


@dataclass(frozen=True, slots=True)
class Earlier:
    """What a gateway was served in an earlier World, and what has changed since then."""

    result: GatewayResult
    scope: ChangeScope
    """What has changed of all to which routes and confs refer."""

    targets: tuple[TargetTables, ...] = ()
    """To which policies can refer in that World, and in this one."""
