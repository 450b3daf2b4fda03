"""Timeout: how long proxies wait for the services that they call.

connectTimeout            MeshTimeout connectionTimeout
tcp                       of services of TCP:
tcp.idleTimeout           MeshTimeout idleTimeout
http                      of services of HTTP:
http.idleTimeout          MeshTimeout idleTimeout
http.requestTimeout       MeshTimeout http.requestTimeout
http.streamIdleTimeout    MeshTimeout http.streamIdleTimeout
http.maxStreamDuration    MeshTimeout http.maxStreamDuration
grpc                      of services of gRPC, where `http` does not say it:
grpc.streamIdleTimeout    MeshTimeout http.streamIdleTimeout
grpc.maxStreamDuration    MeshTimeout http.maxStreamDuration
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cp.model.duration import Duration
from cp.model.violation import Violation, at
from cp.resources.checks import above_zero, absent, not_negative
from cp.resources.kinds import DocumentMeta, Kind, LegacyConf, LegacyShape, LegacySide
from cp.resources.legacy.nulls import without_nulls
from cp.resources.legacy.placed_conf import conf_of_fields, value_at
from cp.resources.legacy.selectors import ConnectionPolicy, of_callers
from cp.resources.schema import Schema


class TcpTimeouts(Schema, frozen=True):
    idle_timeout: Duration | None = None


class LegacyHttpTimeouts(Schema, frozen=True):
    request_timeout: Duration | None = None
    idle_timeout: Duration | None = None
    stream_idle_timeout: Duration | None = None
    max_stream_duration: Duration | None = None


class GrpcTimeouts(Schema, frozen=True):
    stream_idle_timeout: Duration | None = None
    max_stream_duration: Duration | None = None


class TimeoutConf(Schema, frozen=True):
    connect_timeout: Duration | None = None
    tcp: TcpTimeouts | None = None
    http: LegacyHttpTimeouts | None = None
    grpc: GrpcTimeouts | None = None


class Timeout(ConnectionPolicy, frozen=True):
    conf: TimeoutConf | None = None


def validate(timeout: Timeout, _meta: DocumentMeta) -> Iterator[Violation]:
    yield from of_callers(timeout)
    if timeout.conf is None:
        yield absent("conf", "must be set", "give it `connectTimeout`, `tcp` or `http`")
    else:
        yield from at("conf", _conf(timeout.conf))


def _conf(conf: TimeoutConf) -> Iterator[Violation]:
    yield from above_zero("connectTimeout", conf.connect_timeout, "leave it out for 5s")
    if conf.tcp is not None:
        yield from at("tcp", _tcp(conf.tcp))
    if conf.http is not None:
        yield from at("http", _http(conf.http))
    if conf.grpc is not None:
        yield from at("grpc", _grpc(conf.grpc))


def _tcp(tcp: TcpTimeouts) -> Iterator[Violation]:
    if tcp.idle_timeout is None:
        yield absent("", "sets no timeout", "set `idleTimeout`, or leave `tcp` out")
    yield from above_zero("idleTimeout", tcp.idle_timeout)


def _http(http: LegacyHttpTimeouts) -> Iterator[Violation]:
    if http.request_timeout is None and http.idle_timeout is None:
        yield absent("", "sets neither `requestTimeout` nor `idleTimeout`", "set one of them, or leave `http` out")
    yield from above_zero("requestTimeout", http.request_timeout, "leave it out for 15s")
    yield from above_zero("idleTimeout", http.idle_timeout, "leave it out for 1h")
    yield from not_negative("streamIdleTimeout", http.stream_idle_timeout)
    yield from not_negative("maxStreamDuration", http.max_stream_duration)


def _grpc(grpc: GrpcTimeouts) -> Iterator[Violation]:
    if grpc == GrpcTimeouts():
        yield absent("", "sets no timeout", "set `streamIdleTimeout`, or leave `grpc` out")
    yield from above_zero("streamIdleTimeout", grpc.stream_idle_timeout)
    yield from above_zero("maxStreamDuration", grpc.max_stream_duration)


_CONNECT: Final = {"connectionTimeout": "conf.connectTimeout"}
_OF_TCP: Final = {**_CONNECT, "idleTimeout": "conf.tcp.idleTimeout"}
_OF_HTTP: Final = {
    **_CONNECT,
    "idleTimeout": "conf.http.idleTimeout",
    "http.requestTimeout": "conf.http.requestTimeout",
    "http.streamIdleTimeout": "conf.http.streamIdleTimeout",
    "http.maxStreamDuration": "conf.http.maxStreamDuration",
}
_OF_GRPC_ALONE: Final = {
    "http.streamIdleTimeout": "conf.grpc.streamIdleTimeout",
    "http.maxStreamDuration": "conf.grpc.maxStreamDuration",
}


def confs(data: Mapping[str, Any], _mesh: Mapping[str, Any], protocol: str) -> Iterator[LegacyConf]:
    fields = dict(_OF_TCP if protocol == "tcp" else _OF_HTTP)
    if protocol == "grpc":
        fields |= {name: place for name, place in _OF_GRPC_ALONE.items() if value_at(data, fields[name]) is None}
    result = conf_of_fields(data, fields)
    yield LegacyConf("MeshTimeout", result.conf, result.places)


TIMEOUT: Final = Kind(
    "Timeout",
    "timeout",
    "timeouts",
    Timeout,
    validate,
    complete=without_nulls,
    legacy=LegacyShape(LegacySide.OUTBOUND, confs),
)
