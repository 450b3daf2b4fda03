"""MeshHealthCheck: how a proxy finds out by itself which endpoints of a service are well.

interval                          HealthCheck.interval; 1m if left out
timeout                           HealthCheck.timeout; 15s if left out
unhealthyThreshold                HealthCheck.unhealthy_threshold; 5 if left out
healthyThreshold                  HealthCheck.healthy_threshold; 1 if left out
initialJitter                     HealthCheck.initial_jitter
intervalJitter                    HealthCheck.interval_jitter
intervalJitterPercent             HealthCheck.interval_jitter_percent
noTrafficInterval                 HealthCheck.no_traffic_interval
eventLogPath                      HealthCheck.event_log_path
alwaysLogHealthCheckFailures      HealthCheck.always_log_health_check_failures
reuseConnection                   HealthCheck.reuse_connection
healthyPanicThreshold             Cluster.common_lb_config.healthy_panic_threshold
failTrafficOnPanic                Cluster.common_lb_config.zone_aware_lb_config.fail_traffic_on_panic
http                              HealthCheck.http_health_check, of http and http2
http.disabled                     falls back to tcp
http.path                         HttpHealthCheck.path; / if left out
http.expectedStatuses             HttpHealthCheck.expected_statuses
http.requestHeadersToAdd          HttpHealthCheck.request_headers_to_add
http.requestHeadersToAdd.set      overwriting
http.requestHeadersToAdd.set[].name
http.requestHeadersToAdd.set[].value
http.requestHeadersToAdd.add      appending
http.requestHeadersToAdd.add[].name
http.requestHeadersToAdd.add[].value
grpc                              HealthCheck.grpc_health_check, of grpc
grpc.disabled                     falls back to tcp
grpc.serviceName                  GrpcHealthCheck.service_name
grpc.authority                    GrpcHealthCheck.authority
tcp                               HealthCheck.tcp_health_check
tcp.disabled                      no check
tcp.send                          TcpHealthCheck.send
tcp.receive                       TcpHealthCheck.receive
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cp.model.duration import Duration
from cp.model.violation import Violation, at
from cp.policies import Policy
from cp.resources import deprecated
from cp.resources.checks import above_zero, absent, file_path, incomplete, percentage, status_code, within
from cp.resources.headers import HeaderChanges, header_changes
from cp.resources.kinds import Kind, Meta, PolicyShape
from cp.resources.schema import Number, Schema
from cp.resources.spec import Item, PolicySpec
from cp.resources.targets import GATEWAY, PROXIES, SERVICES, Targets


class Tcp(Schema, frozen=True):
    disabled: bool | None = None
    send: str | None = None
    receive: list[str] | None = None


class Http(Schema, frozen=True):
    disabled: bool | None = None
    path: str | None = None
    request_headers_to_add: HeaderChanges | None = None
    expected_statuses: list[int] | None = None


class Grpc(Schema, frozen=True):
    disabled: bool | None = None
    service_name: str | None = None
    authority: str | None = None


class Conf(Schema, frozen=True):
    interval: Duration | None = None
    timeout: Duration | None = None
    unhealthy_threshold: int | None = None
    healthy_threshold: int | None = None
    initial_jitter: Duration | None = None
    interval_jitter: Duration | None = None
    interval_jitter_percent: int | None = None
    no_traffic_interval: Duration | None = None
    healthy_panic_threshold: Number | None = None
    fail_traffic_on_panic: bool | None = None
    event_log_path: str | None = None
    always_log_health_check_failures: bool | None = None
    reuse_connection: bool | None = None
    tcp: Tcp | None = None
    http: Http | None = None
    grpc: Grpc | None = None


class Spec(PolicySpec, frozen=True):
    to: list[Item[Conf]] | None = None


TARGETS: Final = Targets(top=(*PROXIES, GATEWAY), to=("Mesh", *SERVICES))


def validate(spec: Spec, meta: Meta) -> Iterator[Violation]:
    return at("spec", _violations(spec, meta))


def _violations(spec: Spec, meta: Meta) -> Iterator[Violation]:
    yield from TARGETS.violations(spec, meta)
    if not spec.to and spec.top.kind != "Dataplane":
        yield incomplete("to", "says nothing", "give it an item, for example for `kind: Mesh`")
    for path, _, conf in spec.confs():
        yield from at(path, _conf(conf or Conf()))


def _conf(conf: Conf) -> Iterator[Violation]:
    if conf.http is None and conf.tcp is None and conf.grpc is None:
        yield absent("", "does not say how to check", "set `http`, `tcp` or `grpc`")
    yield from above_zero("interval", conf.interval, "leave it out for 1m")
    yield from above_zero("timeout", conf.timeout, "leave it out for 15s")
    yield from above_zero("unhealthyThreshold", conf.unhealthy_threshold, "leave it out for 5")
    yield from above_zero("healthyThreshold", conf.healthy_threshold, "leave it out for 1")
    yield from above_zero("initialJitter", conf.initial_jitter)
    yield from above_zero("intervalJitter", conf.interval_jitter)
    yield from above_zero("noTrafficInterval", conf.no_traffic_interval)
    yield from within("intervalJitterPercent", conf.interval_jitter_percent, 0, 100)
    yield from percentage("healthyPanicThreshold", conf.healthy_panic_threshold)
    yield from file_path("eventLogPath", conf.event_log_path)
    if conf.http is not None:
        yield from at("http", _http(conf.http))


def _http(http: Http) -> Iterator[Violation]:
    if http.path == "":
        yield Violation("path", "must not be empty", "leave it out for `/`")
    for index, status in enumerate(http.expected_statuses or ()):
        yield from status_code(f"expectedStatuses[{index}]", status)
    if http.request_headers_to_add is not None:
        yield from at("requestHeadersToAdd", header_changes(http.request_headers_to_add))


def deprecations(spec: Spec, _meta: Meta) -> Iterator[Violation]:
    yield from deprecated.top_kind(spec)
    for path, _, conf in spec.confs():
        if conf is not None and conf.healthy_panic_threshold is not None:
            hint = "write it as `outlierDetection.healthyPanicThreshold` of a MeshCircuitBreaker"
            yield Violation(f"spec.{path}.healthyPanicThreshold", "is deprecated here", hint)


class MeshHealthCheck(Policy[Conf]):
    kind = Kind(
        name="MeshHealthCheck",
        short="mhc",
        plural="meshhealthchecks",
        schema=Spec,
        validate=validate,
        deprecations=deprecations,
        policy=PolicyShape(to=True),
    )
    order = 1200
    conf = Conf
    targets = TARGETS


POLICY = MeshHealthCheck()
