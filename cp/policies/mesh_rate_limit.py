"""MeshRateLimit: how many requests and connections an inbound takes, and what it answers to the others.

local                                   each proxy counts for itself
local.http                              envoy.filters.http.local_ratelimit
local.http.disabled                     no filter
local.http.requestRate                  LocalRateLimit.token_bucket
local.http.requestRate.num              TokenBucket.max_tokens, tokens_per_fill
local.http.requestRate.interval         TokenBucket.fill_interval
local.http.onRateLimit                  of the answer:
local.http.onRateLimit.status           LocalRateLimit.status; 429 if left out
local.http.onRateLimit.headers          LocalRateLimit.response_headers_to_add
local.http.onRateLimit.headers.set      overwriting
local.http.onRateLimit.headers.set[].name
local.http.onRateLimit.headers.set[].value
local.http.onRateLimit.headers.add      appending
local.http.onRateLimit.headers.add[].name
local.http.onRateLimit.headers.add[].value
local.tcp                               envoy.filters.network.local_ratelimit
local.tcp.disabled                      no filter
local.tcp.connectionRate                LocalRateLimit.token_bucket
local.tcp.connectionRate.num            TokenBucket.max_tokens, tokens_per_fill
local.tcp.connectionRate.interval       TokenBucket.fill_interval
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from cp.model.duration import Duration
from cp.model.violation import Violation, at
from cp.policies import Policy
from cp.resources import deprecated
from cp.resources.checks import above_zero, absent
from cp.resources.headers import HeaderChanges, header_changes
from cp.resources.kinds import Kind, Meta, PolicyShape
from cp.resources.matches import client_match
from cp.resources.schema import Natural, Schema
from cp.resources.spec import Item, PolicySpec, Rule
from cp.resources.targets import (
    GATEWAY,
    HTTP_ROUTE,
    Targets,
    includes_gateways,
    only_with_gateways,
    only_without_gateways,
)


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


class Spec(PolicySpec, frozen=True):
    to: list[Item[Conf]] | None = None
    from_: list[Item[Conf]] | None = msgspec.field(name="from", default=None)
    rules: list[Rule[Conf]] | None = None


TARGETS: Final = Targets(top_system=(GATEWAY, HTTP_ROUTE), to=("Mesh",), from_=("Mesh",))

_SHORTEST_INTERVAL: Final = Duration.parse("50ms")
_FIRST_ERROR: Final = 400


def validate(spec: Spec, meta: Meta) -> Iterator[Violation]:
    return at("spec", _violations(spec, meta))


def _violations(spec: Spec, meta: Meta) -> Iterator[Violation]:
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
        yield from above_zero("onRateLimit.status", http.on_rate_limit.status, "leave it out for 429")
        if http.on_rate_limit.headers is not None:
            yield from at("onRateLimit.headers", header_changes(http.on_rate_limit.headers))


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


def _rule(rule: Rule[Conf]) -> Iterator[Violation]:
    matches = rule.matches or []
    for index, match in enumerate(matches):
        yield from at(f"matches[{index}]", client_match(match))
    local = rule.default.local if rule.default is not None else None
    if local is not None and local.tcp is not None and any(match.spiffe_id for match in matches):
        hint = "write it in a rule without `spiffeID`"
        yield Violation("default.local.tcp", "cannot be different for each client", hint)


def deprecations(spec: Spec, _meta: Meta) -> Iterator[Violation]:
    yield from deprecated.top_kind(spec)
    yield from deprecated.from_list(spec)
    for path, _, conf in spec.confs():
        http = conf.local.http if conf is not None and conf.local is not None else None
        status = http.on_rate_limit.status if http is not None and http.on_rate_limit is not None else None
        if status is not None and status < _FIRST_ERROR:
            where = f"spec.{path}.local.http.onRateLimit.status"
            yield Violation(where, f"`{status}` is deprecated: it does not tell of an error", "write 400 or higher")


class MeshRateLimit(Policy[Conf]):
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
    conf = Conf
    targets = TARGETS


POLICY = MeshRateLimit()
