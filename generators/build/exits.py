"""Exits: which calls go to where they are sent to, although that is no destination of the proxy's.

What may go to a network goes there whatever it is for; of the rest it is asked for which domain it is. The rules are
tried in order, so a call goes out if any of the exits takes it.

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

LOOP: Final = "loop"
"""The chain for what was sent to the proxy's own port."""

NOBODYS: Final = "nobodys"
"""The chain for virtual addresses that are no destination of the proxy's."""

_Predicate: TypeAlias = Matcher.MatcherList.Predicate

_CONNECT_SECONDS: Final = 10
_LONGEST_WAIT_SECONDS: Final = 1
"""How long a workload may take to say something. Where the other side speaks first, this is what it costs."""

_TCP: Final = "tcp"
_OVER_HTTP: Final = {"http": Protocol.HTTP, "http2": Protocol.HTTP2, "grpc": Protocol.GRPC}
_IN_PLAIN: Final = "raw_buffer"
_PLAIN_HTTP: Final = r"'(http/1\.0|http/1\.1|h2c)'"
"""What Envoy takes a connection for when it has looked into it, in the form in which it says so."""

_NO_EXIT: Final = "No MeshPassthrough lets calls go to this host.\n"
_REFUSED: Final = 503


def let_out(listener: Listener, exits: Iterable[Exit]) -> Iterator[Cluster | RouteConfiguration]:
    """Have a listener that takes everything pass these on, and close everything else."""
    writer = _Writer(listener, sorted(exits, key=_order))
    return writer.written()


def tcp_filter(cluster: str, name: str) -> Filter:
    proxy = TcpProxy(stat_prefix=_stat(name), cluster=cluster)
    return Filter(name=names.TCP_PROXY, typed_config=pack(proxy))


def original_cluster(name: str, protocol: Protocol = Protocol.TCP) -> Cluster:
    """Where a connection was sent to before it was redirected."""
    kind, policy = Cluster.ORIGINAL_DST, Cluster.CLUSTER_PROVIDED
    cluster = Cluster(name=name, type=kind, lb_policy=policy, alt_stat_name=_stat(name))
    cluster.connect_timeout.seconds = _CONNECT_SECONDS
    if (options := http_options(protocol)) is not None:
        cluster.typed_extension_protocol_options[names.HTTP_OPTIONS].CopyFrom(pack(options))
    return cluster


def _order(exit_: Exit) -> tuple[object, ...]:
    """Networks before domains, the smaller before the larger, one port before all, what is read before what is not."""
    bits = ipaddress.ip_network(exit_.network).prefixlen if exit_.network else -1
    labels = exit_.domain.count(".") + (not exit_.domain.startswith("*"))
    return -bits, -labels, exit_.port == 0, exit_.protocol == _TCP, exit_


