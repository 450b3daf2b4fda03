"""A legacy policy and the policy with a targetRef that says the same refuse the same values, as Envoy does."""

from __future__ import annotations

from typing import Any, Final

import pytest
from envoy.type.v3.http_status_pb2 import StatusCode

from cp.model.document import Document
from cp.model.names import Key
from cp.resources.checks import ERRORS, FIRST_ERROR
from cp.resources.parse import parse
from tests.resources.reading import every_kind

SERVICES: Final = [{"match": {"kuma.io/service": "*"}}]
MESH: Final = {"targetRef": {"kind": "Mesh"}}
RATE: Final = {"requestRate": {"num": 1, "interval": "1s"}}
TIMES: Final = {"interval": "1s", "timeout": "1s", "unhealthyThreshold": 1, "healthyThreshold": 1}
HEADERS: Final = (
    *(("x-a", "b"), ("x-a", "b\tc"), ("x-a", "é"), ("a" * 256, "b"), ("x-a", "b" * 16384)),
    *(("x\na", "b"), ("x a", "b"), (":status", "b"), (":path", "b"), ("host", "b"), ("ä", "b")),
    *(("x-a", "b\nc"), ("x-a", "b\0c"), ("a" * 257, "b"), ("x-a", "b" * 16385)),
)


def is_refused(kind: str, **fields: Any) -> bool:
    document = Document(Key(kind, "default", "it"), {"type": kind, "mesh": "default", "name": "it", **fields})
    return bool(parse(document, every_kind()).violations)


def legacy(kind: str, conf: Any) -> bool:
    return is_refused(kind, sources=SERVICES, destinations=SERVICES, conf=conf)


def of_limits(answer: Any, legacy_answer: Any) -> tuple[bool, bool]:
    local = {"http": {**RATE, "onRateLimit": answer}}
    http = {"requests": 1, "interval": "1s", "onRateLimit": legacy_answer}
    return (
        is_refused(
            "MeshRateLimit",
            spec={
                "targetRef": {"kind": "Mesh", "proxyTypes": ["Sidecar"]},
                "from": [{**MESH, "default": {"local": local}}],
            },
        ),
        legacy("RateLimit", {"http": http}),
    )


def of_checks(http: Any, legacy_http: Any) -> tuple[bool, bool]:
    return (
        is_refused("MeshHealthCheck", spec={"to": [{**MESH, "default": {**TIMES, "http": http}}]}),
        legacy("HealthCheck", {**TIMES, "http": legacy_http}),
    )


@pytest.mark.parametrize("header", HEADERS)
def test_of_headers(header: tuple[str, str]) -> None:
    name, value = header
    changes, is_expected = {"set": [{"name": name, "value": value}]}, HEADERS.index(header) >= 5

    assert of_limits({"headers": changes}, {"headers": [{"key": name, "value": value}]}) == (is_expected, is_expected)
    in_checks = {"path": "/", "requestHeadersToAdd": [{"header": {"key": name, "value": value}}]}
    assert of_checks({"path": "/", "requestHeadersToAdd": changes}, in_checks) == (is_expected, is_expected)


@pytest.mark.parametrize("status", [0, 1, 200, 399, 400, 418, 429, 451, 503, 599, 999])
def test_of_the_status_of_an_answer(status: int) -> None:
    is_expected = status == 0 or (status >= 400 and status not in StatusCode.values())

    assert of_limits({"status": status}, {"status": status}) == (is_expected, is_expected)


def test_envoy_answers_with_these_errors() -> None:
    assert {status for status in StatusCode.values() if status >= FIRST_ERROR} == ERRORS


@pytest.mark.parametrize("path", ["/", "/a b", "/\n", "/\x7f", ""])
def test_of_the_path_of_a_check(path: str) -> None:
    of_new, of_legacy = of_checks({"path": path}, {"path": path})

    assert of_new == of_legacy == (path not in {"/", "/a b"})


@pytest.mark.parametrize("count", [10, 11])
def test_of_how_many_headers_an_answer_has(count: int) -> None:
    names = [f"x-{n}" for n in range(count)]
    new = {"headers": {"set": [{"name": name, "value": "a"} for name in names]}}
    old = {"headers": [{"key": name, "value": "a"} for name in names]}

    assert of_limits(new, old) == (count > 10, count > 10)


def test_names_of_headers_are_in_any_case() -> None:
    assert not legacy(
        "HealthCheck", {**TIMES, "http": {"path": "/", "requestHeadersToAdd": [{"header": {"key": "X-A"}}]}}
    )
