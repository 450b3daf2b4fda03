"""CircuitBreaker: how much proxies send to a service, and which of its endpoints they leave alone for a while.

interval                                   MeshCircuitBreaker outlierDetection.interval
baseEjectionTime                           MeshCircuitBreaker outlierDetection.baseEjectionTime
maxEjectionPercent                         MeshCircuitBreaker outlierDetection.maxEjectionPercent
splitExternalAndLocalErrors                MeshCircuitBreaker outlierDetection.splitExternalAndLocalErrors
detectors                                  MeshCircuitBreaker outlierDetection.detectors; without any, no detection:
detectors.totalErrors                      totalFailures
detectors.totalErrors.consecutive
detectors.gatewayErrors                    gatewayFailures
detectors.gatewayErrors.consecutive
detectors.localErrors                      localOriginFailures
detectors.localErrors.consecutive
detectors.standardDeviation                successRate
detectors.standardDeviation.requestVolume
detectors.standardDeviation.minimumHosts
detectors.standardDeviation.factor         successRate.standardDeviationFactor
detectors.failure                          failurePercentage
detectors.failure.requestVolume
detectors.failure.minimumHosts
detectors.failure.threshold
thresholds                                 MeshCircuitBreaker connectionLimits
thresholds.maxConnections
thresholds.maxPendingRequests
thresholds.maxRetries
thresholds.maxRequests
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from cp.model.duration import Duration
from cp.model.numbers import Natural
from cp.model.violation import Violation, at
from cp.resources.checks import above_zero, absent, within
from cp.resources.kinds import DocumentMeta, Kind, LegacyConf, LegacyShape, LegacySide
from cp.resources.legacy.nulls import without_nulls
from cp.resources.legacy.placed_conf import as_number, conf_of_fields, value_at
from cp.resources.legacy.selectors import ConnectionPolicy, of_callers
from cp.resources.schema import Schema


class Errors(Schema, frozen=True):
    consecutive: Natural | None = None


class StandardDeviation(Schema, frozen=True):
    request_volume: Natural | None = None
    minimum_hosts: Natural | None = None
    factor: float | None = None


class FailureRate(Schema, frozen=True):
    request_volume: Natural | None = None
    minimum_hosts: Natural | None = None
    threshold: Natural | None = None


class LegacyDetectors(Schema, frozen=True):
    total_errors: Errors | None = None
    gateway_errors: Errors | None = None
    local_errors: Errors | None = None
    standard_deviation: StandardDeviation | None = None
    failure: FailureRate | None = None


class Thresholds(Schema, frozen=True):
    max_connections: Natural | None = None
    max_pending_requests: Natural | None = None
    max_retries: Natural | None = None
    max_requests: Natural | None = None


class CircuitBreakerConf(Schema, frozen=True):
    interval: Duration | None = None
    base_ejection_time: Duration | None = None
    max_ejection_percent: Natural | None = None
    split_external_and_local_errors: bool | None = None
    detectors: LegacyDetectors | None = None
    thresholds: Thresholds | None = None


class CircuitBreaker(ConnectionPolicy, frozen=True):
    conf: CircuitBreakerConf | None = None


def validate(breaker: CircuitBreaker, _meta: DocumentMeta) -> Iterator[Violation]:
    yield from of_callers(breaker)
    yield from at("conf", _conf(breaker.conf or CircuitBreakerConf()))


def _conf(conf: CircuitBreakerConf) -> Iterator[Violation]:
    if conf.detectors in {None, LegacyDetectors()} and conf.thresholds in {None, Thresholds()}:
        yield absent("", "has neither a detector nor a threshold", "set for example `thresholds.maxConnections`")
        return
    yield from above_zero("interval", conf.interval, "leave it out for 10s")
    yield from above_zero("baseEjectionTime", conf.base_ejection_time, "leave it out for 30s")
    yield from within("maxEjectionPercent", conf.max_ejection_percent, 0, 100)
    if conf.detectors == LegacyDetectors():
        yield absent("detectors", "has none in it", "set for example `totalErrors`, or leave it out")
    if conf.detectors is not None:
        yield from at("detectors", _detectors(conf.detectors))
    if conf.thresholds == Thresholds():
        yield absent("thresholds", "has none in it", "set for example `maxConnections`, or leave it out")


def _detectors(detectors: LegacyDetectors) -> Iterator[Violation]:
    factor = detectors.standard_deviation.factor if detectors.standard_deviation else None
    if factor is not None and not 0 < factor < _MOST_FACTOR:
        yield Violation("standardDeviation.factor", f"must be a number above zero, not `{factor}`")
    if detectors.failure is not None:
        yield from within("failure.threshold", detectors.failure.threshold, 0, 100)


_MOST_FACTOR: Final = 2**32 / 1000
_FACTOR: Final = "conf.detectors.standardDeviation.factor"
_OF_LIMITS: Final = MappingProxyType({"connectionLimits": "conf.thresholds"})
_OF_DETECTION: Final = MappingProxyType(
    {
        "outlierDetection.interval": "conf.interval",
        "outlierDetection.baseEjectionTime": "conf.baseEjectionTime",
        "outlierDetection.maxEjectionPercent": "conf.maxEjectionPercent",
        "outlierDetection.splitExternalAndLocalErrors": "conf.splitExternalAndLocalErrors",
        "outlierDetection.detectors.totalFailures": "conf.detectors.totalErrors",
        "outlierDetection.detectors.gatewayFailures": "conf.detectors.gatewayErrors",
        "outlierDetection.detectors.localOriginFailures": "conf.detectors.localErrors",
        "outlierDetection.detectors.successRate.requestVolume": "conf.detectors.standardDeviation.requestVolume",
        "outlierDetection.detectors.successRate.minimumHosts": "conf.detectors.standardDeviation.minimumHosts",
        "outlierDetection.detectors.failurePercentage": "conf.detectors.failure",
    }
)


def confs(data: Mapping[str, Any], _mesh: Mapping[str, Any], _protocol: str) -> Iterator[LegacyConf]:
    has_detectors = bool(value_at(data, "conf.detectors"))
    result = conf_of_fields(data, {**_OF_LIMITS, **(_OF_DETECTION if has_detectors else {})})
    if value_at(data, "conf.detectors.standardDeviation") is not None:
        where = "outlierDetection.detectors.successRate"
        result.put(where, value_at(result.conf, where) or {}, "conf.detectors.standardDeviation")
        result.put(f"{where}.standardDeviationFactor", as_number(value_at(data, _FACTOR)), _FACTOR)
    yield LegacyConf("MeshCircuitBreaker", result.conf, result.places)


CIRCUIT_BREAKER: Final = Kind(
    "CircuitBreaker",
    "circuitbreaker",
    "circuit-breakers",
    CircuitBreaker,
    validate,
    complete=without_nulls,
    legacy=LegacyShape(LegacySide.OUTBOUND, confs),
)
