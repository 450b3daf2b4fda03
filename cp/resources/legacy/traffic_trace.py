"""TrafficTrace: which proxies trace requests, and where their spans go.

backend    one of `tracing.backends` of the Mesh, as MeshTrace backends; without it, `tracing.defaultBackend`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cp.model.hosts import is_ip
from cp.model.violation import Violation
from cp.resources.kinds import DocumentMeta, Kind, LegacyConf, LegacyShape, LegacySide
from cp.resources.legacy.backends import backend_of
from cp.resources.legacy.nulls import without_nulls
from cp.resources.legacy.placed_conf import as_number
from cp.resources.legacy.selectors import Selector, selectors
from cp.resources.schema import Schema


class TrafficTraceConf(Schema, frozen=True):
    backend: str | None = None


class TrafficTrace(Schema, frozen=True):
    selectors: list[Selector] | None = None
    conf: TrafficTraceConf | None = None


def validate(trace: TrafficTrace, _meta: DocumentMeta) -> Iterator[Violation]:
    return selectors("selectors", trace.selectors, service=False)


def confs(data: Mapping[str, Any], mesh: Mapping[str, Any], _protocol: str) -> Iterator[LegacyConf]:
    backend = backend_of(data, mesh.get("tracing"))
    if backend is None or (written := _written(backend)) is None:
        return
    conf: dict[str, Any] = {"backends": [written]}
    if backend.get("sampling") is not None:
        conf["sampling"] = {"overall": as_number(backend["sampling"])}
    yield LegacyConf("MeshTrace", conf, dict.fromkeys(conf, "conf.backend"))


def _written(backend: Mapping[str, Any]) -> dict[str, Any] | None:
    conf = backend.get("conf") or {}
    if backend.get("type") == "zipkin":
        return {"type": "Zipkin", "zipkin": _zipkin(conf)}
    if backend.get("type") == "datadog":
        return {"type": "Datadog", "datadog": _datadog(conf)}
    return None


def _zipkin(conf: Mapping[str, Any]) -> dict[str, Any]:
    version = "httpProto" if conf.get("apiVersion") == "httpProto" else "httpJson"
    flags = {name: conf[name] for name in ("traceId128bit", "sharedSpanContext") if conf.get(name) is not None}
    return {"url": conf.get("url") or "", "apiVersion": version, **flags}


def _datadog(conf: Mapping[str, Any]) -> dict[str, Any]:
    host = str(conf.get("address") or "")
    written = f"[{host}]" if is_ip(host) and ":" in host else host
    return {"url": f"http://{written}:{conf.get('port')}", "splitService": conf.get("splitService") is True}


TRAFFIC_TRACE: Final = Kind(
    "TrafficTrace",
    "traffictrace",
    "traffic-traces",
    TrafficTrace,
    validate,
    complete=without_nulls,
    legacy=LegacyShape(LegacySide.PROXY, confs, reads="tracing"),
)
