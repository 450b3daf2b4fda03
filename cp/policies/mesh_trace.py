"""MeshTrace: which requests are traced, and where their spans go.

backends                                 HttpConnectionManager.tracing.provider; one
backends[].type                          which of these:
backends[].zipkin                        ZipkinConfig
backends[].zipkin.url                    ZipkinConfig.collector_cluster, collector_endpoint
backends[].zipkin.apiVersion             ZipkinConfig.collector_endpoint_version
backends[].zipkin.traceId128bit          ZipkinConfig.trace_id_128bit
backends[].zipkin.sharedSpanContext      ZipkinConfig.shared_span_context
backends[].datadog                       DatadogConfig
backends[].datadog.url                   DatadogConfig.collector_cluster
backends[].datadog.splitService          DatadogConfig.service_name, with the destination in it
backends[].openTelemetry                 OpenTelemetryConfig
backends[].openTelemetry.endpoint        OpenTelemetryConfig.grpc_service
backends[].openTelemetry.backendRef      the same, from a MeshOpenTelemetryBackend
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
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from cp.model.violation import Violation, at
from cp.policies import Policy
from cp.resources import deprecated
from cp.resources.checks import absent, incomplete, must_be_set, percentage
from cp.resources.complete import completed
from cp.resources.kinds import Kind, Meta, PolicyShape
from cp.resources.schema import Number, Schema
from cp.resources.spec import PolicySpec
from cp.resources.targets import GATEWAY, Targets
from cp.resources.telemetry import BackendResourceRef, Url, collector, endpoint_deprecated, is_place


class Zipkin(Schema, frozen=True):
    url: str = ""
    api_version: Literal["httpJson", "httpProto"] | None = None
    trace_id_128bit: bool | None = msgspec.field(name="traceId128bit", default=None)
    shared_span_context: bool | None = None


class Datadog(Schema, frozen=True):
    url: str = ""
    split_service: bool | None = None


class OpenTelemetry(Schema, frozen=True):
    endpoint: str | None = None
    backend_ref: BackendResourceRef | None = None


class Backend(Schema, frozen=True):
    type: Literal["Zipkin", "Datadog", "OpenTelemetry"] | None = None
    zipkin: Zipkin | None = None
    datadog: Datadog | None = None
    open_telemetry: OpenTelemetry | None = None


class Sampling(Schema, frozen=True):
    overall: Number | None = None
    client: Number | None = None
    random: Number | None = None


class HeaderTag(Schema, frozen=True):
    name: str = ""
    default: str | None = None


class Tag(Schema, frozen=True):
    name: str = ""
    literal: str | None = None
    header: HeaderTag | None = None


class Conf(Schema, frozen=True):
    backends: list[Backend] | None = None
    sampling: Sampling | None = None
    tags: list[Tag] | None = None


class Spec(PolicySpec, frozen=True):
    default: Conf | None = None


TARGETS: Final = Targets(top_system=(GATEWAY,), gateway_tags=False)
SCHEMA_DEFAULTS: Final = {
    "default.backends[].zipkin.apiVersion": "httpJson",
    "default.backends[].zipkin.traceId128bit": False,
    "default.backends[].zipkin.sharedSpanContext": True,
    "default.backends[].datadog.splitService": False,
}

_LAST_PORT: Final = 65535


def validate(spec: Spec, meta: Meta) -> Iterator[Violation]:
    yield from at("spec", TARGETS.violations(spec, meta))
    yield from at("spec.default", _conf(spec.default or Conf()))


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


def _backend(backend: Backend) -> Iterator[Violation]:
    yield from must_be_set("type", backend.type, "Zipkin, Datadog or OpenTelemetry")
    if backend.type == "Zipkin":
        yield from at("zipkin", _zipkin(backend.zipkin))
    elif backend.type == "Datadog":
        yield from at("datadog", _datadog(backend.datadog))
    elif backend.type == "OpenTelemetry":
        yield from at("openTelemetry", _otel(backend.open_telemetry))


def _zipkin(zipkin: Zipkin | None) -> Iterator[Violation]:
    if zipkin is None:
        yield absent("", "must be set for the type Zipkin", "give it a `url`")
        return
    yield from must_be_set("url", zipkin.url)
    if zipkin.url and not is_place(zipkin.url):
        yield Violation("url", f"`{zipkin.url}` is not a URL", "write for example `http://zipkin:9411/api/v2/spans`")


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
    if url.user or url.rest:
        yield Violation("url", f"must end with the port, and not with `{url.rest or url.user}`", hint)


def _otel(otel: OpenTelemetry | None) -> Iterator[Violation]:
    if otel is None:
        yield absent("", "must be set for the type OpenTelemetry", "give it a `backendRef`")
    else:
        yield from collector(otel.endpoint, otel.backend_ref)


def _tag(tag: Tag) -> Iterator[Violation]:
    yield from must_be_set("name", tag.name)
    if (tag.header is None) == (tag.literal is None):
        yield Violation("", "must have either `literal` or `header`", "the one is a text, the other from the request")
    if tag.header is not None and not tag.header.name:
        yield incomplete("header.name")


def deprecations(spec: Spec, _meta: Meta) -> Iterator[Violation]:
    yield from deprecated.top_kind(spec)
    for index, backend in enumerate((spec.default or Conf()).backends or ()):
        if (otel := backend.open_telemetry) is not None:
            path = f"spec.default.backends[{index}].openTelemetry"
            yield from endpoint_deprecated(path, otel.endpoint, otel.backend_ref)


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
    conf = Conf
    targets = TARGETS


POLICY = MeshTrace()
