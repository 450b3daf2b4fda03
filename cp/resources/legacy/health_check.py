"""HealthCheck: how proxies find out by themselves which endpoints of a service are well.

interval                                MeshHealthCheck interval
timeout                                 MeshHealthCheck timeout
unhealthyThreshold                      MeshHealthCheck unhealthyThreshold
healthyThreshold                        MeshHealthCheck healthyThreshold
initialJitter                           MeshHealthCheck initialJitter
intervalJitter                          MeshHealthCheck intervalJitter
intervalJitterPercent                   MeshHealthCheck intervalJitterPercent
healthyPanicThreshold                   MeshHealthCheck healthyPanicThreshold
failTrafficOnPanic                      MeshHealthCheck failTrafficOnPanic
eventLogPath                            MeshHealthCheck eventLogPath
alwaysLogHealthCheckFailures            MeshHealthCheck alwaysLogHealthCheckFailures
noTrafficInterval                       MeshHealthCheck noTrafficInterval
reuseConnection                         MeshHealthCheck reuseConnection
http                                    MeshHealthCheck http, whatever the service speaks
http.path                               http.path
http.requestHeadersToAdd                http.requestHeadersToAdd
http.requestHeadersToAdd[].header       in `set`, or in `add` with `append`
http.requestHeadersToAdd[].header.key
http.requestHeadersToAdd[].header.value
http.requestHeadersToAdd[].append
http.expectedStatuses                   http.expectedStatuses
tcp                                     MeshHealthCheck tcp, whatever the service speaks, and without `http` the same
tcp.send                                tcp.send; bytes, in base64
tcp.receive                             tcp.receive; bytes, in base64
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from cp.model.duration import Duration
from cp.model.numbers import Natural
from cp.model.payloads import bytes_of, in_base64, text_of
from cp.model.violation import Violation, at
from cp.resources.checks import above_zero, absent, must_be_set, printable, status_code
from cp.resources.headers import changed_header, most_changed
from cp.resources.kinds import DocumentMeta, Kind, LegacyConf, LegacyShape, LegacySide
from cp.resources.legacy.nulls import without_nulls
from cp.resources.legacy.placed_conf import as_number, conf_of_fields
from cp.resources.legacy.selectors import ConnectionPolicy, of_callers
from cp.resources.schema import Schema, SensitiveText


class LegacyTcpCheck(Schema, frozen=True):
    send: str | None = None
    receive: list[str] | None = None


class HeaderValue(Schema, frozen=True):
    key: str = ""
    value: SensitiveText = ""


class AddedHeader(Schema, frozen=True):
    header: HeaderValue | None = None
    append: bool | None = None


class LegacyHttpCheck(Schema, frozen=True):
    path: SensitiveText = ""
    request_headers_to_add: list[AddedHeader] | None = None
    expected_statuses: list[Natural] | None = None


class HealthCheckConf(Schema, frozen=True):
    interval: Duration | None = None
    timeout: Duration | None = None
    unhealthy_threshold: Natural | None = None
    healthy_threshold: Natural | None = None
    initial_jitter: Duration | None = None
    interval_jitter: Duration | None = None
    interval_jitter_percent: Natural | None = None
    healthy_panic_threshold: float | None = None
    fail_traffic_on_panic: bool | None = None
    event_log_path: str | None = None
    always_log_health_check_failures: bool | None = None
    no_traffic_interval: Duration | None = None
    tcp: LegacyTcpCheck | None = None
    http: LegacyHttpCheck | None = None
    reuse_connection: bool | None = None


class HealthCheck(ConnectionPolicy, frozen=True):
    conf: HealthCheckConf | None = None


def validate(check: HealthCheck, _meta: DocumentMeta) -> Iterator[Violation]:
    yield from of_callers(check)
    if check.conf is None:
        yield absent("conf", "must be set", "give it `interval`, `timeout` and the thresholds")
    else:
        yield from at("conf", _conf(check.conf))


def _conf(conf: HealthCheckConf) -> Iterator[Violation]:
    yield from _needed(conf)
    yield from above_zero("initialJitter", conf.initial_jitter)
    yield from above_zero("intervalJitter", conf.interval_jitter)
    yield from above_zero("noTrafficInterval", conf.no_traffic_interval)
    threshold = conf.healthy_panic_threshold
    if threshold is not None and not 0 <= threshold <= 100:  # noqa: PLR2004  # percent
        yield Violation("healthyPanicThreshold", f"must be 0 to 100 percent, not `{threshold}`")
    if conf.http is not None:
        yield from at("http", _http(conf.http))
    if conf.tcp is not None:
        yield from at("tcp", _tcp(conf.tcp))
    if conf.tcp is not None and conf.http is not None:
        yield Violation("", "`http` and `tcp` exclude each other", "keep one of them")


def _needed(conf: HealthCheckConf) -> Iterator[Violation]:
    for name, value, example in (
        ("interval", conf.interval, "10s"),
        ("timeout", conf.timeout, "2s"),
        ("unhealthyThreshold", conf.unhealthy_threshold, "3"),
        ("healthyThreshold", conf.healthy_threshold, "1"),
    ):
        if value is None:
            yield absent(name, "must be set", f"for example `{example}`")
        yield from above_zero(name, value)


def _http(http: LegacyHttpCheck) -> Iterator[Violation]:
    yield from must_be_set("path", http.path, "for example `/health`")
    yield from printable("path", http.path)
    for index, status in enumerate(http.expected_statuses or ()):
        yield from status_code(f"expectedStatuses[{index}]", status)
    yield from most_changed("requestHeadersToAdd", http.request_headers_to_add or ())
    for index, added in enumerate(http.request_headers_to_add or ()):
        where = f"requestHeadersToAdd[{index}].header"
        yield from must_be_set(where, added.header, "give it a `key` and a `value`")
        if added.header is not None:
            yield from changed_header(f"{where}.key", added.header.key, f"{where}.value", added.header.value)


def _tcp(tcp: LegacyTcpCheck) -> Iterator[Violation]:
    received = [(f"receive[{index}]", text) for index, text in enumerate(tcp.receive or ())]
    for path, text in [("send", tcp.send), *received]:
        if text is not None and bytes_of(text) is None:
            yield Violation(path, f"`{text}` is not base64", f"write `{in_base64(text)}`")


_SAME: Final = MappingProxyType(
    {
        name: f"conf.{name}"
        for name in (
            *("interval", "timeout", "unhealthyThreshold", "healthyThreshold", "initialJitter", "intervalJitter"),
            *("intervalJitterPercent", "failTrafficOnPanic", "alwaysLogHealthCheckFailures", "noTrafficInterval"),
            *("reuseConnection", "http.path", "http.expectedStatuses"),
        )
    }
)


def confs(data: Mapping[str, Any], _mesh: Mapping[str, Any], protocol: str) -> Iterator[LegacyConf]:
    conf = data.get("conf") or {}
    result = conf_of_fields(data, _SAME)
    result.put("healthyPanicThreshold", as_number(conf.get("healthyPanicThreshold")), "conf.healthyPanicThreshold")
    result.put("eventLogPath", conf.get("eventLogPath") or None, "conf.eventLogPath")
    if conf.get("http") is not None:
        result.put("http.requestHeadersToAdd", _headers(conf["http"]), "conf.http.requestHeadersToAdd")
        result.put("checker", None if protocol in {"http", "http2"} else "http", "conf.http")
    else:
        result.put("tcp", _texts(conf.get("tcp") or {}), "conf.tcp" if conf.get("tcp") is not None else "conf")
    yield LegacyConf("MeshHealthCheck", result.conf, result.places)


def _headers(http: Mapping[str, Any]) -> dict[str, list[dict[str, str]]] | None:
    changes: dict[str, list[dict[str, str]]] = {}
    for added in http.get("requestHeadersToAdd") or ():
        header = {"name": added["header"]["key"].lower(), "value": added["header"].get("value") or ""}
        changes.setdefault("add" if added.get("append") else "set", []).append(header)
    return changes or None


def _texts(tcp: Mapping[str, Any]) -> dict[str, Any]:
    send = text_of(tcp["send"]) if tcp.get("send") else None
    receive = [text for encoded in tcp.get("receive") or () if (text := text_of(encoded))]
    return {name: value for name, value in (("send", send), ("receive", receive)) if value}


HEALTH_CHECK: Final = Kind(
    "HealthCheck",
    "healthcheck",
    "health-checks",
    HealthCheck,
    validate,
    complete=without_nulls,
    legacy=LegacyShape(LegacySide.OUTBOUND, confs),
)
