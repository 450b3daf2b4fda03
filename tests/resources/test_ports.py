"""A port that there cannot be is rejected wherever a document has one; one that is stored stays in use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from cp.model.document import Document
from cp.model.names import Key
from cp.policies import discover, kinds
from cp.resources.parse import UNWRITABLE, parse

KINDS: Final = kinds(discover())
MESH: Final = {"kind": "Mesh"}
WEB: Final = {"port": 80, "tags": {"kuma.io/service": "web"}}

Case = tuple[str, dict[str, Any]]


def _default(**conf: Any) -> dict[str, Any]:
    return {"spec": {"default": conf}}


def _backend(kind: str, field: str, **conf: Any) -> dict[str, Any]:
    return {"backends": [{"type": kind, field: conf}]}


def _otel(text: str) -> dict[str, Any]:
    return _backend("OpenTelemetry", "openTelemetry", endpoint=text)


def _route(**conf: Any) -> dict[str, Any]:
    return {"spec": {"to": [{"targetRef": {"kind": "MeshService", "name": "b"}, "rules": [{"default": conf}]}]}}


def _http_route(**conf: Any) -> dict[str, Any]:
    route = _route(**conf)
    route["spec"]["to"][0]["rules"][0]["matches"] = [{"path": {"type": "PathPrefix", "value": "/"}}]
    return route


def _mesh(section: str, kind: str, **conf: Any) -> dict[str, Any]:
    return {section: {"backends": [{"name": "a", "type": kind, "conf": conf}]}}


def _proxy(**more: Any) -> dict[str, Any]:
    return {"networking": {"address": "127.0.0.1", "inbound": [WEB], **more}}


def documents(port: int) -> Iterator[Case]:
    """Every field in which a port was accepted that there cannot be."""
    reference = {"kind": "MeshService", "name": "c", "port": port}
    to_service = {"dataplaneTags": {"kuma.io/service": "web"}}
    yield "MeshTrace", _default(**_backend("Zipkin", "zipkin", url=f"http://z:{port}/api"))
    yield "MeshTrace", _default(**_otel(f"z:{port}"))
    yield "MeshMetric", _default(**_otel(f"z:{port}"))
    yield "MeshAccessLog", {"spec": {"to": [{"targetRef": MESH, "default": _otel(f"z:{port}")}]}}
    tcp = _backend("Tcp", "tcp", address=f"z:{port}")
    yield "MeshAccessLog", {"spec": {"to": [{"targetRef": MESH, "default": tcp}]}}
    yield "Mesh", _mesh("tracing", "zipkin", url=f"http://z:{port}/api")
    yield "MeshService", {"spec": {"selector": to_service, "ports": [{"port": 80, "targetPort": port}]}}
    yield "MeshHTTPRoute", _http_route(backendRefs=[reference])
    mirror = {"type": "RequestMirror", "requestMirror": {"backendRef": reference}}
    yield "MeshHTTPRoute", _http_route(filters=[mirror])
    yield "MeshTCPRoute", _route(backendRefs=[reference])


def documents_with_zero(port: int) -> Iterator[Case]:
    """Fields in which 0 is none."""
    yield "Mesh", _mesh("metrics", "prometheus", port=port)
    yield "Mesh", _mesh("metrics", "prometheus", aggregate=[{"name": "x", "port": port}])
    yield "Dataplane", _proxy(admin={"port": port})
    yield "Dataplane", {**_proxy(), "metrics": {"type": "prometheus", "conf": {"port": port}}}


def cases() -> Iterator[Case]:
    for port in (0, 65_536, 99_999, 1_000_000_000):
        yield from documents(port)
    yield from documents_with_zero(65_536)
    yield "MeshTrace", _default(**_backend("Zipkin", "zipkin", url="tcp://collector.internal/api"))


def read(kind: str, content: dict[str, Any]) -> Any:
    mesh = {} if kind == "Mesh" else {"mesh": "default"}
    key = Key(kind, mesh.get("mesh", ""), "x")
    return parse(Document(key, {"type": kind, **mesh, "name": "x", **content}), KINDS)


@pytest.mark.parametrize(("kind", "content"), [*cases()])
def test_an_impossible_port_is_rejected(kind: str, content: dict[str, Any]) -> None:
    stored = read(kind, content)

    assert stored.as_written.violations
    unwritable = [str(finding) for finding in stored.findings() if finding.code == UNWRITABLE]
    if "1000000000" not in str(content):  # in some fields, one of so many digits has always been invalid
        assert stored.violations == ()
        assert "port" in unwritable[0].lower()


@pytest.mark.parametrize(
    ("kind", "content"),
    [*documents(65_535), *documents_with_zero(65_535), *documents_with_zero(0), *documents(1)],
)
def test_a_possible_port_is_accepted(kind: str, content: dict[str, Any]) -> None:
    assert read(kind, content).as_written.violations == ()
