"""MeshAccessLog: what a proxy writes down of requests and connections, and where.

    backends                                   HttpConnectionManager.access_log, TcpProxy.access_log
    backends[].type                            which of these; may be left out where one of them is given
    backends[].file                            envoy.access_loggers.file
    backends[].file.path                       FileAccessLog.path
    backends[].file.format                     FileAccessLog.log_format
    backends[].file.format.type                of the two that follow, which; may be left out where one is given
    backends[].file.format.plain               SubstitutionFormatString.text_format_source
    backends[].file.format.json                SubstitutionFormatString.json_format
    backends[].file.format.json[].key
    backends[].file.format.json[].value
    backends[].file.format.omitEmptyValues     SubstitutionFormatString.omit_empty_values
    backends[].tcp                             envoy.access_loggers.stdout, and `koguma dp run` sends the lines on
    backends[].tcp.address                     StdoutAccessLog.log_format, beside the line
    backends[].tcp.format                      the line in it, as of a file:
    backends[].tcp.format.type
    backends[].tcp.format.plain
    backends[].tcp.format.json
    backends[].tcp.format.json[].key
    backends[].tcp.format.json[].value
    backends[].tcp.format.omitEmptyValues
    backends[].openTelemetry                   envoy.access_loggers.open_telemetry
    backends[].openTelemetry.endpoint          OpenTelemetryAccessLogConfig.common_config.grpc_service
    backends[].openTelemetry.backendRef        nothing yet; the same, from a MeshOpenTelemetryBackend
    backends[].openTelemetry.backendRef.kind
    backends[].openTelemetry.backendRef.name
    backends[].openTelemetry.backendRef.labels
    backends[].openTelemetry.body              OpenTelemetryAccessLogConfig.body
    backends[].openTelemetry.attributes        OpenTelemetryAccessLogConfig.attributes
    backends[].openTelemetry.attributes[].key
    backends[].openTelemetry.attributes[].value

Of an inbound over TLS: for some clients the same in place of what is for all, with a filter that tells them apart.
Formats may have Envoy's operators, and %KUMA_MESH% and the like. Of a route: the same with a filter by its name; what
takes such a route is not in the logs of its service. On a builtin gateway, of `to` items: the same, and where hostnames
share a port without TLS, with a filter by the end of the names of their rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from envoy.config.core.v3.config_source_pb2 import ApiVersion
from envoy.extensions.access_loggers.file.v3.file_pb2 import FileAccessLog
from envoy.extensions.access_loggers.open_telemetry.v3.logs_service_pb2 import OpenTelemetryAccessLogConfig
from envoy.extensions.access_loggers.stream.v3.stream_pb2 import StdoutAccessLog

from cp.model.envelope import sealed
from cp.model.violation import Violation, at
from cp.policies import ClientRule, Policy, in_spec
from cp.resources import deprecated
from cp.resources.checks import absent, file_path, must_be_set, port_in_text
from cp.resources.complete import completed
from cp.resources.kinds import DocumentMeta, Kind, PolicyShape
from cp.resources.matches import client_match
from cp.resources.schema import Schema, SensitiveData, SensitiveText, only_set_name
from cp.resources.spec import PolicySpec, SpecItem, SpecRule
from cp.resources.targets import GATEWAY, HTTP_ROUTE, PROXIES, SERVICES, TCP_ROUTE, AllowedTargets
from cp.resources.telemetry import OpenTelemetryConf, authority, collector, endpoints_deprecated, is_collector_address
from cp.rules.matching import in_force
from generators.build.access_logs import access_log, add_logs, except_routes, of_clients, of_routes
from generators.build.collectors import Otlp, write_grpc
from generators.envoy.log_formats import (
    OF_CONNECTIONS,
    OF_REQUESTS,
    any_value,
    command_values,
    envoy_format,
    key_values,
    proxy_fields,
)

if TYPE_CHECKING:
    from envoy.config.accesslog.v3.accesslog_pb2 import AccessLog

    from cp.resources.world import Table
    from generators.drafts import ListenerDraft, RouteDraft
    from generators.proxy import Route


class JsonField(Schema, frozen=True):
    key: str = ""
    value: SensitiveText = ""


class LogFormat(Schema, frozen=True):
    type: Literal["Plain", "Json"] | None = None
    plain: SensitiveText | None = None
    json: list[JsonField] | None = None
    omit_empty_values: bool | None = None

    @property
    def sort(self) -> str | None:
        return self.type or only_set_name(Plain=self.plain, Json=self.json)


class FileBackend(Schema, frozen=True):
    path: str = ""
    format: LogFormat | None = None


class TcpBackend(Schema, frozen=True):
    address: SensitiveText = ""
    format: LogFormat | None = None


class Attribute(Schema, frozen=True):
    key: str = ""
    value: SensitiveText = ""


class OtelBackend(OpenTelemetryConf, frozen=True):
    body: SensitiveData = None
    attributes: list[Attribute] | None = None


class LogBackend(Schema, frozen=True):
    type: Literal["File", "Tcp", "OpenTelemetry"] | None = None
    file: FileBackend | None = None
    tcp: TcpBackend | None = None
    open_telemetry: OtelBackend | None = None

    @property
    def sort(self) -> str | None:
        return self.type or only_set_name(File=self.file, Tcp=self.tcp, OpenTelemetry=self.open_telemetry)


class Conf(Schema, frozen=True):
    backends: list[LogBackend] | None = None


class Spec(PolicySpec, frozen=True):
    to: list[SpecItem[Conf]] | None = None
    from_: list[SpecItem[Conf]] | None = msgspec.field(name="from", default=None)
    rules: list[SpecRule[Conf]] | None = None


TARGETS: Final = AllowedTargets(
    top=(*PROXIES, GATEWAY),
    to=("Mesh", *SERVICES, HTTP_ROUTE, TCP_ROUTE),
    to_gateway=("Mesh", HTTP_ROUTE, TCP_ROUTE),
    from_=("Mesh",),
    http_route=("backends",),
    tcp_route=("backends",),
)

_BACKENDS: Final = tuple(f"{level}[].default.backends[]" for level in ("to", "from", "rules"))
SCHEMA_DEFAULTS: Final = {
    f"{backend}.{field}.format.omitEmptyValues": False for backend in _BACKENDS for field in ("file", "tcp")
}

_ATTRIBUTE: Final = re.compile(r"[a-z]([a-z0-9]|[._][a-z0-9])*")


@in_spec
def validate(spec: Spec, meta: DocumentMeta) -> Iterator[Violation]:
    yield from TARGETS.violations(spec, meta)
    yield from spec.needs_one_of("to", "rules", "from")
    yield from spec.rules_alone()
    for path, _, conf in spec.confs():
        yield from at(path, _conf(conf or Conf()))
    for index, rule in enumerate(spec.rules or ()):
        for position, match in enumerate(rule.matches or ()):
            yield from at(f"rules[{index}].matches[{position}]", client_match(match))


def _conf(conf: Conf) -> Iterator[Violation]:
    if conf.backends is None:
        yield absent("backends", "must be set", "`[]` logs nothing")
    for index, backend in enumerate(conf.backends or ()):
        yield from at(f"backends[{index}]", _backend(backend))


def _backend(backend: LogBackend) -> Iterator[Violation]:
    yield from must_be_set("type", backend.sort, "File, Tcp or OpenTelemetry")
    if backend.sort == "File":
        yield from at("file", _file(backend.file))
    elif backend.sort == "Tcp":
        yield from at("tcp", _tcp(backend.tcp))
    elif backend.sort == "OpenTelemetry":
        yield from at("openTelemetry", _otel(backend.open_telemetry))


def _file(file: FileBackend | None) -> Iterator[Violation]:
    if file is None:
        yield absent("", "must be set for the type File", "give it a `path`")
        return
    yield from file_path("path", file.path)
    if file.format is not None:
        yield from at("format", _format(file.format))


def _tcp(tcp: TcpBackend | None) -> Iterator[Violation]:
    if tcp is None:
        yield absent("", "must be set for the type Tcp", "give it an `address`")
        return
    yield from port_in_text("address", tcp.address)
    if not is_collector_address(tcp.address):
        hint = "write for example `logs.internal:5000`"
        yield Violation("address", f"`{tcp.address}` is not a host with a port" if tcp.address else "must be set", hint)
    if tcp.format is not None:
        yield from at("format", _format(tcp.format))


def _otel(otel: OtelBackend | None) -> Iterator[Violation]:
    yield from collector(otel)
    for index, attribute in enumerate((otel.attributes if otel is not None else None) or ()):
        yield from at(f"attributes[{index}].key", _attribute(attribute.key))


def _attribute(key: str) -> Iterator[Violation]:
    if "%" in key:
        yield Violation("", f"`{key}` must stand as it is: operators are for values", "write a name such as `mesh`")
    elif key.startswith("otel."):
        yield Violation("", f"`{key}`: names that begin with `otel.` are taken", "choose another name")
    elif _ATTRIBUTE.fullmatch(key) is None:
        hint = "begin with a letter, use lower case letters, digits and single `.` or `_` between them"
        yield Violation("", f"`{key}` is not the name of an attribute", hint)


def _format(format_: LogFormat) -> Iterator[Violation]:
    yield from must_be_set("type", format_.sort, "Plain or Json")
    if format_.sort == "Plain":
        yield from must_be_set("plain", format_.plain, 'for example `"%START_TIME% %RESPONSE_CODE%"`')
    if format_.sort == "Json":
        yield from must_be_set("json", format_.json, "a list of `key` and `value`")
        for index, field in enumerate(format_.json or ()):
            yield from must_be_set(f"json[{index}].key", field.key)
            yield from must_be_set(f"json[{index}].value", field.value)
            if not _is_json(f'{{"{field.key}": "{field.value}"}}'):
                hint = 'write a quote in it as `\\"`'
                yield Violation(f"json[{index}]", f"`{field.key}` and `{field.value}` do not make JSON", hint)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def deprecations(spec: Spec, _meta: DocumentMeta) -> Iterator[Violation]:
    yield from deprecated.top_kind(spec)
    yield from deprecated.from_list(spec)
    for path, _, conf in spec.confs():
        backends = (conf.backends if conf else None) or ()
        yield from endpoints_deprecated(f"spec.{path}.backends", (backend.open_telemetry for backend in backends))


class MeshAccessLog(Policy[Conf]):
    kind = Kind(
        name="MeshAccessLog",
        short="mal",
        plural="meshaccesslogs",
        schema=Spec,
        validate=validate,
        deprecations=deprecations,
        complete=completed(SCHEMA_DEFAULTS),
        policy=PolicyShape(to=True, from_=True, rules=True, from_as_rules=True, fields_of_clients=("backends",)),
    )
    order = 600
    conf = Conf
    targets = TARGETS

    def sidecar_fields(self, table: Table) -> frozenset[str]:
        items = (item for policy in in_force(table) for item in policy.spec.to or ())
        return frozenset(field for item in items for field in _asked(item.default))

    def fields_of_caller(self, conf: Conf) -> frozenset[str]:
        return frozenset(_asked(conf))

    def listener(self, conf: Conf, draft: ListenerDraft) -> None:
        add_logs(draft, _logs(conf, draft))

    def routes_with_own_confs(self, routes: Sequence[tuple[RouteDraft, Conf]], draft: ListenerDraft) -> None:
        except_routes(draft, [route.site for route, _ in routes])
        alike: dict[bytes, tuple[Conf, list[Route]]] = {}
        for route, conf in routes:
            alike.setdefault(msgspec.json.encode(conf), (conf, []))[1].append(route.site)
        for conf, sites in alike.values():
            left_out = [route.site for route, _ in routes if route.site not in sites]
            add_logs(draft, [of_routes(log, sites, left_out) for log in _logs(conf, draft)])

    def clients(self, rules: Sequence[ClientRule[Conf]], draft: ListenerDraft) -> None:
        if draft.over_tls:
            of_clients(draft, [(rule.match, _logs(rule.conf, draft)) for rule in rules if rule.match])


def _asked(conf: Conf | None) -> Iterator[str]:
    """The fields of a proxy that the log lines of a conf contain."""
    for backend in (conf.backends if conf is not None else None) or ():
        yield from proxy_fields(msgspec.json.encode(backend).decode())
        lines, otel = backend.file or backend.tcp, backend.open_telemetry
        if (lines is not None and lines.format is None) or (otel is not None and otel.body is None):
            yield from proxy_fields(f"{OF_REQUESTS} {OF_CONNECTIONS}")


def _logs(conf: Conf, draft: ListenerDraft) -> Iterator[AccessLog]:
    usual = OF_REQUESTS if draft.manager is not None else OF_CONNECTIONS
    answer = command_values(draft.site)
    for backend in conf.backends or ():
        if backend.sort == "File" and backend.file is not None:
            yield _file_log(backend.file, usual, answer)
        elif backend.sort == "Tcp" and backend.tcp is not None:
            yield _tcp_log(backend.tcp, usual, answer)
        elif backend.sort == "OpenTelemetry" and backend.open_telemetry is not None:
            yield from _otel_log(backend.open_telemetry, usual, answer, draft)


def _file_log(file: FileBackend, usual: str, answer: Mapping[str, str]) -> AccessLog:
    log = FileAccessLog(path=file.path)
    format_ = file.format or LogFormat()
    log.log_format.omit_empty_values = bool(format_.omit_empty_values)
    line = _line(format_, usual, answer)
    if isinstance(line, str):
        log.log_format.text_format_source.inline_string = line
    else:
        log.log_format.json_format.update(line)
    return access_log("envoy.access_loggers.file", log)


def _tcp_log(tcp: TcpBackend, usual: str, answer: Mapping[str, str]) -> AccessLog:
    log = StdoutAccessLog()
    format_ = tcp.format or LogFormat()
    log.log_format.omit_empty_values = bool(format_.omit_empty_values)
    log.log_format.json_format.update(sealed(authority(tcp.address), _line(format_, usual, answer)))
    return access_log("envoy.access_loggers.stdout", log)


def _line(format_: LogFormat, usual: str, answer: Mapping[str, str]) -> str | dict[str, str]:
    """A text with its line break, or an object."""
    if format_.sort == "Json" and format_.json:
        return {field.key: envoy_format(field.value, answer) for field in format_.json}
    return envoy_format(format_.plain or usual, answer) + "\n"


def _otel_log(otel: OtelBackend, usual: str, answer: Mapping[str, str], draft: ListenerDraft) -> Iterator[AccessLog]:
    to = Otlp.parse(otel.endpoint or "")
    if to is None or to.is_http:  # Envoy sends logs by gRPC alone; lint tells of a collector that takes HTTP
        return
    log = OpenTelemetryAccessLogConfig()
    log.common_config.log_name = "MeshAccessLog"
    log.common_config.transport_api_version = ApiVersion.V3
    write_grpc(log.common_config.grpc_service, to.collector, draft)
    log.body.CopyFrom(any_value(usual if otel.body is None else otel.body, answer))
    attributes = ((attribute.key, attribute.value) for attribute in otel.attributes or ())
    log.attributes.CopyFrom(key_values(attributes, answer))
    yield access_log("envoy.access_loggers.open_telemetry", log)


POLICY = MeshAccessLog()
