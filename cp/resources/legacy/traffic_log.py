"""TrafficLog: where proxies write down what they send to a service.

backend    one of `logging.backends` of the Mesh, as MeshAccessLog backends; without it, `logging.defaultBackend`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cp.model.violation import Violation
from cp.resources.kinds import DocumentMeta, Kind, LegacyConf, LegacyShape, LegacySide
from cp.resources.legacy.backends import backend_of
from cp.resources.legacy.nulls import without_nulls
from cp.resources.legacy.selectors import ConnectionPolicy, of_callers
from cp.resources.schema import Schema


class TrafficLogConf(Schema, frozen=True):
    backend: str | None = None


class TrafficLog(ConnectionPolicy, frozen=True):
    conf: TrafficLogConf | None = None


def validate(log: TrafficLog, _meta: DocumentMeta) -> Iterator[Violation]:
    return of_callers(log)


def confs(data: Mapping[str, Any], mesh: Mapping[str, Any], _protocol: str) -> Iterator[LegacyConf]:
    backend = backend_of(data, mesh.get("logging"))
    if backend is not None and (written := _written(backend)) is not None:
        yield LegacyConf("MeshAccessLog", {"backends": [written]}, {"backends": "conf.backend"})


def _written(backend: Mapping[str, Any]) -> dict[str, Any] | None:
    conf, text = backend.get("conf") or {}, backend.get("format")
    line = {"format": {"type": "Plain", "plain": text}} if text else {}
    if backend.get("type") == "file":
        return {"type": "File", "file": {"path": conf.get("path") or "", **line}}
    if backend.get("type") == "tcp":
        return {"type": "Tcp", "tcp": {"address": conf.get("address") or "", **line}}
    return None


TRAFFIC_LOG: Final = Kind(
    "TrafficLog",
    "trafficlog",
    "traffic-logs",
    TrafficLog,
    validate,
    complete=without_nulls,
    legacy=LegacyShape(LegacySide.OUTBOUND, confs, reads="logging"),
)
