"""Exits: the calls to the outside that a proxy passes on, written into a catch-all listener.

An exit allows calls to a network or to a domain. For a network the address alone decides. For a domain Envoy has to
parse the beginning of the connection: the server name of TLS, or the host of each HTTP request. The listener has a
list of rules; the first rule that matches a connection chooses its filter chain.

Who makes an `Exit` has checked it: it has either a network or a domain, a domain is spoken to by TLS or HTTP, and for
mysql the port is known. Like all generators this module does no I/O. Of the mesh it knows one name: where no exit
takes a request, the answer tells of MeshPassthrough.

See record 0035.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_components_pb2 import Filter, FilterChain, ListenerFilterChainMatchPredicate
from envoy.config.route.v3.route_pb2 import RouteConfiguration
from envoy.extensions.filters.http.router.v3.router_pb2 import Router
from envoy.extensions.filters.listener.http_inspector.v3.http_inspector_pb2 import HttpInspector
from envoy.extensions.filters.listener.tls_inspector.v3.tls_inspector_pb2 import TlsInspector
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy
from envoy.extensions.matching.common_inputs.network.v3.network_inputs_pb2 import (
    ApplicationProtocolInput,
    DestinationIPInput,
    DestinationPortInput,
    ServerNameInput,
    TransportProtocolInput,
)
from envoy.extensions.matching.input_matchers.ip.v3.ip_pb2 import Ip
from google.protobuf.wrappers_pb2 import StringValue
from xds.type.matcher.v3.matcher_pb2 import Matcher

from generators.build.clusters import http_options
from generators.envoy import names
from generators.envoy.edit import over_ads, pack
from generators.proxy import Exit, Protocol

if TYPE_CHECKING:
    from envoy.config.listener.v3.listener_pb2 import Listener
    from google.protobuf.message import Message

_Predicate: TypeAlias = Matcher.MatcherList.Predicate

_CONNECT_SECONDS: Final = 10
_LONGEST_WAIT_SECONDS: Final = 1
"""How long Envoy waits for the workload's first bytes: a delay for each connection on which the server speaks first."""

_TCP: Final = "tcp"
_OVER_HTTP: Final = {"http": Protocol.HTTP, "http2": Protocol.HTTP2, "grpc": Protocol.GRPC}
_IN_PLAIN: Final = "raw_buffer"
_PLAIN_HTTP: Final = r"'(http/1\.0|http/1\.1|h2c)'"
"""The protocols that the HTTP inspector detects, in the notation of `ApplicationProtocolInput`: quoted."""

_NO_EXIT: Final = "No MeshPassthrough lets calls go to this host.\n"
"""Whoever reads this knows the policy, and not its exits."""

_UNAVAILABLE: Final = 503


def add_exits(listener: Listener, exits: Iterable[Exit]) -> list[Cluster | RouteConfiguration]:
    """Make a catch-all listener pass on the calls that an exit allows. Returns the clusters and route tables it needs.

    HTTP requests to other hosts are answered with 503 where some host is allowed. All other connections are closed.
    """
    writer = _Writer(listener, sorted(exits, key=_order))
    writer.write()
    return writer.resources


def tcp_filter(cluster: str, statistic: str) -> Filter:
    """The last filter of a chain that passes bytes on to a cluster. `statistic` is the prefix of its statistics."""
    proxy = TcpProxy(stat_prefix=_stat(statistic), cluster=cluster)
    return Filter(name=names.TCP_PROXY, typed_config=pack(proxy))


def original_address_cluster(name: str, protocol: Protocol = Protocol.TCP) -> Cluster:
    """A cluster that leads to the address to which the connection was sent before it was redirected."""
    kind, policy = Cluster.ORIGINAL_DST, Cluster.CLUSTER_PROVIDED
    cluster = Cluster(name=name, type=kind, lb_policy=policy, alt_stat_name=_stat(name))
    cluster.connect_timeout.seconds = _CONNECT_SECONDS
    if (options := http_options(protocol)) is not None:
        cluster.typed_extension_protocol_options[names.HTTP_OPTIONS].CopyFrom(pack(options))
    return cluster


def _order(exit_: Exit) -> tuple[object, ...]:
    """Specific exits first: networks before domains, small before large, one port before all ports, TCP last."""
    bits = ipaddress.ip_network(exit_.network).prefixlen if exit_.network else -1
    labels = exit_.domain.count(".") + (not exit_.domain.startswith("*"))
    return -bits, -labels, exit_.port == 0, exit_.protocol == _TCP, exit_


