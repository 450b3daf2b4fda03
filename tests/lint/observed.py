"""Everything that policies come to for the proxies of a mesh, worked out as if nobody had ever looked at it before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import product
from typing import Any

import msgspec

from cp.policies import Policy
from cp.resources.world import World
from cp.rules import InboundRules, PolicyRules, meets
from cp.translate.compiler import CompiledProxy, Compiler
from cp.translate.effective import Effective, Rules, has_hook, rules_of
from cp.translate.fragments import Fragment, build
from cp.translate.gateway import GatewayResult, HostResult
from cp.translate.outbound import OutboundResult
from cp.translate.view.proxies import inbounds
from generators.proxy import Sidecar
from tests.random_mesh.confs import SERVER_NAMES
from tests.random_mesh.words import MISSING, SERVICES, TEAMS
from tests.snapshots import policies

Observed = dict[Any, Any]

ROUTES = {policy.kind.name for policy in policies() if policy.is_route}
PASSTHROUGH = "MeshPassthrough"
ABOUT_TLS = {"MeshTLS", "MeshTrafficPermission"}
"""Without TLS they do nothing."""

BY_IDENTITY = {"MeshAccessLog", "MeshFaultInjection", "MeshRateLimit", "MeshTimeout"}
"""They tell clients apart by what only TLS shows."""


def observed(world: World) -> Observed:
    """What holds where. What a table of routes comes to is in its rows, and not in the confs of the routes."""
    compiler = Compiler(policies())
    proxies = [compiler.proxy(world, dataplane) for dataplane in world if dataplane.type == "Dataplane"]
    return {proxy.dataplane.key: _of_proxy(rules_of(world, proxy.dataplane), proxy) for proxy in proxies}


def _of_proxy(rules: Rules, proxy: CompiledProxy) -> Observed:
    is_client = proxy.proxy_class.caller.is_grpc
    numbered = zip(inbounds(proxy.dataplane), proxy.inbounds, strict=True)
    tags = list(_tags_of_clients())
    of_calls = proxy.proxy_class.rules if is_client else rules
    called = (entry for entry in proxy.proxy_class.outbounds.values() if entry.outbound.names or not is_client)
    entries = list(called)
    whole = proxy.proxy_class.backends.keys() & {entry.address.destination for entry in entries}
    return {
        "outbounds": {
            entry.address: _of_entry(entry, is_whole=entry.address.destination in whole) for entry in entries
        },
        "gateway": _of_gateway(proxy.proxy_class.gateway, proxy),
        "upstreams": {}
        if proxy.proxy_class.gateway is not None
        else {
            destination: _values(upstream.effective)
            if destination in whole
            else [_bodies(part) for part in upstream.fragments]
            for destination, upstream in proxy.proxy_class.backends.items()
        },
        "inbounds": [
            {
                "confs": _without(ABOUT_TLS if reached.inbound.tls is None else set(), _values(reached.effective)),
                "for some": _for_some(rules, index, tags, has_tls=reached.inbound.tls is not None),
            }
            for (index, _), reached in numbered
        ],
        "whole": {
            kind: of.proxy.conf.value
            for kind, of in of_calls.items()
            if of.shape.single and of.proxy and (kind != PASSTHROUGH or proxy.capture_result is not None)
        },
    }


def _of_gateway(gateway: GatewayResult | None, proxy: CompiledProxy) -> Observed:
    """What holds at each hostname, for each of its routes and for clients, of policies that write something there."""
    if gateway is None:
        return {}
    return {
        "hosts": {key: _of_host(host) for key, host in gateway.hosts.items()},
        "clients": {key: _of_kinds(chain.entrance, "entrance") for key, chain in gateway.chains.items()},
        "clusters": {
            key: _of_kinds(upstream.effective, "cluster", "endpoints", "arrange")
            for key, upstream in proxy.proxy_class.backends.items()
        },
    }


def _of_host(host: HostResult) -> Observed:
    """A row by what it does, and not by how it is called: names are in what is served."""
    hooks = ("listener", "route", "routes_with_own_confs")
    return {
        "confs": _of_kinds(host.effective, *hooks),
        "rows": [replace(row, name="", owner="") for row in host.routes],
        "of routes": [_of_kinds(host.of_routes.get(row.owner, host.effective), *hooks) for row in host.routes],
    }


def _of_kinds(effective: Effective, *hooks: str) -> Observed:
    """What holds of the policies that fill in one of some hooks."""
    kinds = {policy.kind.name for policy in policies() if has_hook(policy, *hooks) and _is_about(policy, hooks)}
    return {kind: conf for kind, conf in _values(effective).items() if kind in kinds}


def _is_about(policy: Policy[Any], hooks: tuple[str, ...]) -> bool:
    """Whether a policy is about calls, or the hooks are for clients."""
    shape = policy.kind.policy
    return hooks == ("entrance",) or (shape is not None and shape.to)


def _of_entry(entry: OutboundResult, *, is_whole: bool) -> Observed:
    """Where a listener or a cluster is all that is served of a destination, it counts what is built of it."""
    if not is_whole:
        return {"rows": entry.outbound.routes, "built": _bodies(_of_anybody(entry))}
    return {
        "protocol": entry.outbound.protocol,
        "rows": entry.outbound.routes,
        "confs": _values(entry.effective),
        "of routes": {name: _values(of_route) for name, of_route in entry.of_routes.items()},
    }


def _of_anybody(entry: OutboundResult) -> Fragment:
    """Without what the listener says of its proxy: that depends on every policy of the mesh, whomever it selects."""
    return build(replace(entry.task, site=replace(entry.outbound, sidecar=Sidecar())), policies())


def _bodies(fragment: Fragment) -> list[bytes]:
    return [packed.body for packed in fragment]


def _values(effective: Effective) -> Observed:
    """What passes through a proxy concerns it as a whole, and only where something is redirected to it."""
    return {kind: merged.value for kind, merged in effective.items() if kind not in {*ROUTES, PASSTHROUGH}}


def _without(kinds: AbstractSet[str], confs: Observed) -> Observed:
    return {kind: conf for kind, conf in confs.items() if kind not in kinds}


def _for_some(rules: Rules, index: int, clients: list[Mapping[str, str]], *, has_tls: bool) -> Observed:
    """Who may call at all is seen in what is served alone, as it is nothing that one conf says."""
    confs = {
        kind: _of_clients(of_kind, index, clients, has_tls=has_tls or kind not in BY_IDENTITY)
        for kind, of_kind in rules.items()
        if kind not in ABOUT_TLS
    }
    return {kind: of_clients for kind, of_clients in confs.items() if of_clients}


def _of_clients(rules: PolicyRules, index: int, clients: list[Mapping[str, str]], *, has_tls: bool) -> Observed:
    """What holds for some clients: for each that there could be; and for each match, of which the first counts."""
    confs: Observed = {}
    if rules.shape.from_ and not rules.shape.from_as_rules:
        for tags in clients:
            if (rule := rules.from_(index).of(tags)) is not None:
                confs[tuple(tags.items())] = rule.combined.conf.value
    if has_tls and rules.shape.fields_of_clients:
        return confs | dict(_merged_for_some(rules.inbound(index)))
    for some in rules.inbound(index).for_some if has_tls else ():
        confs.setdefault(msgspec.json.encode(some.match), some.combined.conf.value)
    return confs


def _merged_for_some(rules: InboundRules) -> Iterator[tuple[bytes, Any]]:
    """Of whoever could call and gets something else than all others."""
    for_all = rules.for_all.conf.value if rules.for_all is not None else {}
    for service, server_name in product((*SERVICES, MISSING), (*SERVER_NAMES, "")):
        met = (some for some in rules.for_some if meets(some.match, [f"spiffe://default/{service}"], server_name))
        conf = next((some.combined.conf.value for some in met), for_all)
        if conf != for_all:
            yield f"{service} {server_name}".encode(), conf


def _tags_of_clients() -> Iterator[Mapping[str, str]]:
    """Of clients as there can be: every proxy has some tag."""
    for service, team in product((*SERVICES, ""), (*TEAMS, "")):
        tags = {"kuma.io/service": service, "team": team}
        if service or team:
            yield {name: value for name, value in tags.items() if value}
