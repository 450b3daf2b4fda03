"""MeshRateLimit: how many requests and connections an inbound or a gateway takes, and what it answers to the others.

local                                   each proxy counts for itself
local.http                              envoy.filters.http.local_ratelimit
local.http.disabled                     no filter
local.http.requestRate                  LocalRateLimit.token_bucket
local.http.requestRate.num              TokenBucket.max_tokens, tokens_per_fill
local.http.requestRate.interval         TokenBucket.fill_interval
local.http.onRateLimit                  of the answer:
local.http.onRateLimit.status           LocalRateLimit.status; 429 if left out, or no error
local.http.onRateLimit.headers          LocalRateLimit.response_headers_to_add
local.http.onRateLimit.headers.set      overwriting
local.http.onRateLimit.headers.set[].name
local.http.onRateLimit.headers.set[].value
local.http.onRateLimit.headers.add      appending
local.http.onRateLimit.headers.add[].name
local.http.onRateLimit.headers.add[].value
local.tcp                               envoy.filters.network.local_ratelimit, where no HTTP is spoken
local.tcp.disabled                      no filter
local.tcp.connectionRate                LocalRateLimit.token_bucket
local.tcp.connectionRate.num            TokenBucket.max_tokens, tokens_per_fill
local.tcp.connectionRate.interval       TokenBucket.fill_interval
atCaller                                local.http in the listener of who calls: a RateLimit of an ExternalService

All connections to an inbound share one bucket. Of several rules with matches a client is held to the most specific.

On a builtin gateway, of `to` items: local.http stands in Route.typed_per_filter_config, so each row of a route table
has a bucket of its own, and local.tcp in the chain of a TCP listener. The filter of the listener does nothing alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec
from envoy.config.listener.v3.listener_components_pb2 import Filter
from envoy.extensions.filters.http.local_ratelimit.v3.local_rate_limit_pb2 import LocalRateLimit as HttpLimit
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import HttpFilter
from envoy.extensions.filters.network.local_ratelimit.v3.local_rate_limit_pb2 import LocalRateLimit as ConnectionLimit

from cp.model.duration import Duration
from cp.model.numbers import Natural
from cp.model.violation import Violation, at
from cp.policies import HTTP_PROTOCOLS, ClientRule, Policy, in_spec
from cp.resources import deprecated
from cp.resources.checks import FIRST_ERROR, above_zero, absent, status_of_answer
from cp.resources.headers import MOST_IN_ANSWER, HeaderChanges, header_changes, most_in_answer
from cp.resources.kinds import DocumentMeta, Kind, PolicyShape
from cp.resources.matches import client_match
from cp.resources.schema import Schema
from cp.resources.spec import PolicySpec, SpecItem, SpecRule
from cp.resources.targets import (
    GATEWAY,
    HTTP_ROUTE,
    AllowedTargets,
    includes_gateways,
    only_with_gateways,
    only_without_gateways,
)
from generators.envoy.clients import by_tags, first_fitting, without_tags
from generators.envoy.edit import add_header, literal, pack, set_duration
from generators.proxy import Protocol

if TYPE_CHECKING:
    from envoy.config.core.v3.base_pb2 import RuntimeFractionalPercent
    from envoy.type.v3.token_bucket_pb2 import TokenBucket

    from generators.drafts import ListenerDraft, RouteDraft


class Rate(Schema, frozen=True):
    num: Natural = 0
    interval: Duration | None = None


class OnRateLimit(Schema, frozen=True):
    status: Natural | None = None
    headers: HeaderChanges | None = None


class LocalHttp(Schema, frozen=True):
    disabled: bool | None = None
    request_rate: Rate | None = None
    on_rate_limit: OnRateLimit | None = None


class LocalTcp(Schema, frozen=True):
    disabled: bool | None = None
    connection_rate: Rate | None = None


class Local(Schema, frozen=True):
    http: LocalHttp | None = None
    tcp: LocalTcp | None = None


class Conf(Schema, frozen=True):
    local: Local | None = None


class EffectiveConf(Conf, frozen=True):
    """What a conf can come to: a RateLimit of an ExternalService acts where that is called."""

    at_caller: bool | None = None


class Spec(PolicySpec, frozen=True):
    to: list[SpecItem[Conf]] | None = None
    from_: list[SpecItem[Conf]] | None = msgspec.field(name="from", default=None)
    rules: list[SpecRule[Conf]] | None = None


TARGETS: Final = AllowedTargets(top_system=(GATEWAY, HTTP_ROUTE), to=("Mesh",), from_=("Mesh",))

_SHORTEST_INTERVAL: Final = Duration.parse("50ms")
_ALL: Final = 100
_HTTP_FILTER: Final = "envoy.filters.http.local_ratelimit"
_STATISTICS: Final = "rate_limit"
_NETWORK_FILTER: Final = "envoy.filters.network.local_ratelimit"


@in_spec
def validate(spec: Spec, meta: DocumentMeta) -> Iterator[Violation]:
    yield from TARGETS.violations(spec, meta)
    yield from spec.rules_alone()
    if includes_gateways(spec.top):
        yield from only_without_gateways(spec, "from", "rules")
    else:
        yield from only_with_gateways(spec, "to")
    for path, _, conf in spec.confs():
        yield from at(path, _conf(conf or Conf()))
    for index, rule in enumerate(spec.rules or ()):
        yield from at(f"rules[{index}]", _rule(rule))


def _conf(conf: Conf) -> Iterator[Violation]:
    if conf.local is None:
        yield absent("local", "must be set", "give it `http` or `tcp`")
        return
    if conf.local == Local():
        yield absent("local", "limits nothing", "give it `http` or `tcp`")
    if conf.local.http is not None:
        yield from at("local.http", _http(conf.local.http))
    if conf.local.tcp is not None:
        yield from at("local.tcp", _tcp(conf.local.tcp))


def _http(http: LocalHttp) -> Iterator[Violation]:
    if http == LocalHttp():
        yield absent("", "sets nothing", "set `requestRate`")
    if http.request_rate is not None:
        yield from at("requestRate", _rate(http.request_rate))
    if http.on_rate_limit is not None:
        yield from at("onRateLimit", _answer(http.on_rate_limit))


def _answer(answer: OnRateLimit) -> Iterator[Violation]:
    yield from status_of_answer("status", answer.status)
    if answer.headers is not None:
        yield from at("headers", header_changes(answer.headers))
        yield from most_in_answer("headers", len(answer.headers.set or ()) + len(answer.headers.add or ()))


def _tcp(tcp: LocalTcp) -> Iterator[Violation]:
    if tcp == LocalTcp():
        yield absent("", "sets nothing", "set `connectionRate`")
    if tcp.connection_rate is not None:
        yield from at("connectionRate", _rate(tcp.connection_rate))


def _rate(rate: Rate) -> Iterator[Violation]:
    yield from above_zero("num", rate.num, "to let nothing through, permit it to nobody: MeshTrafficPermission")
    if rate.interval is None:
        yield absent("interval", "must be set", "for example `1s`")
    elif rate.interval <= _SHORTEST_INTERVAL:
        yield Violation("interval", f"must be longer than {_SHORTEST_INTERVAL}, not `{rate.interval}`")


def _rule(rule: SpecRule[Conf]) -> Iterator[Violation]:
    matches = rule.matches or []
    for index, match in enumerate(matches):
        yield from at(f"matches[{index}]", client_match(match))
    local = rule.default.local if rule.default is not None else None
    if local is not None and local.tcp is not None and any(match.spiffe_id for match in matches):
        hint = "write it in a rule without `spiffeID`"
        yield Violation("default.local.tcp", "cannot be different for each client", hint)


def deprecations(spec: Spec, _meta: DocumentMeta) -> Iterator[Violation]:
    yield from deprecated.top_kind(spec)
    yield from deprecated.from_list(spec)
    for path, _, conf in spec.confs():
        http = conf.local.http if conf is not None and conf.local is not None else None
        status = http.on_rate_limit.status if http is not None and http.on_rate_limit is not None else None
        if status is not None and status < FIRST_ERROR:
            where = f"spec.{path}.local.http.onRateLimit.status"
            yield Violation(where, f"`{status}` is deprecated: it does not tell of an error", "write 400 or higher")


class MeshRateLimit(Policy[EffectiveConf]):
    kind = Kind(
        name="MeshRateLimit",
        short="mrl",
        plural="meshratelimits",
        schema=Spec,
        validate=validate,
        deprecations=deprecations,
        policy=PolicyShape(to=True, from_=True, rules=True, from_as_rules=True),
    )
    order = 900
    switches = MappingProxyType({"local.http.disabled": True, "local.tcp.disabled": True})
    is_for_calls_of_gateways = True
    conf = EffectiveConf
    targets = TARGETS
    section_protocols = MappingProxyType({"local.http": HTTP_PROTOCOLS, "local.tcp": frozenset({Protocol.TCP})})
    section_settings = frozenset({"atCaller"})

    def listener(self, conf: EffectiveConf, draft: ListenerDraft) -> None:
        is_caller = conf.at_caller is True and not draft.is_gateway
        if draft.manager is not None and (draft.is_inbound or is_caller):
            draft.http_filters.extend(_http_filters(conf))
        elif draft.tcp is not None and (draft.is_inbound or draft.is_gateway):
            draft.network_filters.extend(_network_filters(conf))

    def switched_filters(self, conf: EffectiveConf) -> Sequence[HttpFilter]:
        without_limit = HttpFilter(name=_HTTP_FILTER, typed_config=pack(HttpLimit(stat_prefix=_STATISTICS)))
        return [without_limit] if _http_limit(conf) is not None else []

    def route(self, conf: EffectiveConf, draft: RouteDraft) -> None:
        limit = _http_limit(conf)
        if draft.is_gateway and limit is not None:
            draft.message.typed_per_filter_config[_HTTP_FILTER].CopyFrom(pack(limit))

    def clients(self, rules: Sequence[ClientRule[EffectiveConf]], draft: ListenerDraft) -> None:
        """Replaces the filters that `listener` wrote for all clients: those are the last of the rules."""
        if draft.manager is not None:
            draft.http_filters = [http_filter for http_filter in draft.http_filters if http_filter.name != _HTTP_FILTER]
            filters = [(rule.match, _http_filters(rule.conf)) for rule in rules]
            draft.http_filters.extend(first_fitting(filters, over_tls=draft.over_tls))
        if draft.table is not None and any(by_tags(rule.match) for rule in rules):
            without_tags(draft.table)


def _http_filters(conf: Conf) -> list[HttpFilter]:
    limit = _http_limit(conf)
    return [HttpFilter(name=_HTTP_FILTER, typed_config=pack(limit))] if limit is not None else []


def _http_limit(conf: Conf) -> HttpLimit | None:
    http = conf.local.http if conf.local is not None else None
    if http is None or http.disabled or not _is_limit(http.request_rate):
        return None
    limit = HttpLimit(stat_prefix=_STATISTICS)
    _fill(limit.token_bucket, http.request_rate)
    _always(limit.filter_enabled, "local_rate_limit_enabled")
    _always(limit.filter_enforced, "local_rate_limit_enforced")
    if http.on_rate_limit is not None:
        _write_answer(limit, http.on_rate_limit)
    return limit


def _network_filters(conf: Conf) -> list[Filter]:
    tcp = conf.local.tcp if conf.local is not None else None
    if tcp is None or tcp.disabled or not _is_limit(tcp.connection_rate):
        return []
    limit = ConnectionLimit(stat_prefix="tcp_rate_limit")
    _fill(limit.token_bucket, tcp.connection_rate)
    return [Filter(name=_NETWORK_FILTER, typed_config=pack(limit))]


def _is_limit(rate: Rate | None) -> bool:
    """A rate can have lost its interval to a `null` of another policy."""
    return rate is not None and rate.num > 0 and rate.interval is not None


def _fill(bucket: TokenBucket, rate: Rate | None) -> None:
    if rate is not None:
        bucket.max_tokens = bucket.tokens_per_fill.value = rate.num
        set_duration(bucket.fill_interval, rate.interval)


def _always(field: RuntimeFractionalPercent, key: str) -> None:
    field.runtime_key = key
    field.default_value.numerator = _ALL


def _write_answer(limit: HttpLimit, answer: OnRateLimit) -> None:
    if answer.status is not None and answer.status >= FIRST_ERROR:
        limit.status.code = answer.status  # type: ignore[assignment]  # an enum on the wire, a number in documents
    changes = answer.headers or HeaderChanges()
    headers = [(header, False) for header in changes.set or ()] + [(header, True) for header in changes.add or ()]
    for header, append in headers[:MOST_IN_ANSWER]:
        add_header(limit.response_headers_to_add, header.name, literal(header.value), append=append)


POLICY = MeshRateLimit()
