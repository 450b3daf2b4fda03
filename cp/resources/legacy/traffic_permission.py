"""TrafficPermission: who may call. Each of its `sources` is a client that MeshTrafficPermission allows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cp.model.violation import Violation
from cp.resources.kinds import DocumentMeta, Kind, LegacyConf, LegacyShape, LegacySide
from cp.resources.legacy.nulls import without_nulls
from cp.resources.legacy.selectors import ConnectionPolicy, of_called


class TrafficPermission(ConnectionPolicy, frozen=True):
    pass


def validate(permission: TrafficPermission, _meta: DocumentMeta) -> Iterator[Violation]:
    return of_called(permission)


def confs(_data: Mapping[str, Any], _mesh: Mapping[str, Any], _protocol: str) -> Iterator[LegacyConf]:
    yield LegacyConf("MeshTrafficPermission", {"action": "Allow"}, {"action": "sources"})


TRAFFIC_PERMISSION: Final = Kind(
    "TrafficPermission",
    "trafficpermission",
    "traffic-permissions",
    TrafficPermission,
    validate,
    complete=without_nulls,
    legacy=LegacyShape(LegacySide.INBOUND, confs),
)
