"""Converts Prometheus metrics into OpenTelemetry's, and sends them over OTLP."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import Final

import grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest  # type: ignore[import-untyped]
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2 as otel  # type: ignore[import-untyped]
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from cp.client.http import NO_ANSWER, HttpRequest, NotConnected, whole_answer
from cp.model.pushing import MetricCollector

_EXPORT: Final = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
_PATIENCE: Final = 10.0
_SUCCESS: Final = range(200, 300)
_CUMULATIVE: Final = otel.AGGREGATION_TEMPORALITY_CUMULATIVE


@dataclass(frozen=True, slots=True)
class CounterSpan:
    """The time that counters cover, in nanoseconds since the epoch."""

    begun: int
    now: int


def families(page: bytes) -> list[Metric]:
    """The metrics on a Prometheus page, up to the first line that cannot be parsed."""
    metrics: list[Metric] = []
    with suppress(ValueError):
        for family in text_string_to_metric_families(page.decode(errors="replace")):
            if family.type == "counter" and family.samples:
                family.name = family.samples[0].name  # the parser takes `_total` away
            metrics.append(family)
    return metrics


def request(
    resource: Mapping[str, str], scopes: Iterable[tuple[str, Iterable[Metric]]], span: CounterSpan
) -> ExportMetricsServiceRequest:
    """An export request for a proxy: a scope for Envoy's own metrics, and one for each application."""
    export = ExportMetricsServiceRequest()
    of_resource = export.resource_metrics.add()
    of_resource.resource.attributes.extend(_attributes(resource))
    for name, scope_families in scopes:
        scope = of_resource.instrumentation_library_metrics.add()  # renamed to scope_metrics since, with the same bytes
        scope.instrumentation_library.name = name
        scope.metrics.extend(_metric(family, span) for family in scope_families)
    return export


def send(collector: MetricCollector, export: ExportMetricsServiceRequest) -> str:
    """Send once. Returns the error, or an empty text."""
    try:
        if collector.is_http:
            _post(collector, export)
        else:
            _call(collector, export)
    except (NotConnected, *NO_ANSWER) as error:
        return str(error) or type(error).__name__
    except grpc.RpcError as error:
        return str(getattr(error, "details", str)() or error)  # only failed calls have `details`
    return ""


def _post(collector: MetricCollector, export: ExportMetricsServiceRequest) -> None:
    content, headers = export.SerializeToString(), {"content-type": "application/x-protobuf"}
    url = f"http://{collector.authority}{collector.path}/v1/metrics"
    answer = whole_answer(HttpRequest("POST", url, _PATIENCE, content, headers))
    if answer.status_code not in _SUCCESS:  # where a redirect leads, nobody has said
        raise HTTPException(f"{url} answers {answer.status_code}")


def _call(collector: MetricCollector, export: ExportMetricsServiceRequest) -> None:
    with grpc.insecure_channel(collector.authority) as channel:
        call = channel.unary_unary(_EXPORT, ExportMetricsServiceRequest.SerializeToString, bytes)
        call(export, timeout=_PATIENCE)


def _metric(family: Metric, span: CounterSpan) -> otel.Metric:
    metric = otel.Metric(name=family.name, description=family.documentation)
    if family.type == "counter":
        metric.sum.is_monotonic, metric.sum.aggregation_temporality = True, _CUMULATIVE
        counters = (sample for sample in family.samples if not sample.name.endswith("_created"))
        metric.sum.data_points.extend(_number(sample, span) for sample in counters)
    elif family.type == "histogram":
        metric.histogram.aggregation_temporality = _CUMULATIVE
        metric.histogram.data_points.extend(_histograms(family.samples, span))
    elif family.type == "summary":
        metric.summary.data_points.extend(_summaries(family.samples, span))
    else:
        metric.gauge.data_points.extend(_number(sample, span) for sample in family.samples)
    return metric


def _number(sample: Sample, span: CounterSpan) -> otel.NumberDataPoint:
    point = otel.NumberDataPoint(as_double=sample.value, attributes=_attributes(sample.labels))
    point.start_time_unix_nano, point.time_unix_nano = span.begun, span.now
    return point


def _histograms(samples: Iterable[Sample], span: CounterSpan) -> Iterator[otel.HistogramDataPoint]:
    for labels, parts in _by_labels(samples, "le"):
        buckets = sorted((float(sample.labels["le"]), int(sample.value)) for sample in parts if "le" in sample.labels)
        counts = [count for _, count in buckets]
        yield otel.HistogramDataPoint(
            attributes=_attributes(labels),
            start_time_unix_nano=span.begun,
            time_unix_nano=span.now,
            count=counts[-1] if counts else 0,
            sum=sum(sample.value for sample in parts if sample.name.endswith("_sum")),
            bucket_counts=[more - less for less, more in zip([0, *counts], counts, strict=False)],
            explicit_bounds=[bound for bound, _ in buckets if not math.isinf(bound)],
        )


def _summaries(samples: Iterable[Sample], span: CounterSpan) -> Iterator[otel.SummaryDataPoint]:
    for labels, parts in _by_labels(samples, "quantile"):
        point = otel.SummaryDataPoint(attributes=_attributes(labels))
        point.start_time_unix_nano, point.time_unix_nano = span.begun, span.now
        for sample in parts:
            if "quantile" in sample.labels:
                point.quantile_values.add(quantile=float(sample.labels["quantile"]), value=sample.value)
            elif sample.name.endswith("_sum"):
                point.sum = sample.value
            elif sample.name.endswith("_count"):
                point.count = int(sample.value)
        yield point


def _by_labels(samples: Iterable[Sample], excluded_label: str) -> Iterator[tuple[Mapping[str, str], list[Sample]]]:
    """The samples in groups whose labels are equal but for the excluded one."""
    groups: dict[tuple[tuple[str, str], ...], list[Sample]] = defaultdict(list)
    for sample in samples:
        key = tuple(sorted((name, value) for name, value in sample.labels.items() if name != excluded_label))
        groups[key].append(sample)
    return ((dict(key), parts) for key, parts in groups.items())


def _attributes(labels: Mapping[str, str]) -> list[KeyValue]:
    attributes: list[KeyValue] = []
    for name, value in labels.items():
        attributes.append(KeyValue(key=name))
        attributes[-1].value.string_value = value
    return attributes
