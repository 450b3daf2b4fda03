"""The inbounds of the dataplanes of a mesh, indexed by tags and names, to find endpoints in.

The index is made once for a table of dataplanes and kept with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cp.model.registration import NOT_READY
from cp.resources.addresses import conflicts
from cp.resources.dataplane import PROTOCOL_TAG, ZONE_TAG
from cp.resources.labels import ZONE_LABEL
from cp.resources.resource import Resource
from cp.resources.world import Table


@dataclass(frozen=True, slots=True, eq=False)
class DataplanePort:
    """One inbound of one dataplane: an address that can be an endpoint."""

    dataplane: Resource
    inbound: Any
    index: int

    @property
    def address(self) -> str:
        networking = self.dataplane.spec.networking
        address: str = self.inbound.address or networking.advertised_address or networking.address
        return address

    @property
    def tags(self) -> Mapping[str, str]:
        tags: Mapping[str, str] = self.inbound.tags or {}
        return tags

    @property
    def selectable_tags(self) -> Mapping[str, str]:
        """The tags that selectors see: with the zone, which Kuma adds where it is not written."""
        return self.tags if ZONE_TAG in self.tags else {**self.tags, ZONE_TAG: self._zone_to_select_by}

    def carries(self, tags: Mapping[str, str]) -> bool:
        """Whether it has all of these tags, as selectors see them."""
        return all(self._tag(name) == value for name, value in tags.items())

    def _tag(self, name: str) -> str | None:
        value = self.tags.get(name)
        return self._zone_to_select_by if value is None and name == ZONE_TAG else value

    @property
    def _zone_to_select_by(self) -> str:
        return self.dataplane.selectable_labels[ZONE_LABEL]

    @property
    def zone(self) -> str:
        return self.tags.get(ZONE_TAG) or self.dataplane.labels.get(ZONE_LABEL, "")

    @property
    def is_healthy(self) -> bool:
        """Whether it should get requests: its proxy is ready, and neither its state nor its health says otherwise."""
        if self.dataplane.labels.get(NOT_READY):
            return False
        if self.inbound.state not in {None, "Ready"}:
            return False
        return self.inbound.health is None or self.inbound.health.ready is not False

    @property
    def protocol(self) -> str:
        return (self.inbound.protocol or self.tags.get(PROTOCOL_TAG, "")).lower()


class DataplanePorts:
    """Every inbound of a mesh, by each of its tags and by its dataplane."""

    def __init__(self, dataplanes: Iterable[Resource]) -> None:
        self.by_tag: dict[tuple[str, str], list[DataplanePort]] = {}
        self.by_dataplane: dict[str, list[DataplanePort]] = {}
        for dataplane in dataplanes:
            ports = self.by_dataplane[dataplane.name] = list(ports_of(dataplane))
            for port in ports:
                for tag in port.selectable_tags.items():
                    self.by_tag.setdefault(tag, []).append(port)

    def tagged(self, tags: Mapping[str, str]) -> list[DataplanePort]:
        """The inbounds that carry all of these tags. Only those with the rarest of the tags are looked through."""
        if not tags:
            return [port for ports in self.by_dataplane.values() for port in ports]
        fewest = min((self.by_tag.get(tag, []) for tag in tags.items()), key=len)
        return [port for port in fewest if port.carries(tags)]


def ports(table: Table) -> DataplanePorts:
    """The inbounds of a table of dataplanes; use it as `table.derived(ports)`."""
    return DataplanePorts(table)


def ports_of(dataplane: Resource) -> Iterable[DataplanePort]:
    """The inbounds of a dataplane, without those at whose address the proxy listens for another workload."""
    taken = {
        conflict.index
        for conflict in dataplane.derived(conflicts)
        if conflict.side == "inbound" and not conflict.same_workload
    }
    inbounds = dataplane.spec.networking.inbound or ()
    return (DataplanePort(dataplane, inbound, index) for index, inbound in enumerate(inbounds) if index not in taken)
