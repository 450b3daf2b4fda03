"""Retry: what proxies do when a request to a service, or a connection, fails.

http                          of services of HTTP:
http.numRetries               MeshRetry http.numRetries
http.perTryTimeout            MeshRetry http.perTryTimeout
http.backOff                  MeshRetry http.backOff
http.backOff.baseInterval     MeshRetry http.backOff.baseInterval
http.backOff.maxInterval      MeshRetry http.backOff.maxInterval
http.retryOn                  MeshRetry http.retryOn
http.retriableStatusCodes     MeshRetry http.retryOn, beside the conditions
http.retriableMethods         MeshRetry http.retryOn, beside the conditions
grpc                          of services of gRPC:
grpc.numRetries               MeshRetry grpc.numRetries
grpc.perTryTimeout            MeshRetry grpc.perTryTimeout
grpc.backOff                  MeshRetry grpc.backOff
grpc.backOff.baseInterval     MeshRetry grpc.backOff.baseInterval
grpc.backOff.maxInterval      MeshRetry grpc.backOff.maxInterval
grpc.retryOn                  MeshRetry grpc.retryOn
tcp                           of services of TCP:
tcp.maxConnectAttempts        MeshRetry tcp.maxConnectAttempt
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal

from cp.model.duration import Duration
from cp.model.numbers import Natural
from cp.model.violation import Violation, at
from cp.resources.checks import above_zero, absent, repeated
from cp.resources.kinds import DocumentMeta, Kind, LegacyConf, LegacyShape, LegacySide
from cp.resources.legacy.nulls import without_nulls
from cp.resources.legacy.placed_conf import PlacedConf, conf_of_fields
from cp.resources.legacy.selectors import ConnectionPolicy, of_callers
from cp.resources.schema import Schema


class LegacyBackOff(Schema, frozen=True):
    base_interval: Duration | None = None
    max_interval: Duration | None = None


class LegacyHttpRetry(Schema, frozen=True):
    num_retries: Natural | None = None
    per_try_timeout: Duration | None = None
    back_off: LegacyBackOff | None = None
    retriable_status_codes: list[Natural] | None = None
    retriable_methods: (
        list[Literal["NONE", "CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"]] | None
    ) = None
    retry_on: (
        list[
            Literal[
                "all_5xx",
                "gateway_error",
                "reset",
                "connect_failure",
                "envoy_ratelimited",
                "retriable_4xx",
                "refused_stream",
                "retriable_status_codes",
                "retriable_headers",
                "http3_post_connect_failure",
            ]
        ]
        | None
    ) = None


class LegacyGrpcRetry(Schema, frozen=True):
    retry_on: (
        list[Literal["cancelled", "deadline_exceeded", "internal", "resource_exhausted", "unavailable"]] | None
    ) = None
    num_retries: Natural | None = None
    per_try_timeout: Duration | None = None
    back_off: LegacyBackOff | None = None


class LegacyTcpRetry(Schema, frozen=True):
    max_connect_attempts: Natural | None = None


class RetryConf(Schema, frozen=True):
    http: LegacyHttpRetry | None = None
    tcp: LegacyTcpRetry | None = None
    grpc: LegacyGrpcRetry | None = None


class Retry(ConnectionPolicy, frozen=True):
    conf: RetryConf | None = None


def validate(retry: Retry, _meta: DocumentMeta) -> Iterator[Violation]:
    yield from of_callers(retry)
    if retry.conf is None or retry.conf == RetryConf():
        yield absent("conf", "must be set", "give it `http`, `grpc` or `tcp`")
        return
    if retry.conf.http is not None:
        yield from at("conf.http", _http(retry.conf.http))
    if retry.conf.grpc is not None:
        yield from at("conf.grpc", _grpc(retry.conf.grpc))
    if retry.conf.tcp is not None:
        yield from at("conf.tcp", _tcp(retry.conf.tcp))


def _http(http: LegacyHttpRetry) -> Iterator[Violation]:
    if http == LegacyHttpRetry():
        yield absent("", "sets nothing", "set for example `numRetries`")
    yield from _of_both(http)
    for index, method in enumerate(http.retriable_methods or ()):
        if method == "NONE":
            yield Violation(f"retriableMethods[{index}]", "`NONE` is no method", "remove it")
    for index, condition in enumerate(http.retry_on or ()):
        if condition == "retriable_status_codes" and http.retriable_status_codes is None:
            yield Violation(f"retryOn[{index}]", "needs `retriableStatusCodes`", "say which, or remove it")


def _grpc(grpc: LegacyGrpcRetry) -> Iterator[Violation]:
    if grpc == LegacyGrpcRetry():
        yield absent("", "sets nothing", "set for example `numRetries`")
    yield from _of_both(grpc)
    for index in repeated(grpc.retry_on or ()):
        yield Violation(f"retryOn[{index}]", f"`{(grpc.retry_on or [])[index]}` stands here twice", "remove it")


def _of_both(retry: LegacyHttpRetry | LegacyGrpcRetry) -> Iterator[Violation]:
    yield from above_zero("numRetries", retry.num_retries)
    yield from above_zero("perTryTimeout", retry.per_try_timeout)
    if retry.back_off is not None:
        yield from at("backOff", _back_off(retry.back_off))


def _back_off(back_off: LegacyBackOff) -> Iterator[Violation]:
    if back_off.base_interval is None:
        yield absent("baseInterval", "must be set", "for example `25ms`")
    yield from above_zero("baseInterval", back_off.base_interval)
    yield from above_zero("maxInterval", back_off.max_interval)


def _tcp(tcp: LegacyTcpRetry) -> Iterator[Violation]:
    if tcp.max_connect_attempts is None:
        yield absent("maxConnectAttempts", "must be set", "1 means that nothing is tried again")
    yield from above_zero("maxConnectAttempts", tcp.max_connect_attempts, "1 means that nothing is tried again")


_FIELDS: Final = MappingProxyType(
    {
        "http.numRetries": "conf.http.numRetries",
        "http.perTryTimeout": "conf.http.perTryTimeout",
        "http.backOff": "conf.http.backOff",
        "grpc.numRetries": "conf.grpc.numRetries",
        "grpc.perTryTimeout": "conf.grpc.perTryTimeout",
        "grpc.backOff": "conf.grpc.backOff",
        "tcp.maxConnectAttempt": "conf.tcp.maxConnectAttempts",
    }
)
_CONDITIONS: Final = MappingProxyType(
    {
        "all_5xx": "5xx",
        "gateway_error": "GatewayError",
        "reset": "Reset",
        "connect_failure": "ConnectFailure",
        "envoy_ratelimited": "EnvoyRatelimited",
        "retriable_4xx": "Retriable4xx",
        "refused_stream": "RefusedStream",
        "http3_post_connect_failure": "Http3PostConnectFailure",
        "cancelled": "Canceled",
        "deadline_exceeded": "DeadlineExceeded",
        "internal": "Internal",
        "resource_exhausted": "ResourceExhausted",
        "unavailable": "Unavailable",
    }
)
_USUAL: Final = ("GatewayError", "ConnectFailure", "RefusedStream")
"""The conditions of HTTP where none are written. Statuses stand beside them, not in their place."""


def confs(data: Mapping[str, Any], _mesh: Mapping[str, Any], _protocol: str) -> Iterator[LegacyConf]:
    result = conf_of_fields(data, _FIELDS)
    conf = data.get("conf") or {}
    if (http := conf.get("http")) is not None:
        result.put("http", result.conf.get("http", {}), "conf.http")
        _put_conditions(result, http)
    if (grpc := conf.get("grpc")) is not None:
        result.put("grpc", result.conf.get("grpc", {}), "conf.grpc")
        conditions = [_CONDITIONS[condition] for condition in grpc.get("retryOn") or ()]
        result.put("grpc.retryOn", conditions or None, "conf.grpc.retryOn")
    yield LegacyConf("MeshRetry", result.conf, result.places)


def _put_conditions(result: PlacedConf, http: Mapping[str, Any]) -> None:
    written, statuses = http.get("retryOn") or [], [str(status) for status in http.get("retriableStatusCodes") or ()]
    conditions = [_CONDITIONS[condition] for condition in written if condition in _CONDITIONS]
    if not written and statuses:
        conditions = list(_USUAL)
    if written and not conditions and not statuses:  # headers of answers, of which none can be named
        result.put("http.numRetries", 0, "conf.http.retryOn")
    methods = [f"HttpMethod{method.capitalize()}" for method in http.get("retriableMethods") or ()]
    field = next((name for name in ("retryOn", "retriableStatusCodes", "retriableMethods") if http.get(name)), "")
    result.put("http.retryOn", [*conditions, *statuses, *methods] or None, f"conf.http.{field}")


RETRY: Final = Kind(
    "Retry", "retry", "retries", Retry, validate, complete=without_nulls, legacy=LegacyShape(LegacySide.OUTBOUND, confs)
)
