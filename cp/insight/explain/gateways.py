"""Where a call comes in at a builtin gateway: the port, the listener and the hostname, and what holds there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from cp.insight.explain.model import LISTENER, ROUTE, ExplainedListener, ExplainedRow, FieldValue, ValueOrigin
from cp.insight.explain.query import AmbiguousCall, CallQuery
from cp.insight.explain.rows import WrittenMatch, only_row, rows_of_table, taken_of
from cp.insight.explain.values import AppliedConf, acting_values, with_references_resolved
from cp.insight.gateways import (
    GatewayPart,
    can_act,
    chain_of,
    of_chain,
    of_clients,
    of_rows,
    served_rules,
    service_of_row,
    services_of,
    spoken_at,
)
from cp.insight.simulate import Call, Outcome
from cp.model.hosts import ANY_HOST, covering, is_ip
from cp.model.paths import step
from cp.policies import Policies
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules import CombinedConf
from cp.rules.matching.profile import gateway_of, listeners
from cp.translate.gateway import ChainResult, GatewayResult, HostKey, HostResult
from cp.translate.view.gateways import ServedListener, ServedPort
from generators.proxy import Protocol, Route

_USUAL_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
_SPOKEN: Final[Mapping[str, frozenset[str]]] = {
    "http": frozenset({"HTTP"}),
    "https": frozenset({"HTTPS", "TLS"}),
    "tls": frozenset({"TLS", "HTTPS"}),
    "tcp": frozenset({"TCP"}),
}
"""The protocols of listeners that a call with some scheme can mean, if it names no port."""

_CLOSED: Final = 0


@dataclass(frozen=True, slots=True)
class Entrance:
    """What takes a call at a gateway, as far as something does."""

    gateway: Resource
    served: GatewayResult
    port: ServedPort
    listener: ServedListener | None
    chain: ChainResult | None
    host: HostResult | None
    row: Route | None

    @property
    def protocol(self) -> Protocol:
        return spoken_at(self.port, self.row)

    @property
    def part(self) -> GatewayPart | None:
        """The part of the gateway whose confs hold for the call; None if no hostname takes it."""
        if self.host is None or self.chain is None or self.listener is None:
            return None
        row = self.row
        rule = None if row is None else self.host.route_rules.get(row.owner)
        effective = self.host.effective if row is None else self.host.of_routes.get(row.owner, self.host.effective)
        service = None if row is None else service_of_row(row, services_of(self.host))
        return GatewayPart(self.port, self.listener.hostname, effective, self.chain, self.host, row, rule, service)


def proxy_of_gateway(world: World, mesh: str, name: str) -> Resource | None:
    """The first proxy of a MeshGateway, for a call that names the gateway and not one of its proxies."""
    gateway = next(
        (known for known in world.table("MeshGateway", mesh) if name in {known.name, known.display_name}), None
    )
    proxies = (
        proxy for proxy in world.table("Dataplane", mesh) if gateway is not None and gateway_of(world, proxy) is gateway
    )
    return next(proxies, None)


def port_for(dataplane: Resource, served: GatewayResult, call: CallQuery) -> ServedPort:
    """The port that a call means. Raises `AmbiguousCall` if it means none, or one of several."""
    if served.gateway is None:
        raise AmbiguousCall(f"no MeshGateway selects {dataplane.key}", "it listens at no port")
    ports = served.served.ports
    wanted = call.port or _USUAL_PORTS.get(call.scheme)
    fitting = [port for port in ports if port.port == wanted]
    if not fitting and call.port is None:
        fitting = [port for port in ports if port.protocol in _SPOKEN.get(call.scheme, ())]
        fitting = [port for port in fitting if _listener_for(port, call.host)] or fitting
    if len(fitting) == 1:
        return fitting[0]
    listed = ", ".join(f"{port.port} ({port.protocol})" for port in ports) or "none, as `koguma lint` says"
    where = "can come in at several ports" if fitting else "comes in at no port"
    text, hint = f"{call} {where} of MeshGateway {served.gateway.name}", f"its ports are {listed}"
    if not fitting and any(listener.get("port") == wanted for listener in listeners(served.gateway)):
        text = f"{text}: port {wanted} is not served, and `koguma lint` says why"
    raise AmbiguousCall(text, hint)


def call_to(dataplane: Resource, port: ServedPort, call: CallQuery) -> Call:
    """The call as a client of the gateway makes it."""
    address = str(dataplane.spec.networking.address)
    name = "" if is_ip(call.host) else call.host
    host = call.authority if call.host else f"{address}:{port.port}"
    server_name = name if call.is_over_tls else None
    return Call(address, port.port, call.method, call.path, host, call.headers, server_name=server_name)


def entrance(served: GatewayResult, port: ServedPort, call: CallQuery, outcome: Outcome) -> Entrance:
    """What took a call, by what came of it."""
    assert served.gateway is not None  # noqa: S101  # without one there is no port
    if _is_closed(outcome):
        return Entrance(served.gateway, served, port, None, None, None, None)
    host = _host_of(served, port, outcome)
    listener = host.listener if host is not None else _listener_without_host(port, call)
    chain = None if listener is None else chain_of(served, port, listener)
    row = None
    if host is not None:
        row = taken_of(outcome, host.hostname, host.routes) if port.is_http else host.routes[0]
    if port.is_http or listener is None:
        return Entrance(served.gateway, served, port, listener, chain, host, row)
    host = served.hosts.get(HostKey(port.port, listener.hostname))
    row = host.routes[0] if host is not None else None
    return Entrance(served.gateway, served, port, listener, chain, host, row)


def _is_closed(outcome: Outcome) -> bool:
    return outcome.reply is not None and outcome.reply.status == _CLOSED


def _host_of(served: GatewayResult, port: ServedPort, outcome: Outcome) -> HostResult | None:
    """The hostname whose virtual host took the call."""
    host = served.hosts.get(HostKey(port.port, outcome.virtual_host)) if port.is_http else None
    return host if host is not None and host.table == outcome.table else None


def _listener_without_host(port: ServedPort, call: CallQuery) -> ServedListener | None:
    """The listener where no hostname is looked at, or none is found: TLS alone tells clients apart then."""
    if not port.tells_names:
        return None if port.is_http else port.listeners[0]
    return _listener_for(port, call.host)


def _listener_for(port: ServedPort, host: str) -> ServedListener | None:
    listeners = {listener.hostname: listener for listener in port.listeners}
    fitting = covering(host) if host and not is_ip(host) else iter((ANY_HOST,))
    return next((listeners[name] for name in fitting if name in listeners), None)


def explained_listener(
    dataplane: Resource, call: CallQuery, outcome: Outcome, where: Entrance, clients: Iterable[FieldValue]
) -> ExplainedListener:
    listener, host = where.listener, where.host
    return ExplainedListener(
        gateway=where.gateway.key,
        address=str(dataplane.spec.networking.address),
        port=where.port.port,
        protocol=where.port.protocol,
        hostname="" if listener is None else listener.hostname,
        origin=None if listener is None else _origin(where.gateway, listener),
        host=host.hostname if host is not None and where.port.is_http else "",
        reason=_reason(call, outcome, where),
        tls=_tls(where),
        clients=tuple(clients),
    )


def _origin(gateway: Resource, listener: ServedListener) -> ValueOrigin:
    path = step("conf.listeners", listener.index)
    source = gateway.source
    return ValueOrigin(None, LISTENER, gateway.key, path, path, source.file, source.line(path))


def _reason(call: CallQuery, outcome: Outcome, where: Entrance) -> str:
    if _is_closed(outcome) and outcome.reply is not None:
        return outcome.reply.reason
    name = f"`{call.host}`" if call.host else "the address alone"
    if where.listener is None:
        if _listener_for(where.port, call.host) is not None:
            return "the answer comes before a listener is chosen"
        return f"none of its listeners is for {name}"
    if not where.port.is_http and not where.port.tells_names:
        return "a port for TCP has no other"
    hostname = where.listener.hostname if where.host is None else where.host.hostname
    if hostname == call.host:
        return "it has this very hostname"
    narrowest = f"is the narrowest pattern here that {name} fits"
    return "no narrower hostname fits" if hostname == ANY_HOST else f"`{hostname}` {narrowest}"


def _tls(where: Entrance) -> str:
    if not where.port.tells_names:
        return "none is spoken"
    if where.listener is None:
        return ""
    names = ", ".join(certificate.name for certificate in where.listener.certificates)
    return f"it ends here, with {names}" if names else "it is passed on as it is"


def gateway_rows(world: World, where: Entrance, outcome: Outcome) -> tuple[ExplainedRow, ...]:
    """The rows of the hostname, or the only one of a connection."""
    host = where.host
    if host is None:
        return ()
    if where.port.is_http:
        return rows_of_table(world, outcome, host.hostname, host.routes, _written_matches(host))
    rules = host.route_rules.values()
    return tuple(only_row(world, rule) for rule in rules)


def _written_matches(host: HostResult) -> Mapping[int, WrittenMatch]:
    """The match from which each row was made, by index; of none where an answer of 500 takes their place."""
    if host.fragment.failure is not None and not host.fragment.failure.is_kept:
        return {}
    written = (WrittenMatch(match, rule, _pattern(level)) for match, rule, level in served_rules(host))
    return dict(zip(range(len(host.routes)), written, strict=False))


def _pattern(level: CombinedConf) -> str:
    hostnames = level.conf.value.get("hostnames") or (ANY_HOST,)
    return str(hostnames[0])


def confs_at_gateway(policies: Policies, world: World, mesh: str, where: Entrance) -> tuple[AppliedConf, ...]:
    """The confs that apply to a call in its row of the route table and in the listener."""
    part = where.part
    if part is None:
        return ()
    return tuple(with_references_resolved(conf, world, mesh) for conf in confs_of_part(policies, part))


def confs_of_part(policies: Policies, part: GatewayPart) -> Iterator[AppliedConf]:
    for policy in policies:
        conf = part.effective.get(policy.kind.name)
        if conf is None or policy.is_route or policy.is_for_captured_calls or not can_act(policy, part):
            continue
        if part.port.is_http:
            yield AppliedConf(ROUTE, policy, conf, lambda value, policy=policy: of_rows(policy, part, value))  # type: ignore[misc]
        yield AppliedConf(LISTENER, policy, conf, lambda value, policy=policy: of_chain(policy, part, value))  # type: ignore[misc]


def values_for_clients(policies: Policies, world: World, mesh: str, where: Entrance) -> tuple[FieldValue, ...]:
    """What holds for the clients of the gateway that come in there."""
    chain = where.chain
    if chain is None:
        return ()
    part = GatewayPart(where.port, ANY_HOST, chain.entrance, chain)
    confs = confs_of_clients(policies, part)
    return tuple(acting_values(with_references_resolved(conf, world, mesh) for conf in confs))


def confs_of_clients(policies: Policies, part: GatewayPart) -> Iterator[AppliedConf]:
    """The confs of the clients of a gateway, of which `part` is that of all who come in by one chain."""
    for policy in policies:
        conf = part.effective.get(policy.kind.name)
        if conf is not None and can_act(policy, part):
            yield AppliedConf(LISTENER, policy, conf, partial(of_clients, policy, part.chain))
