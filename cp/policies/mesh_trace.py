"""MeshTrace: which requests are traced, and where their spans go.

backends                                 HttpConnectionManager.tracing.provider; one
backends[].type                          which of these:
backends[].zipkin                        ZipkinConfig
backends[].zipkin.url                    ZipkinConfig.collector_cluster, collector_endpoint, collector_hostname
backends[].zipkin.apiVersion             ZipkinConfig.collector_endpoint_version
backends[].zipkin.traceId128bit          ZipkinConfig.trace_id_128bit
backends[].zipkin.sharedSpanContext      ZipkinConfig.shared_span_context
backends[].datadog                       DatadogConfig
backends[].datadog.url                   DatadogConfig.collector_cluster
backends[].datadog.splitService          DatadogConfig.service_name, with the destination in it
backends[].openTelemetry                 OpenTelemetryConfig
backends[].openTelemetry.endpoint        OpenTelemetryConfig.grpc_service
backends[].openTelemetry.backendRef      the same, from a MeshOpenTelemetryBackend; of one that takes http, http_service
backends[].openTelemetry.backendRef.kind
backends[].openTelemetry.backendRef.name
backends[].openTelemetry.backendRef.labels
sampling                                 percentages:
sampling.overall                         Tracing.overall_sampling
sampling.client                          Tracing.client_sampling
sampling.random                          Tracing.random_sampling
tags                                     Tracing.custom_tags
tags[].name                              CustomTag.tag
tags[].literal                           CustomTag.literal
tags[].header                            CustomTag.request_header
tags[].header.name
tags[].header.default

On listeners of HTTP, inbound and outbound. What is not sampled otherwise, Envoy samples in full. On those of a builtin
gateway with Tracing.spawn_upstream_span: the call of the client and that of the service are spans of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from envoy.config.trace.v3.zipkin_pb2 import ZipkinConfig

from cp.model.violation import Violation, ViolationSort, at
from cp.policies import Policy, in_spec
from cp.resources import deprecated
from cp.resources.checks import absent, incomplete, must_be_set, percentage
from cp.resources.complete import completed
from cp.resources.kinds import DocumentMeta, Kind, PolicyShape
from cp.resources.schema import Number, Schema, SensitiveText
from cp.resources.spec import PolicySpec
from cp.resources.targets import GATEWAY, AllowedTargets
from cp.resources.telemetry import OpenTelemetryConf, Url, collector, endpoints_deprecated, is_collector_address
from cp.rules.matching import in_force
from generators.build import tracing
from generators.build.collectors import Collector, Otlp

if TYPE_CHECKING:
    from envoy.config.trace.v3.trace_pb2 import Tracing
    from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
        HttpConnectionManager,
    )
    from envoy.type.v3.percent_pb2 import Percent

    from cp.resources.world import Table
    from generators.drafts import ListenerDraft


class Zipkin(Schema, frozen=True):
    url: SensitiveText = ""
    api_version: Literal["httpJson", "httpProto"] | None = None
    trace_id_128bit: bool | None = msgspec.field(name="traceId128bit", default=None)
    shared_span_context: bool | None = None


class Datadog(Schema, frozen=True):
    url: SensitiveText = ""
    split_service: bool | None = None


class TraceBackend(Schema, frozen=True):
    type: Literal["Zipkin", "Datadog", "OpenTelemetry"] | None = None
    zipkin: Zipkin | None = None
    datadog: Datadog | None = None
    open_telemetry: OpenTelemetryConf | None = None


class Sampling(Schema, frozen=True):
    overall: Number | None = None
    client: Number | None = None
    random: Number | None = None


class HeaderTag(Schema, frozen=True):
    name: str = ""
    default: SensitiveText | None = None


class TraceTag(Schema, frozen=True):
    name: str = ""
    literal: SensitiveText | None = None
    header: HeaderTag | None = None


class Conf(Schema, frozen=True):
    backends: list[TraceBackend] | None = None
    sampling: Sampling | None = None
    tags: list[TraceTag] | None = None


class Spec(PolicySpec, frozen=True):
    default: Conf | None = None


TARGETS: Final = AllowedTargets(top_system=(GATEWAY,), gateway_tags=False)
SCHEMA_DEFAULTS: Final = {
    "default.backends[].zipkin.apiVersion": "httpJson",
    "default.backends[].zipkin.traceId128bit": False,
    "default.backends[].zipkin.sharedSpanContext": True,
    "default.backends[].datadog.splitService": False,
}

_LAST_PORT: Final = 65535
_PORTS: Final = {"http": 80, "https": 443}
_JSON: Final = ZipkinConfig.HTTP_JSON
_ZIPKIN_HINT: Final = "write for example `http://zipkin:9411/api/v2/spans`"
_HEADER: Final = re.compile(r"[!-~]+")


@in_spec
def validate(spec: Spec, meta: DocumentMeta) -> Iterator[Violation]:
    yield from TARGETS.violations(spec, meta)
    yield from at("default", _conf(spec.default or Conf()))


def _conf(conf: Conf) -> Iterator[Violation]:
    if conf.backends is None:
        yield absent("backends", "must be set", "`[]` traces nothing")
    elif len(conf.backends) > 1:
        yield Violation("backends", f"are {len(conf.backends)}, and one is what there can be", "keep one of them")
    elif conf.backends:
        yield from at("backends[0]", _backend(conf.backends[0]))
    for index, tag in enumerate(conf.tags or ()):
        yield from at(f"tags[{index}]", _tag(tag))
    sampling = conf.sampling or Sampling()
    yield from percentage("sampling.overall", sampling.overall)
    yield from percentage("sampling.client", sampling.client)
    yield from percentage("sampling.random", sampling.random)


def _backend(backend: TraceBackend) -> Iterator[Violation]:
    yield from must_be_set("type", backend.type, "Zipkin, Datadog or OpenTelemetry")
    if backend.type == "Zipkin":
        yield from at("zipkin", _zipkin(backend.zipkin))
    elif backend.type == "Datadog":
        yield from at("datadog", _datadog(backend.datadog))
    elif backend.type == "OpenTelemetry":
        yield from at("openTelemetry", collector(backend.open_telemetry))


def _zipkin(zipkin: Zipkin | None) -> Iterator[Violation]:
    if zipkin is None:
        yield absent("", "must be set for the type Zipkin", "give it a `url`")
        return
    yield from must_be_set("url", zipkin.url)
    if zipkin.url and not is_collector_address(zipkin.url):
        yield Violation("url", f"`{zipkin.url}` is not a URL", _ZIPKIN_HINT)
    elif zipkin.url and _zipkin_port(_zipkin_url(zipkin.url)) == 0:
        sort = ViolationSort.WRITE
        yield Violation("url", f"`{zipkin.url}` has no port that there can be", _ZIPKIN_HINT, sort=sort)


def _datadog(datadog: Datadog | None) -> Iterator[Violation]:
    if datadog is None:
        yield absent("", "must be set for the type Datadog", "give it a `url`")
        return
    hint = "write for example `http://datadog-agent:8126`"
    url = Url.parse(datadog.url)
    if url is None:
        yield Violation("url", f"`{datadog.url}` is not a URL" if datadog.url else "must be set", hint)
        return
    if url.scheme != "http":
        yield Violation("url", f"must be plain http, not {url.scheme}", hint)
    if not 0 < (url.port or 0) <= _LAST_PORT:
        yield Violation("url", f"`{datadog.url}` has no port that there can be", hint)
    if url.user or url.path_and_query:
        yield Violation("url", f"must end with the port, and not with `{url.path_and_query or url.user}`", hint)


def _tag(tag: TraceTag) -> Iterator[Violation]:
    yield from must_be_set("name", tag.name)
    if (tag.header is None) == (tag.literal is None):
        yield Violation("", "must have either `literal` or `header`", "the one is a text, the other from the request")
    if tag.header is not None and not tag.header.name:
        yield incomplete("header.name")


def deprecations(spec: Spec, _meta: DocumentMeta) -> Iterator[Violation]:
    yield from deprecated.top_kind(spec)
    backends = (spec.default or Conf()).backends or ()
    yield from endpoints_deprecated("spec.default.backends", (backend.open_telemetry for backend in backends))


class MeshTrace(Policy[Conf]):
    kind = Kind(
        name="MeshTrace",
        short="mtr",
        plural="meshtraces",
        schema=Spec,
        validate=validate,
        deprecations=deprecations,
        complete=completed(SCHEMA_DEFAULTS),
        policy=PolicyShape(single=True),
    )
    order = 700
    needed_list = "backends"
    conf = Conf
    targets = TARGETS

    def sidecar_fields(self, table: Table) -> frozenset[str]:
        confs = (policy.spec.default or Conf() for policy in in_force(table))
        return frozenset[str]().union(*map(self.fields_of_caller, confs))

    def fields_of_caller(self, conf: Conf) -> frozenset[str]:
        """Zipkin needs no field: Envoy takes the service from its bootstrap."""
        by_service = any(backend.type != "Zipkin" for backend in conf.backends or ())
        return frozenset({"service"}) if by_service else frozenset()

    def listener(self, conf: Conf, draft: ListenerDraft) -> None:
        if draft.manager is None:  # without HTTP nothing is traced, and a cluster of the collector would be for nobody
            return
        provider = _provider(conf, draft)
        if provider is not None:
            draft.manager.tracing.provider.CopyFrom(provider)
            if draft.is_gateway:  # a gateway calls on behalf of somebody else, and the trace shows both calls
                draft.manager.tracing.spawn_upstream_span.value = True
            _write_sampling(draft.manager.tracing, conf.sampling or Sampling())
            _write_tags(draft.manager.tracing, conf.tags or [])


def _provider(conf: Conf, draft: ListenerDraft) -> Tracing.Http | None:
    backend = (conf.backends or [TraceBackend()])[0]
    service = draft.site.sidecar.service
    if backend.type == "Zipkin" and backend.zipkin is not None:
        return _zipkin_provider(backend.zipkin, draft)
    if backend.type == "Datadog" and backend.datadog is not None:
        url = Url.parse(backend.datadog.url)
        agent = Collector(url.host.strip("[]"), url.port) if url is not None and url.port is not None else None
        name = _part(service, draft) if backend.datadog.split_service else service
        return None if agent is None else tracing.datadog(agent, name, draft)
    if backend.type == "OpenTelemetry" and backend.open_telemetry is not None:
        collected_by = Otlp.parse(backend.open_telemetry.endpoint or "")
        return None if collected_by is None else tracing.open_telemetry(collected_by, service, draft)
    return None


def _zipkin_provider(zipkin: Zipkin, draft: ListenerDraft) -> Tracing.Http | None:
    url = _zipkin_url(zipkin.url)
    port = _zipkin_port(url)
    if url is None or port == 0:
        return None
    tls = url.scheme == "https"
    config = tracing.zipkin(Collector(url.host.strip("[]"), port), url.path_and_query or "/", draft, tls=tls)
    config.collector_endpoint_version = ZipkinConfig.HTTP_PROTO if zipkin.api_version == "httpProto" else _JSON
    config.trace_id_128bit = bool(zipkin.trace_id_128bit)
    config.shared_span_context.value = zipkin.shared_span_context is not False
    return tracing.provider("envoy.tracers.zipkin", config)


def _zipkin_url(text: str) -> Url | None:
    return Url.parse(text if "://" in text else f"http://{text}")


def _zipkin_port(url: Url | None) -> int:
    """Return the port of a collector; 0 if there is none that there can be."""
    if url is None:
        return 0
    port = url.port if url.port is not None else _PORTS.get(url.scheme, 0)
    return port if port <= _LAST_PORT else 0


def _part(service: str, draft: ListenerDraft) -> str:
    """The part of a service on one listener, as one of several services."""
    is_called = draft.is_inbound or draft.is_gateway
    return f"{service}_INBOUND" if is_called else f"{service}_OUTBOUND_{draft.site.service}"


def _write_sampling(message: HttpConnectionManager.Tracing, sampling: Sampling) -> None:
    _write_share(message.overall_sampling, sampling.overall)
    _write_share(message.client_sampling, sampling.client)
    _write_share(message.random_sampling, sampling.random)


def _write_share(field: Percent, share: Number | None) -> None:
    """None leaves Envoy's own default in place; zero is written."""
    if share is not None:
        field.value = float(share)
        field.SetInParent()


def _write_tags(message: HttpConnectionManager.Tracing, tags: list[TraceTag]) -> None:
    for tag in tags:
        if tag.literal:  # Envoy NACKs an empty literal
            message.custom_tags.add(tag=tag.name).literal.value = tag.literal
        elif tag.header is not None and _HEADER.fullmatch(tag.header.name):
            header = message.custom_tags.add(tag=tag.name).request_header
            header.name, header.default_value = tag.header.name, tag.header.default or ""


POLICY = MeshTrace()