class _Writer:
    """Writes the rules of one listener and the filter chains that they choose."""

    def __init__(self, listener: Listener, exits: list[Exit]) -> None:
        self._listener, self._exits = listener, exits
        self._clusters: dict[str, Cluster] = {}
        self._tables: dict[str, RouteConfiguration] = {}

    @property
    def resources(self) -> list[Cluster | RouteConfiguration]:
        return [*self._clusters.values(), *self._tables.values()]

    def write(self) -> None:
        self._add_inspectors()
        # With a matcher the rules alone choose a chain. `transparent` has added chains with matches of their own, for
        # the listener's own port and for virtual addresses without a destination: these matches become the first rules.
        for chain in self._listener.filter_chains:
            self._add_rule(chain.name, list(_match_predicates(chain)))
            chain.ClearField("filter_chain_match")
        for exit_ in self._exits:
            if not (exit_.domain and exit_.protocol in _OVER_HTTP):
                self._add_rule(self._chain(exit_), list(_conditions(exit_)))
        # Last: one rule for each port with domains, since the host is known only when a request has been parsed.
        domains = [exit_ for exit_ in self._exits if exit_.domain and exit_.protocol in _OVER_HTTP]
        for port in sorted({exit_.port for exit_ in domains}, key=lambda port: (port == 0, port)):
            conditions = [*([_port(port)] if port else []), *_in_plain_http()]
            self._add_rule(
                self._chain_of_domains(port, [exit_ for exit_ in domains if exit_.port in {port, 0}]), conditions
            )

    def _add_rule(self, chain: str, conditions: list[_Predicate]) -> None:
        rule = self._listener.filter_chain_matcher.matcher_list.matchers.add()
        if len(conditions) == 1:
            rule.predicate.CopyFrom(conditions[0])
        else:
            rule.predicate.and_matcher.predicate.extend(conditions)
        rule.on_match.action.name = chain
        rule.on_match.action.typed_config.CopyFrom(pack(StringValue(value=chain)))

    def _chain(self, exit_: Exit) -> str:
        """The name of the chain of an exit that is not for an HTTP domain. TCP, TLS and MySQL share one."""
        protocol = _OVER_HTTP.get(exit_.protocol)
        if protocol is None:
            return self._add_chain(_TCP, tcp_filter(self._cluster(Protocol.TCP), self._listener.name))
        table = f"{self._listener.name}:{exit_.protocol}"
        if table not in self._tables:
            self._tables[table] = RouteConfiguration(name=table)
            self._add_host(self._tables[table], "*", protocol)
        return self._add_chain(exit_.protocol, self._manager(table))

    def _chain_of_domains(self, port: int, exits: list[Exit]) -> str:
        """The name of the chain that routes HTTP requests on a port by the host that they name."""
        name = f"http:{port or '*'}"
        table = self._tables[f"{self._listener.name}:{name}"] = RouteConfiguration(name=f"{self._listener.name}:{name}")
        table.ignore_port_in_host_matching = True
        # Of several exits for one domain the first, which is the most specific one, sets the protocol. In a dict the
        # last one would, so they are read in reverse.
        for domain, protocol in {exit_.domain: _OVER_HTTP[exit_.protocol] for exit_ in reversed(exits)}.items():
            self._add_host(table, domain, protocol)
        if all("*" not in host.domains for host in table.virtual_hosts):
            route = table.virtual_hosts.add(name="refused", domains=["*"]).routes.add(name="refused")
            route.match.prefix = "/"
            route.direct_response.status = _UNAVAILABLE
            route.direct_response.body.inline_string = _NO_EXIT
        return self._add_chain(name, self._manager(table.name))

    def _add_host(self, table: RouteConfiguration, domain: str, protocol: Protocol) -> None:
        route = table.virtual_hosts.add(name=domain, domains=[domain]).routes.add(name=domain)
        route.match.prefix = "/"
        route.route.cluster = self._cluster(protocol)
        route.route.timeout.SetInParent()

    def _cluster(self, protocol: Protocol) -> str:
        """The name of the cluster for a protocol. The TCP cluster has the listener's own name."""
        name = self._listener.name
        if protocol.is_http:
            name = f"{name}:{'http' if protocol is Protocol.HTTP else 'http2'}"
        self._clusters.setdefault(name, original_address_cluster(name, protocol))
        return name

    def _manager(self, table: str) -> Filter:
        manager = HttpConnectionManager(stat_prefix=_stat(table))
        manager.rds.route_config_name = table
        over_ads(manager.rds.config_source)
        manager.upgrade_configs.add(upgrade_type="websocket")
        manager.http_filters.add(name=names.ROUTER, typed_config=pack(Router()))
        return Filter(name=names.CONNECTION_MANAGER, typed_config=pack(manager))

    def _add_chain(self, name: str, last: Filter) -> str:
        if all(chain.name != name for chain in self._listener.filter_chains):
            self._listener.filter_chains.append(FilterChain(name=name, filters=[last]))
        return name

    def _add_inspectors(self) -> None:
        """Parse the beginning of connections, on those ports alone where a rule needs it: Envoy waits for the bytes."""
        tls_ports = {exit_.port for exit_ in self._exits if exit_.protocol == "tls"}
        http_ports = {exit_.port for exit_ in self._exits if exit_.protocol in _OVER_HTTP}
        # On ports of MySQL the server speaks first: a workload that waits for it sends nothing to inspect.
        server_first_ports = {exit_.port for exit_ in self._exits if exit_.protocol == "mysql"}
        self._add_inspector(names.TLS_INSPECTOR, TlsInspector(), tls_ports, server_first_ports)
        self._add_inspector(names.HTTP_INSPECTOR, HttpInspector(), http_ports, server_first_ports)
        if tls_ports or http_ports:
            self._listener.listener_filters_timeout.seconds = _LONGEST_WAIT_SECONDS
            self._listener.continue_on_listener_filters_timeout = True

    def _add_inspector(self, name: str, message: Message, ports: set[int], server_first_ports: set[int]) -> None:
        """Inspect connections to some ports.

        Port 0 stands for all ports but those on which the server speaks first, unless these are among `ports` too.
        """
        if not ports:
            return
        inspector = self._listener.listener_filters.add(name=name, typed_config=pack(message))
        if 0 not in ports:
            inspector.filter_disabled.not_match.CopyFrom(_any_of(ports))
        elif server_first_ports - ports:
            inspector.filter_disabled.CopyFrom(_any_of(server_first_ports - ports))


