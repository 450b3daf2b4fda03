"""MeshFaultInjection: requests that fail, or are slow, on purpose.

    http                                 one envoy.filters.http.fault for each, of which all act
    http[].abort                         HTTPFault.abort
    http[].abort.httpStatus              FaultAbort.http_status
    http[].abort.percentage              FaultAbort.percentage
    http[].delay                         HTTPFault.delay
    http[].delay.value                   FaultDelay.fixed_delay
    http[].delay.percentage              FaultDelay.percentage
    http[].responseBandwidth             HTTPFault.response_rate_limit
    http[].responseBandwidth.limit       FaultRateLimit.fixed_limit, in whole KiB/s
    http[].responseBandwidth.percentage  FaultRateLimit.percentage

On the side of the service that is called. On a builtin gateway, of `to` items, in Route.typed_per_filter_config: the
filters of the listener do nothing by themselves. Clients tell what tags they have in the header
`x-kuma-tags`, as soon as some policy of the mesh asks for that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec
from envoy.extensions.filters.http.fault.v3.fault_pb2 import HTTPFault
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import HttpFilter

from cp.model.duration import Duration
from cp.model.numbers import Integer
from cp.model.violation import Violation, at
from cp.policies import HTTP_PROTOCOLS, ClientRule, Policy, in_spec
from cp.resources import deprecated
from cp.resources.checks import incomplete, not_negative, percentage, status_code
from cp.resources.kinds import DocumentMeta, Kind, PolicyShape
from cp.resources.matches import client_match
from cp.resources.schema import Number, Schema
from cp.resources.spec import PolicySpec, SpecItem, SpecRule
from cp.resources.targets import (
    GATEWAY,
    SUBSETS,
    AllowedTargets,
    includes_gateways,
    only_with_gateways,
    only_without_gateways,
)
from cp.rules.matching import in_force, target_of
from generators.envoy.clients import by_tags, first_fitting, without_tags
from generators.envoy.edit import pack, set_duration, set_percentage

if TYPE_CHECKING:
    from cp.resources.world import Table
    from generators.drafts import ListenerDraft, RouteDraft


class Abort(Schema, frozen=True):
    http_status: Integer | None = None
    percentage: Number | None = None


class Delay(Schema, frozen=True):
    value: Duration | None = None
    percentage: Number | None = None


class ResponseBandwidth(Schema, frozen=True):
    limit: str = ""
    percentage: Number | None = None


class Fault(Schema, frozen=True):
    abort: Abort | None = None
    delay: Delay | None = None
    response_bandwidth: ResponseBandwidth | None = None


class Conf(Schema, frozen=True):
    http: list[Fault] | None = None


class Spec(PolicySpec, frozen=True):
    to: list[SpecItem[Conf]] | None = None
    from_: list[SpecItem[Conf]] | None = msgspec.field(name="from", default=None)
    rules: list[SpecRule[Conf]] | None = None


TARGETS: Final = AllowedTargets(top_system=(GATEWAY,), to=("Mesh",), from_=SUBSETS)

_BANDWIDTH: Final = re.compile(r"([0-9]*)\s?([GMk]+)bps")
_BITS: Final = {"k": 10**3, "M": 10**6, "G": 10**9}
_BITS_OF_KIB: Final = 8 * 1024
_FASTEST: Final = 2**32
_MOST_DIGITS: Final = 12
_FILTER: Final = "envoy.filters.http.fault"


@in_spec
def validate(spec: Spec, meta: DocumentMeta) -> Iterator[Violation]:
    yield from TARGETS.violations(spec, meta)
    yield from spec.rules_without("from")
    if includes_gateways(spec.top):
        yield from only_without_gateways(spec, "from")
    else:
        yield from only_with_gateways(spec, "to")
    for path, _, conf in spec.confs():
        for index, fault in enumerate((conf or Conf()).http or ()):
            yield from at(f"{path}.http[{index}]", _fault(fault))
    for index, rule in enumerate(spec.rules or ()):
        for position, match in enumerate(rule.matches or ()):
            yield from at(f"rules[{index}].matches[{position}]", client_match(match))


def _fault(fault: Fault) -> Iterator[Violation]:
    if fault == Fault():
        yield incomplete("", "does nothing", "give it `abort`, `delay` or `responseBandwidth`")
    if fault.abort is not None:
        yield from status_code("abort.httpStatus", fault.abort.http_status or 0)
        yield from _share("abort.percentage", fault.abort.percentage)
    if fault.delay is not None:
        yield from not_negative("delay.value", fault.delay.value)
        if fault.delay.value is None:
            yield incomplete("delay.value", hint="for example `5s`")
        yield from _share("delay.percentage", fault.delay.percentage)
    if fault.response_bandwidth is not None:
        yield from _limit("responseBandwidth.limit", fault.response_bandwidth.limit)
        yield from _share("responseBandwidth.percentage", fault.response_bandwidth.percentage)


def _share(path: str, value: float | str | None) -> Iterator[Violation]:
    if value is None:
        yield incomplete(path, hint="of how many requests out of a hundred")
    yield from percentage(path, value)


def _limit(path: str, value: str) -> Iterator[Violation]:
    if _BANDWIDTH.fullmatch(value) is None:
        yield Violation(
            path, f"`{value}` is not a bandwidth" if value else "must be set", "write for example `50 kbps`"
        )


def deprecations(spec: Spec, _meta: DocumentMeta) -> Iterator[Violation]:
    yield from deprecated.top_kind(spec)
    yield from deprecated.from_list(spec, "write its items as `rules` that match clients by `spiffeID`")


class MeshFaultInjection(Policy[Conf]):
    kind = Kind(
        name="MeshFaultInjection",
        short="mfi",
        plural="meshfaultinjections",
        schema=Spec,
        validate=validate,
        deprecations=deprecations,
        policy=PolicyShape(to=True, from_=True, rules=True),
        customary=((r"(default\.http)\[(\d+)\]\.(abort|delay|responseBandwidth)", r"\1.\3[\2]"),),
    )
    order = 800
    is_for_calls_of_gateways = True
    conf = Conf
    targets = TARGETS
    section_protocols = MappingProxyType({"http": HTTP_PROTOCOLS})

    def sidecar_fields(self, table: Table) -> frozenset[str]:
        items = (item for policy in in_force(table) for item in policy.data.get("from") or ())
        by_client = any(target_of(item.get("targetRef")).kind != "Mesh" for item in items)
        return frozenset({"tags"}) if by_client else frozenset()

    def listener(self, conf: Conf, draft: ListenerDraft) -> None:
        if draft.is_inbound and draft.manager is not None:
            draft.http_filters.extend(_filters(conf))

    def switched_filters(self, conf: Conf) -> Sequence[HttpFilter]:
        return [HttpFilter(name=name, typed_config=pack(HTTPFault())) for name, _ in _named(conf)]

    def route(self, conf: Conf, draft: RouteDraft) -> None:
        if draft.is_gateway:
            for name, fault in _named(conf):
                draft.message.typed_per_filter_config[name].CopyFrom(pack(_message(fault)))

    def clients(self, rules: Sequence[ClientRule[Conf]], draft: ListenerDraft) -> None:
        """`from` and `rules` are two lists of rules. The first rule of each that matches a client acts.

        Rules of one policy alone, as a FaultInjection has, act beside all others.
        """
        if draft.manager is None or draft.table is None:
            return
        merged = [rule for rule in rules if not rule.policy]
        from_items = [rule for rule in merged if "tags" in rule.match]
        of_rules = [rule for rule in merged if "tags" not in rule.match]
        by_themselves = [[rule] for rule in rules if rule.policy]
        for_all = [http_filter for http_filter in draft.http_filters if http_filter.name == _FILTER]
        draft.http_filters = [http_filter for http_filter in draft.http_filters if http_filter.name != _FILTER]
        for client_rules in (from_items, of_rules, *by_themselves):
            filters = [(rule.match, _filters(rule.conf)) for rule in client_rules]
            draft.http_filters.extend(first_fitting(filters, over_tls=draft.over_tls))
        if not of_rules:  # of which the faults for all clients would be the last
            draft.http_filters.extend(for_all)
        if any(by_tags(rule.match) for rule in rules):
            without_tags(draft.table)


def _filters(conf: Conf) -> list[HttpFilter]:
    faults = (_message(fault) for fault in conf.http or ())
    return [HttpFilter(name=_FILTER, typed_config=pack(fault)) for fault in faults]


def _named(conf: Conf) -> Iterator[tuple[str, Fault]]:
    """The faults with names of their own, by which a row switches on its own."""
    for index, fault in enumerate(conf.http or ()):
        yield f"{_FILTER}.{index}" if index else _FILTER, fault


def _message(fault: Fault) -> HTTPFault:
    message = HTTPFault()
    if fault.abort is not None and fault.abort.http_status:
        message.abort.http_status = fault.abort.http_status
        set_percentage(message.abort.percentage, fault.abort.percentage)
    if fault.delay is not None and fault.delay.value is not None and fault.delay.value > Duration():
        set_duration(message.delay.fixed_delay, fault.delay.value)
        set_percentage(message.delay.percentage, fault.delay.percentage)
    if fault.response_bandwidth is not None:
        message.response_rate_limit.fixed_limit.limit_kbps = _kib_per_second(fault.response_bandwidth.limit)
        set_percentage(message.response_rate_limit.percentage, fault.response_bandwidth.percentage)
    return message


def _kib_per_second(limit: str) -> int:
    """A bandwidth, written in bits per second, in Envoy's unit. Envoy cannot limit to less than 1 KiB per second."""
    bandwidth = _BANDWIDTH.fullmatch(limit)
    if bandwidth is None or len(bandwidth[1].lstrip("0")) > _MOST_DIGITS:
        return _FASTEST
    bits = int(bandwidth[1] or 0) * _BITS[bandwidth[2][-1]]
    return max(1, min(_FASTEST, round(bits / _BITS_OF_KIB)))


POLICY = MeshFaultInjection()
