"""FaultInjection: requests of some clients that fail, or are slow, on purpose.

delay                          MeshFaultInjection http[].delay
delay.percentage
delay.value
abort                          MeshFaultInjection http[].abort
abort.percentage
abort.httpStatus
responseBandwidth              MeshFaultInjection http[].responseBandwidth
responseBandwidth.percentage
responseBandwidth.limit
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cp.model.duration import Duration
from cp.model.numbers import Natural
from cp.model.violation import Violation, at
from cp.resources.checks import absent, must_be_set, not_negative, status_code
from cp.resources.dataplane import PROTOCOL_TAG
from cp.resources.kinds import DocumentMeta, Kind, LegacyConf, LegacyShape, LegacySide
from cp.resources.legacy.nulls import without_nulls
from cp.resources.legacy.placed_conf import as_number
from cp.resources.legacy.selectors import ConnectionPolicy, Selector, of_called
from cp.resources.schema import Schema


class LegacyDelay(Schema, frozen=True):
    percentage: float | None = None
    value: Duration | None = None


class LegacyAbort(Schema, frozen=True):
    percentage: float | None = None
    http_status: Natural | None = None


class LegacyResponseBandwidth(Schema, frozen=True):
    percentage: float | None = None
    limit: str | None = None


class FaultInjectionConf(Schema, frozen=True):
    delay: LegacyDelay | None = None
    abort: LegacyAbort | None = None
    response_bandwidth: LegacyResponseBandwidth | None = None


class FaultInjection(ConnectionPolicy, frozen=True):
    conf: FaultInjectionConf | None = None


_OF_HTTP: Final = ("http", "http2", "grpc")
_BANDWIDTH: Final = re.compile(r"([0-9]*)\s?([gmkGMK])bps")
_UNITS: Final = {"g": "G", "m": "M", "k": "k"}


def validate(injection: FaultInjection, _meta: DocumentMeta) -> Iterator[Violation]:
    yield from of_called(injection)
    for index, selector in enumerate(injection.destinations or ()):
        yield from at(f"destinations[{index}].match", _protocol(selector))
    yield from at("conf", _conf(injection.conf or FaultInjectionConf()))


def _protocol(selector: Selector) -> Iterator[Violation]:
    protocol = (selector.match or {}).get(PROTOCOL_TAG)
    hint = f"one of {', '.join(_OF_HTTP)}"
    if protocol is None:
        yield absent("", f"must have `{PROTOCOL_TAG}`", hint)
    elif protocol not in _OF_HTTP:
        yield Violation(f'["{PROTOCOL_TAG}"]', f"`{protocol}` has no requests that could fail", hint)


def _conf(conf: FaultInjectionConf) -> Iterator[Violation]:
    """An empty fault is none."""
    delay, abort = conf.delay or LegacyDelay(), conf.abort or LegacyAbort()
    bandwidth = conf.response_bandwidth or LegacyResponseBandwidth()
    if not (delay.wire() or abort.wire() or bandwidth.wire()):
        yield absent("", "does nothing", "give it `delay`, `abort` or `responseBandwidth`")
    if delay != LegacyDelay():
        yield from at("delay", _delay(delay))
    if abort != LegacyAbort():
        yield from at("abort", _abort(abort))
    if bandwidth != LegacyResponseBandwidth():
        yield from at("responseBandwidth", _bandwidth(bandwidth))


def _delay(delay: LegacyDelay) -> Iterator[Violation]:
    yield from _share(delay.percentage)
    if delay.value is None:
        yield absent("value", "must be set", "for example `5s`")
    yield from not_negative("value", delay.value)


def _abort(abort: LegacyAbort) -> Iterator[Violation]:
    yield from _share(abort.percentage)
    if abort.http_status is None:
        yield absent("httpStatus", "must be set", "for example `503`")
    yield from status_code("httpStatus", abort.http_status)


def _bandwidth(bandwidth: LegacyResponseBandwidth) -> Iterator[Violation]:
    yield from _share(bandwidth.percentage)
    yield from must_be_set("limit", bandwidth.limit, "for example `50 kbps`")
    if bandwidth.limit and _BANDWIDTH.fullmatch(bandwidth.limit) is None:
        yield Violation("limit", f"`{bandwidth.limit}` is not a bandwidth", "write for example `50 kbps`")


def _share(percentage: float | None) -> Iterator[Violation]:
    if percentage is None:
        yield absent("percentage", "must be set", "of how many requests out of a hundred")
    elif not 0 <= percentage <= 100:  # noqa: PLR2004  # percent
        yield Violation("percentage", f"must be 0 to 100 percent, not `{percentage}`")


def confs(data: Mapping[str, Any], _mesh: Mapping[str, Any], _protocol: str) -> Iterator[LegacyConf]:
    conf = data.get("conf") or {}
    fault: dict[str, Any] = {}
    for name in ("delay", "abort", "responseBandwidth"):
        if conf.get(name):
            fault[name] = {**conf[name], "percentage": as_number(conf[name].get("percentage"))}
    if "responseBandwidth" in fault:
        fault["responseBandwidth"]["limit"] = _with_unit(fault["responseBandwidth"]["limit"])
    yield LegacyConf("MeshFaultInjection", {"http": [fault]} if fault else {}, {"http": "conf"})


def _with_unit(limit: str) -> str:
    """A bandwidth as MeshFaultInjection writes it, whose units have the case that they have elsewhere."""
    written = _BANDWIDTH.fullmatch(limit)
    return limit if written is None else f"{written[1]} {_UNITS[written[2].lower()]}bps"


FAULT_INJECTION: Final = Kind(
    "FaultInjection",
    "faultinjection",
    "fault-injections",
    FaultInjection,
    validate,
    complete=without_nulls,
    legacy=LegacyShape(LegacySide.INBOUND, confs, holds_alone=False),
)
