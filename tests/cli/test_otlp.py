"""Metrics as Prometheus tells them, in OpenTelemetry's words."""

from __future__ import annotations

from typing import Any

from cp.agent.otlp import CounterSpan, families, request
from cp.model.pushing import MetricSelection, PushOrders, read, written

PAGE = b"""\
# HELP asked_total Requests.
# TYPE asked_total counter
asked_total{path="/a"} 3
asked_total{path="/b"} 4
# TYPE open gauge
open 2.5
# TYPE took histogram
took_bucket{path="/a",le="1"} 2
took_bucket{path="/a",le="5"} 3
took_bucket{path="/a",le="+Inf"} 7
took_sum{path="/a"} 40.5
took_count{path="/a"} 7
# TYPE size summary
size{quantile="0.5"} 10
size_sum 100
size_count 9
odd 1
"""


def metrics() -> dict[str, Any]:
    (of_resource,) = request({"service.name": "web"}, [("envoy", families(PAGE))], CounterSpan(1, 2)).resource_metrics
    (scope,) = of_resource.instrumentation_library_metrics
    assert scope.instrumentation_library.name == "envoy"
    assert [(attribute.key, attribute.value.string_value) for attribute in of_resource.resource.attributes] == [
        ("service.name", "web")
    ]
    return {metric.name: metric for metric in scope.metrics}


def path(point: Any) -> dict[str, str]:
    return {attribute.key: attribute.value.string_value for attribute in point.attributes}


def test_a_counter_is_a_sum_that_only_grows() -> None:
    counter = metrics()["asked_total"]

    assert counter.description == "Requests."
    assert counter.sum.is_monotonic
    assert counter.sum.aggregation_temporality == 2
    assert [(path(point), point.as_double) for point in counter.sum.data_points] == [
        ({"path": "/a"}, 3),
        ({"path": "/b"}, 4),
    ]
    assert {(point.start_time_unix_nano, point.time_unix_nano) for point in counter.sum.data_points} == {(1, 2)}


def test_what_goes_up_and_down_and_what_nobody_says_anything_of_is_a_gauge() -> None:
    by_name = metrics()

    assert [point.as_double for point in by_name["open"].gauge.data_points] == [2.5]
    assert [point.as_double for point in by_name["odd"].gauge.data_points] == [1]


def test_buckets_have_their_own_counts_and_not_all_below_them() -> None:
    (took,) = metrics()["took"].histogram.data_points

    assert path(took) == {"path": "/a"}
    assert (list(took.explicit_bounds), list(took.bucket_counts)) == ([1, 5], [2, 1, 4])
    assert (took.count, took.sum) == (7, 40.5)


def test_a_summary_keeps_its_quantiles() -> None:
    (size,) = metrics()["size"].summary.data_points

    assert [(quantile.quantile, quantile.value) for quantile in size.quantile_values] == [(0.5, 10)]
    assert (size.count, size.sum) == (9, 100)


def test_a_page_is_taken_up_to_where_it_cannot_be_read() -> None:
    assert [metric.name for metric in families(b"a 1\nb 2\nc nonsense\nd 4\n")] == ["a", "b"]
    assert families(b"<html>") == []


def test_what_is_included_is_sent_whatever_else_is_said() -> None:
    orders = PushOrders(
        profile=(MetricSelection("Prefix", "a"),),
        include=(MetricSelection("Contains", "_in_"), MetricSelection("Regex", "(xy)+$")),
        exclude=(MetricSelection("Exact", "ab"), MetricSelection("Contains", "in")),
    )

    names = ("a", "b", "ab", "ain", "a_in_a", "b_in_b", "bxyxy", "xyb")
    assert [name for name in names if orders.are_about(name)] == ["a", "a_in_a", "b_in_b", "bxyxy"]


def test_orders_that_are_not_understood_are_none() -> None:
    orders = PushOrders(profile=(MetricSelection("Prefix", ""),))

    assert read(written(orders)) == orders
    assert read('{"collectors": 1}') is None
    assert read("") is None