class _Writer:
    """Writes the rules of one listener, and the filter chains that they lead to."""

    def __init__(self, listener: Listener, exits: list[Exit]) -> None:
        self._listener, self._exits = listener, exits
        self._clusters: dict[str, Cluster] = {}
        self._tables: dict[str, RouteConfiguration] = {}

    def written(self) -> Iterator[Cluster | RouteConfiguration]:
        self._look_into()
        for chain in self._listener.filter_chains:
            self._rule(chain.name, list(_as_predicates(chain)))
            chain.ClearField("filter_chain_match")
        for exit_ in self._exits:
            if not (exit_.domain and exit_.protocol in _OVER_HTTP):
                self._rule(self._chain(exit_), list(_conditions(exit_)))
        domains = [one for one in self._exits if one.domain and one.protocol in _OVER_HTTP]
        for port in sorted({one.port for one in domains}, key=lambda port: (port == 0, port)):
            conditions = [*([_port(port)] if port else []), *_in_plain_http()]
            self._rule(self._of_domains(port, [one for one in domains if one.port in {port, 0}]), conditions)
        yield from self._clusters.values()
        yield from self._tables.values()

    def _rule(self, chain: str, conditions: list[_Predicate]) -> None:
        rule = self._listener.filter_chain_matcher.matcher_list.matchers.add()
        if len(conditions) == 1:
            rule.predicate.CopyFrom(conditions[0])
        else:
            rule.predicate.and_matcher.predicate.extend(conditions)
        rule.on_match.action.name = chain
        rule.on_match.action.typed_config.CopyFrom(pack(StringValue(value=chain)))

    def _chain(self, exit_: Exit) -> str:
        """The chain of what may go to a network, or of what is not read: the same for all of it."""
        protocol = _OVER_HTTP.get(exit_.protocol)
        if protocol is None:
            return self._added(_TCP, tcp_filter(self._cluster(Protocol.TCP), self._listener.name))
        table = f"{self._listener.name}:{exit_.protocol}"
        if table not in self._tables:
            self._tables[table] = RouteConfiguration(name=table)
            self._host(self._tables[table], "*", protocol)
        return self._added(exit_.protocol, self._manager(table))

    def _of_domains(self, port: int, exits: list[Exit]) -> str:
        """The chain of what is read and may go to some domains: by the host that each request names."""
        name = f"http:{port or '*'}"
        table = self._tables[f"{self._listener.name}:{name}"] = RouteConfiguration(name=f"{self._listener.name}:{name}")
        table.ignore_port_in_host_matching = True
        for domain, protocol in {one.domain: _OVER_HTTP[one.protocol] for one in reversed(exits)}.items():
            self._host(table, domain, protocol)
        if all("*" not in host.domains for host in table.virtual_hosts):
            refusal = table.virtual_hosts.add(name="refused", domains=["*"]).routes.add(name="refused")
            refusal.match.prefix = "/"
            refusal.direct_response.status = _REFUSED
            refusal.direct_response.body.inline_string = _NO_EXIT
        return self._added(name, self._manager(table.name))

    def _host(self, table: RouteConfiguration, domain: str, protocol: Protocol) -> None:
        route = table.virtual_hosts.add(name=domain, domains=[domain]).routes.add(name=domain)
        route.match.prefix = "/"
        route.route.cluster = self._cluster(protocol)
        route.route.timeout.SetInParent()

    def _cluster(self, protocol: Protocol) -> str:
        """That of what is not read has the listener's own name."""
        name = self._listener.name
        if protocol.is_http:
            name = f"{name}:{'http' if protocol is Protocol.HTTP else 'http2'}"
        self._clusters.setdefault(name, original_cluster(name, protocol))
        return name

    def _manager(self, table: str) -> Filter:
        manager = HttpConnectionManager(stat_prefix=_stat(table))
        manager.rds.route_config_name = table
        over_ads(manager.rds.config_source)
        manager.upgrade_configs.add(upgrade_type="websocket")
        manager.http_filters.add(name=names.ROUTER, typed_config=pack(Router()))
        return Filter(name=names.CONNECTION_MANAGER, typed_config=pack(manager))

    def _added(self, name: str, last: Filter) -> str:
        if all(chain.name != name for chain in self._listener.filter_chains):
            self._listener.filter_chains.append(FilterChain(name=name, filters=[last]))
        return name

    def _look_into(self) -> None:
        """Look into connections, but only where something depends on it: it means to wait for the workload."""
        by_name = {one.port for one in self._exits if one.protocol == "tls"}
        by_host = {one.port for one in self._exits if one.protocol in _OVER_HTTP}
        silent = {one.port for one in self._exits if one.protocol == "mysql"}
        self._filter(names.TLS_INSPECTOR, TlsInspector(), by_name, silent)
        self._filter(names.HTTP_INSPECTOR, HttpInspector(), by_host, silent)
        if by_name or by_host:
            self._listener.listener_filters_timeout.seconds = _LONGEST_WAIT_SECONDS
            self._listener.continue_on_listener_filters_timeout = True

    def _filter(self, name: str, message: Message, ports: set[int], silent: set[int]) -> None:
        if not ports:
            return
        added = self._listener.listener_filters.add(name=name, typed_config=pack(message))
        if 0 not in ports:
            added.filter_disabled.not_match.CopyFrom(_any_of(ports))
        elif silent - ports:
            added.filter_disabled.CopyFrom(_any_of(silent - ports))


def _any_of(ports: Iterable[int]) -> ListenerFilterChainMatchPredicate:
    every = [ListenerFilterChainMatchPredicate() for _ in ports]
    for one, port in zip(every, sorted(ports), strict=True):
        one.destination_port_range.start, one.destination_port_range.end = port, port + 1
    if len(every) == 1:
        return every[0]
    found = ListenerFilterChainMatchPredicate()
    found.or_match.rules.extend(every)
    return found


def _as_predicates(chain: FilterChain) -> Iterator[_Predicate]:
    """By what a chain is chosen that was there before."""
    match = chain.filter_chain_match
    if match.HasField("destination_port"):
        yield _port(match.destination_port.value)
    for one in match.prefix_ranges:
        yield _in_network(f"{one.address_prefix}/{one.prefix_len.value}")


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
    found = _input("application_protocol", ApplicationProtocolInput())
    found.single_predicate.value_match.safe_regex.regex = _PLAIN_HTTP
    found.single_predicate.value_match.safe_regex.google_re2.SetInParent()
    yield found


def _port(port: int) -> _Predicate:
    return _input("port", DestinationPortInput(), str(port))


def _server_name(domain: str) -> _Predicate:
    """Of `*.` every name that ends as it does; of `*` every name."""
    found = _input("server_name", ServerNameInput())
    if domain.startswith("*"):
        ending = domain.removeprefix("*")
        found.single_predicate.value_match.safe_regex.google_re2.SetInParent()
        found.single_predicate.value_match.safe_regex.regex = f".+{ending.replace('.', '[.]')}"
    else:
        found.single_predicate.value_match.exact = domain
    return found


def _in_network(network: str) -> _Predicate:
    found = _input("network", DestinationIPInput())
    address, _, bits = network.partition("/")
    ranges = Ip(stat_prefix="network")
    ranges.cidr_ranges.add(address_prefix=address).prefix_len.value = int(bits)
    found.single_predicate.custom_match.name = "network"
    found.single_predicate.custom_match.typed_config.CopyFrom(pack(ranges))
    return found


def _input(name: str, message: Message, exact: str = "") -> _Predicate:
    found = Matcher.MatcherList.Predicate()
    found.single_predicate.input.name = name
    found.single_predicate.input.typed_config.CopyFrom(pack(message))
    if exact:
        found.single_predicate.value_match.exact = exact
    return found


def _stat(name: str) -> str:
    return name.replace(":", "_")
