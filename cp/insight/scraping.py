"""Which proxies have metrics for Prometheus, and where: what their MeshMetrics come to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cp.model.checkpoint import Checkpoint, checked
from cp.model.names import Key
from cp.policies import MetricsPage, Policies, Policy
from cp.resources.client import is_grpc_client
from cp.resources.dataplane import SERVICE_TAG, ZONE_TAG
from cp.resources.resource import Resource
from cp.resources.schema import decode
from cp.resources.world import World
from cp.translate.effective import Effective, has_hook, of_proxy, rules_of

_NO_LABEL: Final = re.compile(r"[^a-zA-Z0-9_]")


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """A page of metrics of one proxy."""

    dataplane: Key
    authority: str
    path: str
    tags: Mapping[str, tuple[str, ...]]
    client: str = ""
    """Which Prometheus it is for; empty: any."""

    @property
    def labels(self) -> dict[str, str]:
        """What each series of it is told apart by, and what Kuma's discovery tells beside it."""
        service, zone = self.tags.get(SERVICE_TAG, ()), self.tags.get(ZONE_TAG, ())
        return {
            "__metrics_path__": self.path,
            "mesh": self.dataplane.mesh,
            "dataplane": self.dataplane.name,
            "service": ",".join(service),
            **({"zone": ",".join(zone)} if zone else {}),
            **{f"__meta_kuma_label_{_NO_LABEL.sub('_', name)}": ",".join(values) for name, values in self.tags.items()},
        }


class ScrapeTargets:
    """Works them out for one World. What many proxies have in common is decoded once."""

    def __init__(self, policies: Policies, world: World) -> None:
        self._policies = [policy for policy in policies if has_hook(policy, "metrics_pages")]
        self._world = world
        self._pages: dict[tuple[str, bytes], tuple[MetricsPage, ...]] = {}

    def of_meshes(self, meshes: Iterable[str], checkpoint: Checkpoint) -> Iterator[ScrapeTarget]:
        for mesh in meshes:
            for dataplane in checked(self._world.table("Dataplane", mesh), checkpoint):
                yield from self._of(dataplane)

    def _of(self, dataplane: Resource) -> Iterator[ScrapeTarget]:
        if is_grpc_client(dataplane):
            return
        effective = of_proxy(rules_of(self._world, dataplane))
        for policy in self._policies:
            for page in self._pages_of(policy, effective):
                authority = _authority(dataplane, page.port)
                yield ScrapeTarget(dataplane.key, authority, page.path, _tags(dataplane), page.client)

    def _pages_of(self, policy: Policy[Any], effective: Effective) -> tuple[MetricsPage, ...]:
        kind = policy.kind.name
        if kind not in effective:
            return ()
        key = kind, effective[kind].canonical
        if key not in self._pages:
            conf = decode(policy.conf, msgspec.json.decode(key[1]))
            self._pages[key] = tuple(policy.metrics_pages(conf))
        return self._pages[key]


def _authority(dataplane: Resource, port: int) -> str:
    """Where others reach the proxy, which may be elsewhere than where it listens."""
    host = dataplane.spec.net.advertised_address or dataplane.spec.net.address or ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _tags(dataplane: Resource) -> dict[str, tuple[str, ...]]:
    """The values of each tag of its inbounds or of its gateway, each once."""
    net = dataplane.spec.net
    of_gateway = [] if net.gateway is None else [net.gateway.tags or {}]
    values: dict[str, dict[str, None]] = {}
    for tags in (*of_gateway, *(inbound.tags or {} for inbound in net.inbound or ())):
        for name, value in tags.items():
            values.setdefault(name, {})[value] = None
    return {name: tuple(of_name) for name, of_name in sorted(values.items())}
