"""MeshFaultInjection: requests that fail, or are slow, on purpose.

    http                                 one envoy.filters.http.fault for each, of which all act
    http[].abort                         HTTPFault.abort
    http[].abort.httpStatus              FaultAbort.http_status
    http[].abort.percentage              FaultAbort.percentage
    http[].delay                         HTTPFault.delay
    http[].delay.value                   FaultDelay.fixed_delay
    http[].delay.percentage              FaultDelay.percentage
    http[].responseBandwidth             HTTPFault.response_rate_limit
    http[].responseBandwidth.limit       FaultRateLimit.fixed_limit
    http[].responseBandwidth.percentage  FaultRateLimit.percentage

On the side of the service that is called; for a gateway on its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from cp.model.duration import Duration
from cp.model.violation import Violation, at
from cp.policies import Policy
from cp.resources import deprecated
from cp.resources.checks import incomplete, not_negative, percentage, status_code
from cp.resources.kinds import Kind, Meta, PolicyShape
from cp.resources.matches import client_match
from cp.resources.schema import Number, Schema
from cp.resources.spec import Item, PolicySpec, Rule
from cp.resources.targets import GATEWAY, SUBSETS, Targets, includes_gateways, only_with_gateways, only_without_gateways


class Abort(Schema, frozen=True):
    http_status: int | None = None
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
    to: list[Item[Conf]] | None = None
    from_: list[Item[Conf]] | None = msgspec.field(name="from", default=None)
    rules: list[Rule[Conf]] | None = None


TARGETS: Final = Targets(top_system=(GATEWAY,), to=("Mesh",), from_=SUBSETS)

_BANDWIDTH: Final = re.compile(r"[0-9]*\s?[GMk]+bps")


def validate(spec: Spec, meta: Meta) -> Iterator[Violation]:
    return at("spec", _violations(spec, meta))


def _violations(spec: Spec, meta: Meta) -> Iterator[Violation]:
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


def deprecations(spec: Spec, _meta: Meta) -> Iterator[Violation]:
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
    conf = Conf
    targets = TARGETS


POLICY = MeshFaultInjection()
