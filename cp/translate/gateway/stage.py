"""A gateway as a whole: its hostnames first, then the chains that read them, then what is put together from both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from cp.policies import Policies
from cp.resources.caller import Caller
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.effective import Rules
from cp.translate.fragments import Fragment, FragmentCache, Task
from cp.translate.gateway.chains import ChainsBuilder
from cp.translate.gateway.hostnames import HostnamesBuilder
from cp.translate.gateway.joining import JoinBuilder
from cp.translate.gateway.listener_rules import RulesOfListeners
from cp.translate.gateway.policies import GatewayPolicies
from cp.translate.gateway.proxy import GatewayProxy
from cp.translate.gateway.results import (
    NO_GATEWAY,
    ChainResult,
    Earlier,
    GatewayResult,
    HostKey,
    HostResult,
    JoinedResult,
)
from cp.translate.view.gateways import gateway_of_proxy
from generators.proxy import GatewayLimits


class GatewayStage:
    """From the rules of a builtin gateway to what it is served."""

    def __init__(self, policies: Policies, fragments: FragmentCache) -> None:
        self._fragments = fragments
        self._policies = GatewayPolicies(policies)
        self.routing = frozenset(self._policies.of_routes)
        """The kinds of route policies."""

    def result(
        self, world: World, dataplane: Resource, rules: Rules, caller: Caller, earlier: Earlier | None
    ) -> GatewayResult:
        """What a gateway is served."""
        gateway = gateway_of_proxy(world, dataplane)
        if gateway is None:
            return replace(NO_GATEWAY, limits=self._fragments.get(Task(GatewayLimits())))
        return _result(GatewayProxy(self._policies, self._fragments, world, dataplane, gateway, rules, caller, earlier))


def _result(proxy: GatewayProxy) -> GatewayResult:
    ports, rules = proxy.served.ports, RulesOfListeners(proxy)
    build_hosts, build_chains, join = HostnamesBuilder(proxy, rules), ChainsBuilder(proxy, rules), JoinBuilder.of(proxy)
    hosts = build_hosts.of_ports(ports)
    chains = {key: chain for port in ports for key, chain in build_chains.of_port(port, hosts[port.port])}
    tables = {name: table for port in ports for name, table in join.tables(port, hosts[port.port])}
    by_key = {host.key: host for of_port in hosts.values() for host in of_port}
    return GatewayResult(
        gateway=proxy.gateway,
        served=proxy.served,
        hosts=dict(_with_uses_of_what_is_kept(proxy, by_key, chains, tables)),
        chains=chains,
        listeners={port.port: join.listener(port, chains) for port in ports},
        tables=tables,
        secrets=_secrets(proxy),
        limits=_limits(proxy),
        clusters=rules.clusters,
        failures_of_routes=tuple(rules.failures),
    )


def _with_uses_of_what_is_kept(
    proxy: GatewayProxy,
    hosts: Mapping[HostKey, HostResult],
    chains: Mapping[HostKey, ChainResult],
    tables: Mapping[str, JoinedResult],
) -> Iterator[tuple[HostKey, HostResult]]:
    """The hostnames. Where a chain or a table is an earlier one, they need the clusters to which that leads."""
    ports = {key.port for key, chain in chains.items() if not chain.fragment.is_made}
    kept = {name for name, table in tables.items() if not table.fragment.is_made}
    for key, host in hosts.items():
        is_kept = key.port in ports or host.table in kept
        yield key, host.with_uses_of(proxy.before.hosts.get(key)) if is_kept else host


def _secrets(proxy: GatewayProxy) -> tuple[Fragment, ...]:
    before = proxy.before
    if before.served is proxy.served and all(secret.is_made for secret in before.secrets):
        return before.secrets
    listeners = (listener for port in proxy.served.ports for listener in port.listeners)
    needed = dict.fromkeys(certificate for listener in listeners for certificate in listener.certificates)
    return tuple(proxy.fragments.get(Task(certificate)) for certificate in needed)


def _limits(proxy: GatewayProxy) -> Fragment:
    limited = (port for port in proxy.served.ports if port.connection_limit)
    limits = tuple((proxy.listener_name(port), port.connection_limit) for port in limited)
    return proxy.fragments.get(Task(GatewayLimits(limits)))
