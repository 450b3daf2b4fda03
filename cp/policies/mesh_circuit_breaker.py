"""MeshCircuitBreaker: how much a proxy sends to a service, and which of its endpoints it leaves alone for a while.

connectionLimits                              Cluster.circuit_breakers.thresholds, of default priority
connectionLimits.maxConnections               Thresholds.max_connections
connectionLimits.maxConnectionPools           Thresholds.max_connection_pools
connectionLimits.maxPendingRequests           Thresholds.max_pending_requests
connectionLimits.maxRetries                   Thresholds.max_retries
connectionLimits.maxRequests                  Thresholds.max_requests
outlierDetection                              Cluster.outlier_detection
outlierDetection.disabled                     none of what follows
outlierDetection.interval                     OutlierDetection.interval
outlierDetection.baseEjectionTime             OutlierDetection.base_ejection_time
outlierDetection.maxEjectionPercent           OutlierDetection.max_ejection_percent
outlierDetection.splitExternalAndLocalErrors  OutlierDetection.split_external_local_origin_errors
outlierDetection.healthyPanicThreshold        Cluster.common_lb_config.healthy_panic_threshold
outlierDetection.detectors                    enforcing_…: 100 for each that is there, 0 for the others
outlierDetection.detectors.totalFailures
outlierDetection.detectors.totalFailures.consecutive               consecutive_5xx
outlierDetection.detectors.gatewayFailures
outlierDetection.detectors.gatewayFailures.consecutive             consecutive_gateway_failure
outlierDetection.detectors.localOriginFailures
outlierDetection.detectors.localOriginFailures.consecutive         consecutive_local_origin_failure
outlierDetection.detectors.successRate
outlierDetection.detectors.successRate.minimumHosts                success_rate_minimum_hosts
outlierDetection.detectors.successRate.requestVolume               success_rate_request_volume
outlierDetection.detectors.successRate.standardDeviationFactor     success_rate_stdev_factor, times 1000
outlierDetection.detectors.failurePercentage
outlierDetection.detectors.failurePercentage.minimumHosts          failure_percentage_minimum_hosts
outlierDetection.detectors.failurePercentage.requestVolume         failure_percentage_request_volume
outlierDetection.detectors.failurePercentage.threshold             failure_percentage_threshold
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec

from cp.model.duration import Duration
from cp.model.numbers import Natural
from cp.model.violation import Violation, at
from cp.policies import Policy, in_spec
from cp.resources import deprecated
from cp.resources.checks import above_zero, absent, number, percentage, within
from cp.resources.kinds import DocumentMeta, Kind, PolicyShape
from cp.resources.schema import Number, Schema
from cp.resources.spec import PolicySpec, SpecItem, SpecRule
from cp.resources.targets import GATEWAY, PROXIES, SERVICES, AllowedTargets
from generators.envoy.edit import set_duration, set_number

if TYPE_CHECKING:
    from envoy.config.cluster.v3.circuit_breaker_pb2 import CircuitBreakers
    from envoy.config.cluster.v3.cluster_pb2 import Cluster
    from envoy.config.cluster.v3.outlier_detection_pb2 import OutlierDetection as OutlierMessage
    from google.protobuf.wrappers_pb2 import UInt32Value

    from generators.drafts import ClusterDraft


class ConnectionLimits(Schema, frozen=True):
    max_connections: Natural | None = None
    max_connection_pools: Natural | None = None
    max_pending_requests: Natural | None = None
    max_retries: Natural | None = None
    max_requests: Natural | None = None


class Consecutive(Schema, frozen=True):
    consecutive: Natural | None = None


class SuccessRate(Schema, frozen=True):
    minimum_hosts: Natural | None = None
    request_volume: Natural | None = None
    standard_deviation_factor: Number | None = None


class FailurePercentage(Schema, frozen=True):
    minimum_hosts: Natural | None = None
    request_volume: Natural | None = None
    threshold: Natural | None = None


class Detectors(Schema, frozen=True):
    total_failures: Consecutive | None = None
    gateway_failures: Consecutive | None = None
    local_origin_failures: Consecutive | None = None
    success_rate: SuccessRate | None = None
    failure_percentage: FailurePercentage | None = None


class OutlierDetection(Schema, frozen=True):
    disabled: bool | None = None
    interval: Duration | None = None
    base_ejection_time: Duration | None = None
    max_ejection_percent: Natural | None = None
    split_external_and_local_errors: bool | None = None
    healthy_panic_threshold: Number | None = None
    detectors: Detectors | None = None


class Conf(Schema, frozen=True):
    connection_limits: ConnectionLimits | None = None
    outlier_detection: OutlierDetection | None = None


class Spec(PolicySpec, frozen=True):
    to: list[SpecItem[Conf]] | None = None
    from_: list[SpecItem[Conf]] | None = msgspec.field(name="from", default=None)
    rules: list[SpecRule[Conf]] | None = None


TARGETS: Final = AllowedTargets(top=(*PROXIES, GATEWAY), to=("Mesh", *SERVICES), from_=("Mesh",))

_NEVER: Final = 0
_ALWAYS: Final = 100
_THOUSAND: Final = 1000
_LARGEST: Final = 2**32 - 1


@in_spec
def validate(spec: Spec, meta: DocumentMeta) -> Iterator[Violation]:
    yield from TARGETS.violations(spec, meta)
    yield from spec.needs_one_of("to", "rules", "from")
    yield from spec.rules_alone()
    yield from spec.no_matches()
    for path, _, conf in spec.confs():
        yield from at(path, _conf(conf or Conf()))


def _conf(conf: Conf) -> Iterator[Violation]:
    if conf == Conf():
        yield absent("", "sets nothing", "set `connectionLimits` or `outlierDetection`")
    if conf.connection_limits is not None:
        yield from at("connectionLimits", _limits(conf.connection_limits))
    if conf.outlier_detection is not None:
        yield from at("outlierDetection", _outlier_detection(conf.outlier_detection))


def _limits(limits: ConnectionLimits) -> Iterator[Violation]:
    hint = "leave it out for Envoy's own limit"
    yield from above_zero("maxConnections", limits.max_connections, hint)
    yield from above_zero("maxConnectionPools", limits.max_connection_pools, hint)
    yield from above_zero("maxPendingRequests", limits.max_pending_requests, hint)
    yield from above_zero("maxRetries", limits.max_retries, hint)
    yield from above_zero("maxRequests", limits.max_requests, hint)


def _outlier_detection(detection: OutlierDetection) -> Iterator[Violation]:
    yield from above_zero("interval", detection.interval, "leave it out for 10s")
    yield from above_zero("baseEjectionTime", detection.base_ejection_time, "leave it out for 30s")
    yield from within("maxEjectionPercent", detection.max_ejection_percent, 0, 100)
    yield from percentage("healthyPanicThreshold", detection.healthy_panic_threshold)
    if detection.detectors is None or detection.detectors == Detectors():
        yield absent("detectors", "must be set", "set for example `totalFailures: {consecutive: 5}`")
    else:
        yield from at("detectors", _detectors(detection.detectors))


def _detectors(detectors: Detectors) -> Iterator[Violation]:
    for name, counter in (
        ("totalFailures", detectors.total_failures),
        ("gatewayFailures", detectors.gateway_failures),
        ("localOriginFailures", detectors.local_origin_failures),
    ):
        if counter is not None:
            yield from above_zero(f"{name}.consecutive", counter.consecutive, "leave it out for 5")
    for name, rate in (("successRate", detectors.success_rate), ("failurePercentage", detectors.failure_percentage)):
        if rate is not None:
            yield from above_zero(f"{name}.minimumHosts", rate.minimum_hosts)
            yield from above_zero(f"{name}.requestVolume", rate.request_volume)
    if detectors.success_rate is not None:
        yield from _factor(detectors.success_rate.standard_deviation_factor)
    if detectors.failure_percentage is not None:
        yield from within("failurePercentage.threshold", detectors.failure_percentage.threshold, 0, 100)


def _factor(factor: float | str | None) -> Iterator[Violation]:
    parsed = None if factor is None else number(factor)
    if factor is not None and (parsed is None or parsed <= 0):
        hint = 'write for example `"1.9"`'
        yield Violation("successRate.standardDeviationFactor", f"must be a number above zero, not `{factor}`", hint)


def deprecations(spec: Spec, _meta: DocumentMeta) -> Iterator[Violation]:
    yield from deprecated.top_kind(spec)
    yield from deprecated.from_list(spec)


class MeshCircuitBreaker(Policy[Conf]):
    kind = Kind(
        name="MeshCircuitBreaker",
        short="mcb",
        plural="meshcircuitbreakers",
        schema=Spec,
        validate=validate,
        deprecations=deprecations,
        policy=PolicyShape(to=True, from_=True, rules=True, from_as_rules=True),
        customary=((r"^spec\.rules(\[\d+\]\.default)", r"spec.from\1"),),
    )
    order = 1300
    writes_over = frozenset({"MeshHealthCheck"})
    switches = MappingProxyType({"outlierDetection.disabled": True})
    conf = Conf
    targets = TARGETS
    is_for_grpc_clients = True

    def cluster(self, conf: Conf, draft: ClusterDraft) -> None:
        if conf.connection_limits is not None:
            _write_limits(draft.cluster.circuit_breakers.thresholds.add(), conf.connection_limits)
        if conf.outlier_detection is not None and conf.outlier_detection.disabled is not True:
            _write_outlier_detection(draft.cluster, conf.outlier_detection)


def _write_limits(message: CircuitBreakers.Thresholds, limits: ConnectionLimits) -> None:
    message.track_remaining = True
    set_number(message.max_connections, limits.max_connections)
    set_number(message.max_connection_pools, limits.max_connection_pools)
    set_number(message.max_pending_requests, limits.max_pending_requests)
    set_number(message.max_retries, limits.max_retries)
    set_number(message.max_requests, limits.max_requests)


def _write_outlier_detection(cluster: Cluster, detection: OutlierDetection) -> None:
    message = cluster.outlier_detection
    set_duration(message.interval, detection.interval)
    set_duration(message.base_ejection_time, detection.base_ejection_time)
    set_number(message.max_ejection_percent, detection.max_ejection_percent)
    message.split_external_local_origin_errors = detection.split_external_and_local_errors is True
    if detection.healthy_panic_threshold is not None:
        cluster.common_lb_config.healthy_panic_threshold.value = float(detection.healthy_panic_threshold)
    detectors = detection.detectors or Detectors()
    _write_counters(message, detectors)
    _write_success_rate(message, detectors.success_rate)
    _write_failure_percentage(message, detectors.failure_percentage)


def _write_counters(message: OutlierMessage, detectors: Detectors) -> None:
    for counter, count, enforcing in (
        (detectors.total_failures, message.consecutive_5xx, message.enforcing_consecutive_5xx),
        (
            detectors.gateway_failures,
            message.consecutive_gateway_failure,
            message.enforcing_consecutive_gateway_failure,
        ),
        (
            detectors.local_origin_failures,
            message.consecutive_local_origin_failure,
            message.enforcing_consecutive_local_origin_failure,
        ),
    ):
        _enforce(counter, enforcing)
        set_number(count, (counter or Consecutive()).consecutive)


def _write_success_rate(message: OutlierMessage, rate: SuccessRate | None) -> None:
    _enforce(rate, message.enforcing_success_rate, message.enforcing_local_origin_success_rate)
    if rate is None:
        return
    set_number(message.success_rate_minimum_hosts, rate.minimum_hosts)
    set_number(message.success_rate_request_volume, rate.request_volume)
    factor = None if rate.standard_deviation_factor is None else number(rate.standard_deviation_factor)
    if factor is not None:
        message.success_rate_stdev_factor.value = min(round(factor * _THOUSAND), _LARGEST)


def _write_failure_percentage(message: OutlierMessage, percentage: FailurePercentage | None) -> None:
    _enforce(percentage, message.enforcing_failure_percentage, message.enforcing_failure_percentage_local_origin)
    if percentage is not None:
        set_number(message.failure_percentage_minimum_hosts, percentage.minimum_hosts)
        set_number(message.failure_percentage_request_volume, percentage.request_volume)
        set_number(message.failure_percentage_threshold, percentage.threshold)


def _enforce(detector: object | None, *shares: UInt32Value) -> None:
    """Without this, a detector that the conf leaves out would still eject endpoints, by Envoy's defaults."""
    for share in shares:
        set_number(share, _NEVER if detector is None else _ALWAYS)


POLICY = MeshCircuitBreaker()
