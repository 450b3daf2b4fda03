"""MeshHealthCheck: how a proxy finds out by itself which endpoints of a service are well.

interval                          HealthCheck.interval; 1m if left out
timeout                           HealthCheck.timeout; 15s if left out
unhealthyThreshold                HealthCheck.unhealthy_threshold; 5 if left out
healthyThreshold                  HealthCheck.healthy_threshold; 1 if left out
initialJitter                     HealthCheck.initial_jitter
intervalJitter                    HealthCheck.interval_jitter
intervalJitterPercent             HealthCheck.interval_jitter_percent
noTrafficInterval                 HealthCheck.no_traffic_interval
eventLogPath                      HealthCheck.event_logger, to a file
alwaysLogHealthCheckFailures      HealthCheck.always_log_health_check_failures
reuseConnection                   HealthCheck.reuse_connection
healthyPanicThreshold             Cluster.common_lb_config.healthy_panic_threshold
failTrafficOnPanic                Cluster.common_lb_config.zone_aware_lb_config.fail_traffic_on_panic;
                                  with localities by weight, which exclude it: healthy_panic_threshold 0
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
tcp                               HealthCheck.tcp_health_check, of all else, and of http and grpc without their own
tcp.disabled                      no check
tcp.send                          TcpHealthCheck.send
tcp.receive                       TcpHealthCheck.receive
checker                           http: that check, whatever the service speaks; a HealthCheck can mean that

A service has one check: that of its protocol or, failing that, that of TCP.
Texts are sent and expected as they are written.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from envoy.extensions.health_check.event_sinks.file.v3.file_pb2 import HealthCheckEventFileSink
from envoy.type.v3.http_pb2 import CodecClientType

from cp.model.duration import Duration
from cp.model.numbers import Integer, Natural
from cp.model.violation import Violation, at
from cp.policies import HTTP_PROTOCOLS, Policy, in_spec
from cp.resources import deprecated
from cp.resources.checks import above_zero, absent, file_path, incomplete, percentage, printable, status_code, within
from cp.resources.headers import HeaderChanges, header_changes
from cp.resources.kinds import DocumentMeta, Kind, PolicyShape
from cp.resources.schema import Number, Schema, SensitiveText
from cp.resources.spec import PolicySpec, SpecItem
from cp.resources.targets import GATEWAY, PROXIES, SERVICES, AllowedTargets
from generators.envoy.edit import add_header, literal, pack, set_duration
from generators.proxy import Protocol

if TYPE_CHECKING:
    from envoy.config.cluster.v3.cluster_pb2 import Cluster
    from envoy.config.core.v3.health_check_pb2 import HealthCheck

    from generators.drafts import ClusterDraft


class TcpCheck(Schema, frozen=True):
    disabled: bool | None = None
    send: str | None = None
    receive: list[str] | None = None


class HttpCheck(Schema, frozen=True):
    disabled: bool | None = None
    path: SensitiveText | None = None
    request_headers_to_add: HeaderChanges | None = None
    expected_statuses: list[Integer] | None = None


class GrpcCheck(Schema, frozen=True):
    disabled: bool | None = None
    service_name: str | None = None
    authority: str | None = None


class Conf(Schema, frozen=True):
    interval: Duration | None = None
    timeout: Duration | None = None
    unhealthy_threshold: Natural | None = None
    healthy_threshold: Natural | None = None
    initial_jitter: Duration | None = None
    interval_jitter: Duration | None = None
    interval_jitter_percent: Integer | None = None
    no_traffic_interval: Duration | None = None
    healthy_panic_threshold: Number | None = None
    fail_traffic_on_panic: bool | None = None
    event_log_path: str | None = None
    always_log_health_check_failures: bool | None = None
    reuse_connection: bool | None = None
    tcp: TcpCheck | None = None
    http: HttpCheck | None = None
    grpc: GrpcCheck | None = None


class EffectiveConf(Conf, frozen=True):
    """What a conf can come to: a HealthCheck chooses its check, whatever the service speaks."""

    checker: Literal["http"] | None = None


class Spec(PolicySpec, frozen=True):
    to: list[SpecItem[Conf]] | None = None


TARGETS: Final = AllowedTargets(top=(*PROXIES, GATEWAY), to=("Mesh", *SERVICES))

_INTERVAL: Final = Duration.parse("1m")
_TIMEOUT: Final = Duration.parse("15s")
_UNHEALTHY_THRESHOLD: Final = 5
_HEALTHY_THRESHOLD: Final = 1
_PATH: Final = "/"
_FILE_SINK: Final = "envoy.health_check.event_sinks.file"


@in_spec
def validate(spec: Spec, meta: DocumentMeta) -> Iterator[Violation]:
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
    if conf.grpc is not None:
        yield from printable("grpc.authority", conf.grpc.authority)


def _http(http: HttpCheck) -> Iterator[Violation]:
    if http.path == "":
        yield Violation("path", "must not be empty", "leave it out for `/`")
    yield from printable("path", http.path)
    for index, status in enumerate(http.expected_statuses or ()):
        yield from status_code(f"expectedStatuses[{index}]", status)
    if http.request_headers_to_add is not None:
        yield from at("requestHeadersToAdd", header_changes(http.request_headers_to_add))


def deprecations(spec: Spec, _meta: DocumentMeta) -> Iterator[Violation]:
    yield from deprecated.top_kind(spec)
    for path, _, conf in spec.confs():
        if conf is not None and conf.healthy_panic_threshold is not None:
            hint = "write it as `outlierDetection.healthyPanicThreshold` of a MeshCircuitBreaker"
            yield Violation(f"spec.{path}.healthyPanicThreshold", "is deprecated here", hint)


class MeshHealthCheck(Policy[EffectiveConf]):
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
    switches = MappingProxyType({"http.disabled": True, "grpc.disabled": True, "tcp.disabled": True})
    conf = EffectiveConf
    targets = TARGETS
    section_protocols = MappingProxyType({"http": HTTP_PROTOCOLS - {Protocol.GRPC}, "grpc": frozenset({Protocol.GRPC})})
    sections_for_all_protocols = frozenset({"tcp"})
    section_settings = frozenset(
        {
            "interval",
            "timeout",
            "unhealthyThreshold",
            "healthyThreshold",
            "initialJitter",
            "intervalJitter",
            "intervalJitterPercent",
            "noTrafficInterval",
            "eventLogPath",
            "alwaysLogHealthCheckFailures",
            "reuseConnection",
        }
    )

    def cluster(self, conf: EffectiveConf, draft: ClusterDraft) -> None:
        if conf.healthy_panic_threshold is not None:
            draft.cluster.common_lb_config.healthy_panic_threshold.value = float(conf.healthy_panic_threshold)
        if conf.fail_traffic_on_panic is True:
            _fail_on_panic(draft.cluster.common_lb_config)
        checker = _checker(conf, draft.protocol)
        if checker is not None:
            # Envoy's default keeps an endpoint that was taken away for as long as its check passes.
            draft.cluster.ignore_health_on_host_removal = True
            message = draft.cluster.health_checks.add()
            _write_times(message, conf)
            _write_events(message, conf)
            _write_checker(message, checker, draft.protocol)


def _checker(conf: EffectiveConf, protocol: Protocol) -> HttpCheck | GrpcCheck | TcpCheck | None:
    """The check of the protocol; without it, or if it is disabled, the one of TCP, which every protocol runs over."""
    of_protocol = conf.grpc if protocol is Protocol.GRPC else conf.http if protocol.is_http else None
    own = conf.http if conf.checker == "http" else of_protocol
    return next((check for check in (own, conf.tcp) if check is not None and check.disabled is not True), None)


def _fail_on_panic(message: Cluster.CommonLbConfig) -> None:
    """Let requests fail in panic, in place of sending them to unhealthy endpoints."""
    if message.HasField("locality_weighted_lb_config"):
        message.healthy_panic_threshold.value = 0
    else:
        message.zone_aware_lb_config.fail_traffic_on_panic = True


def _write_times(message: HealthCheck, conf: Conf) -> None:
    set_duration(message.interval, conf.interval or _INTERVAL)
    set_duration(message.timeout, conf.timeout or _TIMEOUT)
    set_duration(message.initial_jitter, conf.initial_jitter)
    set_duration(message.interval_jitter, conf.interval_jitter)
    set_duration(message.no_traffic_interval, conf.no_traffic_interval)
    message.interval_jitter_percent = conf.interval_jitter_percent or 0
    message.unhealthy_threshold.value = conf.unhealthy_threshold or _UNHEALTHY_THRESHOLD
    message.healthy_threshold.value = conf.healthy_threshold or _HEALTHY_THRESHOLD
    if conf.reuse_connection is not None:
        message.reuse_connection.value = conf.reuse_connection


def _write_events(message: HealthCheck, conf: Conf) -> None:
    message.always_log_health_check_failures = conf.always_log_health_check_failures is True
    if conf.event_log_path is not None:
        sink = message.event_logger.add(name=_FILE_SINK)
        sink.typed_config.CopyFrom(pack(HealthCheckEventFileSink(event_log_path=conf.event_log_path)))


def _write_checker(message: HealthCheck, checker: HttpCheck | GrpcCheck | TcpCheck, protocol: Protocol) -> None:
    if isinstance(checker, HttpCheck):
        _write_http(message.http_health_check, checker, protocol)
    elif isinstance(checker, GrpcCheck):
        message.grpc_health_check.service_name = checker.service_name or ""
        message.grpc_health_check.authority = checker.authority or ""
        message.grpc_health_check.SetInParent()
    else:
        _write_tcp(message.tcp_health_check, checker)


def _write_http(message: HealthCheck.HttpHealthCheck, http: HttpCheck, protocol: Protocol) -> None:
    message.path = http.path or _PATH
    message.codec_client_type = CodecClientType.HTTP2 if protocol is Protocol.HTTP2 else CodecClientType.HTTP1
    for status in http.expected_statuses or ():
        message.expected_statuses.add(start=status, end=status + 1)
    headers = http.request_headers_to_add or HeaderChanges()
    for header in headers.set or ():
        add_header(message.request_headers_to_add, header.name, literal(header.value))
    for header in headers.add or ():
        add_header(message.request_headers_to_add, header.name, literal(header.value), append=True)


def _write_tcp(message: HealthCheck.TcpHealthCheck, tcp: TcpCheck) -> None:
    """Without `send` and `receive` a connection that is established counts as healthy."""
    message.SetInParent()
    if tcp.send:
        message.send.text = tcp.send.encode().hex()
    for text in filter(None, tcp.receive or ()):
        message.receive.add(text=text.encode().hex())


POLICY = MeshHealthCheck()