def _any_of(ports: Iterable[int]) -> ListenerFilterChainMatchPredicate:
    rules = [ListenerFilterChainMatchPredicate() for _ in ports]
    for rule, port in zip(rules, sorted(ports), strict=True):
        rule.destination_port_range.start, rule.destination_port_range.end = port, port + 1
    if len(rules) == 1:
        return rules[0]
    disjunction = ListenerFilterChainMatchPredicate()
    disjunction.or_match.rules.extend(rules)
    return disjunction


def _match_predicates(chain: FilterChain) -> Iterator[_Predicate]:
    """The match of a filter chain, as predicates of a rule."""
    match = chain.filter_chain_match
    if match.HasField("destination_port"):
        yield _port(match.destination_port.value)
    for prefix in match.prefix_ranges:
        yield _in_network(f"{prefix.address_prefix}/{prefix.prefix_len.value}")


def _conditions(exit_: Exit) -> Iterator[_Predicate]:
    if exit_.network:
        yield _in_network(exit_.network)
    if exit_.port:
        yield _port(exit_.port)
    if exit_.protocol == "tls":
        yield _input("transport_protocol", TransportProtocolInput(), "tls")
        if exit_.domain:
            yield _server_name(exit_.domain)
    elif exit_.protocol in _OVER_HTTP:
        yield from _in_plain_http()


def _in_plain_http() -> Iterator[_Predicate]:
    yield _input("transport_protocol", TransportProtocolInput(), _IN_PLAIN)
    http_predicate = _input("application_protocol", ApplicationProtocolInput())
    http_predicate.single_predicate.value_match.safe_regex.regex = _PLAIN_HTTP
    http_predicate.single_predicate.value_match.safe_regex.google_re2.SetInParent()
    yield http_predicate


def _port(port: int) -> _Predicate:
    return _input("port", DestinationPortInput(), str(port))


def _server_name(domain: str) -> _Predicate:
    """`*.example.com` matches every name that ends in `.example.com`, and `*` every name."""
    predicate = _input("server_name", ServerNameInput())
    if domain.startswith("*"):
        ending = domain.removeprefix("*")
        predicate.single_predicate.value_match.safe_regex.google_re2.SetInParent()
        predicate.single_predicate.value_match.safe_regex.regex = f".+{ending.replace('.', '[.]')}"
    else:
        predicate.single_predicate.value_match.exact = domain
    return predicate


def _in_network(network: str) -> _Predicate:
    predicate = _input("network", DestinationIPInput())
    address, _, bits = network.partition("/")
    ranges = Ip(stat_prefix="network")
    ranges.cidr_ranges.add(address_prefix=address).prefix_len.value = int(bits)
    predicate.single_predicate.custom_match.name = "network"
    predicate.single_predicate.custom_match.typed_config.CopyFrom(pack(ranges))
    return predicate


def _input(name: str, message: Message, exact: str = "") -> _Predicate:
    predicate = Matcher.MatcherList.Predicate()
    predicate.single_predicate.input.name = name
    predicate.single_predicate.input.typed_config.CopyFrom(pack(message))
    if exact:
        predicate.single_predicate.value_match.exact = exact
    return predicate


def _stat(name: str) -> str:
    return name.replace(":", "_")
