"""MeshTimeout: how long a proxy waits.

    connectionTimeout            Cluster.connect_timeout
    idleTimeout                  HTTP: HttpProtocolOptions.common_http_protocol_options.idle_timeout
                                 TCP: TcpProxy.idle_timeout
    http                         of HTTP alone:
    http.requestTimeout          RouteAction.timeout
    http.streamIdleTimeout       RouteAction.idle_timeout
    http.requestHeadersTimeout   HttpConnectionManager.request_headers_timeout
    http.maxStreamDuration       HttpProtocolOptions.common_http_protocol_options.max_stream_duration
    http.maxConnectionDuration   HttpProtocolOptions.common_http_protocol_options.max_connection_duration

Zero switches a timeout off; an absent one keeps the default. Of an inbound, those in `RouteAction` can differ between
clients over TLS.

On a builtin gateway `to` is written into rows and clusters alone. What a `from` item or a rule says is for its clients:

    idleTimeout                  HttpConnectionManager.common_http_protocol_options.idle_timeout; TcpProxy.idle_timeout
    http.requestTimeout          HttpConnectionManager.request_timeout
    http.streamIdleTimeout       HttpConnectionManager.stream_idle_timeout
    http.requestHeadersTimeout   HttpConnectionManager.request_headers_timeout
    http.maxStreamDuration       HttpConnectionManager.common_http_protocol_options.max_stream_duration
    http.maxConnectionDuration   HttpConnectionManager.common_http_protocol_options.max_connection_duration
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec

from cp.model.duration import Duration
from cp.model.violation import Violation, at
from cp.policies import HTTP_PROTOCOLS, ClientRule, LimitedTime, Policy, TimeLimit, UnsetField, in_spec
from cp.resources.checks import above_zero, absent, not_negative
from cp.resources.deprecated import from_list, top_kind
from cp.resources.kinds import DocumentMeta, Kind, PolicyShape
from cp.resources.matches import client_match
from cp.resources.schema import Schema
from cp.resources.spec import PolicySpec, SpecItem, SpecRule
from cp.resources.targets import GATEWAY, HTTP_ROUTE, PROXIES, SERVICES, TCP_ROUTE, AllowedTargets
from generators.build.client_rows import row_for, show_clients
from generators.envoy.edit import set_duration
from generators.proxy import Protocol

if TYPE_CHECKING:
    from cp.policies import ServedCall
    from generators.drafts import ClusterDraft, ListenerDraft, RouteDraft


class HttpTimeouts(Schema, frozen=True):
    request_timeout: Duration | None = None
    stream_idle_timeout: Duration | None = None
    request_headers_timeout: Duration | None = None
    max_stream_duration: Duration | None = None
    max_connection_duration: Duration | None = None


class Conf(Schema, frozen=True):
    connection_timeout: Duration | None = None
    idle_timeout: Duration | None = None
    http: HttpTimeouts | None = None


class Spec(PolicySpec, frozen=True):
    to: list[SpecItem[Conf]] | None = None
    from_: list[SpecItem[Conf]] | None = msgspec.field(name="from", default=None)
    rules: list[SpecRule[Conf]] | None = None


TARGETS: Final = AllowedTargets(
    top=PROXIES,
    top_system=(GATEWAY, HTTP_ROUTE),
    to=("Mesh", *SERVICES, HTTP_ROUTE, TCP_ROUTE),
    to_gateway=("Mesh", "MeshExternalService", HTTP_ROUTE, TCP_ROUTE),
    from_=("Mesh",),
    http_route=("http.requestTimeout", "http.streamIdleTimeout"),
    tcp_route=("idleTimeout",),
)

_OFF: Final = Duration(0)
_NOT_OF_ONE_CLIENT: Final = (
    "connectionTimeout",
    "idleTimeout",
    "http.requestHeadersTimeout",
    "http.maxStreamDuration",
    "http.maxConnectionDuration",
)
_WITHOUT_LIMIT: Final = ("http.requestHeadersTimeout", "http.maxStreamDuration", "http.maxConnectionDuration")
"""The fields that have no default, neither here nor in Envoy."""


@in_spec
def validate(spec: Spec, meta: DocumentMeta) -> Iterator[Violation]:
    yield from TARGETS.top_violations(spec, meta)
    yield from TARGETS.to_violations(spec)
    yield from spec.needs_one_of("to", "rules", "from")
    yield from spec.rules_alone()
    levels = ["to", "rules"]
    if spec.top.kind not in {GATEWAY, HTTP_ROUTE}:
        levels.append("from")
        yield from TARGETS.from_violations(spec)
    elif spec.from_:
        yield Violation("from", f"cannot be set for a {spec.top.kind}", "set `to`")
    for path, _, conf in spec.confs(*levels):
        yield from at(path, _conf(conf or Conf()))
    for index, rule in enumerate(spec.rules or ()):
        yield from at(f"rules[{index}]", _rule(rule))


def _conf(conf: Conf) -> Iterator[Violation]:
    if conf == Conf():
        yield absent("", "sets no timeout", "set at least one")
        return
    yield from above_zero("connectionTimeout", conf.connection_timeout, "leave it out for 5s")
    yield from not_negative("idleTimeout", conf.idle_timeout)
    if conf.http is not None:
        yield from at("http", _http(conf.http))


def _http(http: HttpTimeouts) -> Iterator[Violation]:
    if http == HttpTimeouts():
        yield absent("", "sets no timeout", "set `requestTimeout`, or leave `http` out")
    yield from not_negative("requestTimeout", http.request_timeout)
    yield from not_negative("streamIdleTimeout", http.stream_idle_timeout)
    yield from not_negative("requestHeadersTimeout", http.request_headers_timeout)
    yield from not_negative("maxStreamDuration", http.max_stream_duration)
    yield from not_negative("maxConnectionDuration", http.max_connection_duration)


def _rule(rule: SpecRule[Conf]) -> Iterator[Violation]:
    matches = rule.matches or []
    for index, match in enumerate(matches):
        yield from at(f"matches[{index}]", client_match(match))
    if rule.default is not None and any(match.spiffe_id for match in matches):
        for path in _set(rule.default, _NOT_OF_ONE_CLIENT):
            hint = "write it in a rule without `spiffeID`"
            yield Violation(f"default.{path}", "cannot be different for each client", hint)


def _set(conf: Conf, paths: tuple[str, ...]) -> Iterator[str]:
    """The paths, of those given, that a conf sets."""
    set_paths = {*conf.wire(), *(f"http.{name}" for name in (conf.http or HttpTimeouts()).wire())}
    return (path for path in paths if path in set_paths)


def deprecations(spec: Spec, _meta: DocumentMeta) -> Iterator[Violation]:
    yield from top_kind(spec)
    yield from from_list(spec)


class MeshTimeout(Policy[Conf]):
    kind = Kind(
        name="MeshTimeout",
        short="mt",
        plural="meshtimeouts",
        schema=Spec,
        validate=validate,
        deprecations=deprecations,
        policy=PolicyShape(to=True, from_=True, rules=True, from_as_rules=True, fields_of_clients=TARGETS.http_route),
    )
    order = 1000
    conf = Conf
    targets = TARGETS
    section_protocols = MappingProxyType({"http": HTTP_PROTOCOLS})
    is_hidden_by_routes = True
    time_limits = (
        TimeLimit(LimitedTime.REQUEST, "http.requestTimeout", HTTP_PROTOCOLS),
        TimeLimit(LimitedTime.REQUEST, "http.maxStreamDuration", HTTP_PROTOCOLS),
        TimeLimit(LimitedTime.SILENCE, "http.streamIdleTimeout", HTTP_PROTOCOLS),
        TimeLimit(LimitedTime.HEADERS, "http.requestHeadersTimeout", HTTP_PROTOCOLS),
        TimeLimit(LimitedTime.CONNECTION_SILENCE, "idleTimeout", frozenset({Protocol.TCP})),
    )
    is_for_grpc_clients = True
    outbound_default = MappingProxyType(
        {
            "connectionTimeout": "5s",
            "idleTimeout": "1h",
            "http": {"requestTimeout": "15s", "streamIdleTimeout": "30m"},
        }
    )
    # Clients of a gateway come from anywhere: who keeps a connection, and says nothing, costs something.
    gateway_default = MappingProxyType({"http": {"streamIdleTimeout": "5s"}})
    entrance_default = MappingProxyType(
        {"idleTimeout": "5m", "http": {"requestHeadersTimeout": "500ms", "streamIdleTimeout": "5s"}}
    )
    # The caller decides how long to wait, so an inbound has no limit of its own on requests.
    inbound_default = MappingProxyType(
        {
            "connectionTimeout": "10s",
            "idleTimeout": "2h",
            "http": {"requestTimeout": "0s", "streamIdleTimeout": "1h"},
        }
    )

    def cluster(self, conf: Conf, draft: ClusterDraft) -> None:
        set_duration(draft.cluster.connect_timeout, conf.connection_timeout)
        if draft.http is None:
            return
        options = draft.http.common_http_protocol_options
        set_duration(options.idle_timeout, conf.idle_timeout)
        if conf.http is not None:
            set_duration(options.max_stream_duration, conf.http.max_stream_duration)
            set_duration(options.max_connection_duration, conf.http.max_connection_duration)

    def listener(self, conf: Conf, draft: ListenerDraft) -> None:
        if draft.is_gateway:  # whose clients have limits of their own
            return
        if draft.tcp is not None:
            set_duration(draft.tcp.idle_timeout, conf.idle_timeout)
        if draft.manager is not None:
            # Between two proxies of the mesh, the caller's proxy closes idle connections.
            set_duration(draft.manager.common_http_protocol_options.idle_timeout, _OFF)
            set_duration(draft.manager.request_headers_timeout, (conf.http or HttpTimeouts()).request_headers_timeout)

    def entrance(self, conf: Conf, draft: ListenerDraft) -> None:
        if draft.tcp is not None:
            set_duration(draft.tcp.idle_timeout, conf.idle_timeout)
        if draft.manager is None:
            return
        http, manager = conf.http or HttpTimeouts(), draft.manager
        options = manager.common_http_protocol_options
        set_duration(options.idle_timeout, conf.idle_timeout)
        set_duration(options.max_stream_duration, http.max_stream_duration)
        set_duration(options.max_connection_duration, http.max_connection_duration)
        set_duration(manager.request_headers_timeout, http.request_headers_timeout)
        set_duration(manager.stream_idle_timeout, http.stream_idle_timeout)
        set_duration(manager.request_timeout, http.request_timeout)

    def route(self, conf: Conf, draft: RouteDraft) -> None:
        if draft.action is not None and conf.http is not None:
            set_duration(draft.action.timeout, conf.http.request_timeout)
            set_duration(draft.action.idle_timeout, conf.http.stream_idle_timeout)

    def clients(self, rules: Sequence[ClientRule[Conf]], draft: ListenerDraft) -> None:
        """Write rows for some clients before the row for all others."""
        for_some = [rule for rule in rules if rule.match]
        show_clients(draft, [rule.match for rule in for_some])
        draft.routes[:0] = [self._row(rule, for_all) for rule in for_some for for_all in draft.routes]

    def _row(self, rule: ClientRule[Conf], for_all: RouteDraft) -> RouteDraft:
        row = row_for(rule.match, for_all)
        self.route(rule.conf, row)
        return row

    def unset_fields(self, call: ServedCall, protocol: Protocol) -> Iterator[UnsetField]:
        del call
        for path in _WITHOUT_LIMIT if protocol.is_http else ():
            yield UnsetField(path, note="no limit")

    def served_time(self, path: str, call: ServedCall) -> Duration | None:
        return {"http.requestTimeout": call.timeout, "http.streamIdleTimeout": call.idle_timeout}.get(path)


POLICY = MeshTimeout()
