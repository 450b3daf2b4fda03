"""What VirtualOutbounds give to a proxy with redirected traffic: ports of names, each with the tags that it leads to.

Where one has a port that it asks for to no avail, it is said why: another document has it, the proxy may not call what
is behind it, or the proxy answers for the name with another address.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from cp.insight.legacy.places import OVERRIDDEN, SILENT, LegacyPlace, with_place
from cp.insight.legacy.values import LegacyValue
from cp.model.hosts import is_ip
from cp.model.memo import ByIdentity
from cp.model.names import Destination, Key
from cp.resources.client import is_grpc_client
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.merging import Origin, Setting
from cp.translate.compiler import CompiledProxy
from cp.translate.view.hostnames import hosts
from cp.translate.view.named_addresses import VIRTUAL_OUTBOUND as VIRTUAL_OUTBOUND
from cp.translate.view.named_addresses import NamedPort, name_of_tag, wanted_by
from cp.translate.view.outbound_address import OutboundAddress
from cp.translate.view.proxies import outbounds
from cp.translate.view.redirected import redirection, why_not_called
from cp.translate.view.vips import vips
from generators.proxy import Hosts

_CONF: Final = "conf"


def knows_names(dataplane: Resource) -> bool:
    """Whether a workload can call what has a name alone: the proxy takes its calls, and answers for names."""
    return redirection(dataplane) is not None and not is_grpc_client(dataplane)


class NamedPlaces:
    """The ports of names that the VirtualOutbounds of one mesh ask for."""

    def __init__(self, world: World, mesh: str) -> None:
        self._world, self._mesh = world, mesh
        addresses = vips(world, mesh)
        self._ports = {(port.name, port.port): (address, port) for address, port in addresses.named}
        self._tags = {name: tag for tag, _ in reversed(addresses.tagged) if (name := name_of_tag(tag)) is not None}
        self._owners = {address: service.key for service, address in addresses.services}
        self._wanted: dict[Key, tuple[NamedPort, ...]] = {}
        self._names: dict[ByIdentity[Hosts | None], Mapping[str, str]] = {}

    def of_proxy(self, proxy: CompiledProxy, only: Resource | None = None) -> Iterator[LegacyPlace]:
        """What each VirtualOutbound asks for at a proxy, or one of them."""
        if not knows_names(proxy.dataplane):
            return
        for outbound in self._world.table(VIRTUAL_OUTBOUND, self._mesh) if only is None else (only,):
            for port in self._wanted_by(outbound):
                yield self._place(outbound, port, proxy)

    def _wanted_by(self, outbound: Resource) -> tuple[NamedPort, ...]:
        if outbound.key not in self._wanted:
            self._wanted[outbound.key] = wanted_by(outbound, self._world)
        return self._wanted[outbound.key]

    def _place(self, outbound: Resource, port: NamedPort, proxy: CompiledProxy) -> LegacyPlace:
        where, setting = f"at {port.name}:{port.port}", _setting(outbound, port.destination)
        served = self._ports.get((port.name, port.port))
        if served is None:
            return _idle(outbound, where, setting, self._why_of_tag(port))
        address, owner = served
        if owner.origin != outbound.key:
            return self._overridden(outbound, where, setting, owner)
        if owner.destination != port.destination:
            reason = f"it asks for this port for {_tags(owner.destination)}, too, which comes first"
            return _idle(outbound, where, setting, reason)
        if reason := self._why_not_served(port, address, proxy):
            return _idle(outbound, where, setting, reason)
        at = where if is_ip(port.name) else f"{where} ({address})"
        return LegacyPlace(outbound, at, values=(LegacyValue(setting),))

    def _why_of_tag(self, port: NamedPort) -> str:
        """Why there is nothing to do for a port: a value of `kuma.io/service` has this name, and the usual port."""
        tag = self._tags[port.name]
        if Destination(tag) == port.destination:
            return f"it is so without it: {SERVICE_TAG} {tag} has this name, and the port {port.port}"
        return f"this is the port of {SERVICE_TAG} {tag}, which has this name"

    def _overridden(self, outbound: Resource, where: str, setting: Setting, owner: NamedPort) -> LegacyPlace:
        resource = self._world.get(owner.origin)
        assert resource is not None  # noqa: S101  # narrows the type: it is who has the port
        by = _setting(resource, owner.destination)
        reason = f"{with_place(resource.key, resource.source.file, resource.source.line(''))} has this port"
        return LegacyPlace(outbound, where, OVERRIDDEN, reason, (LegacyValue(setting, by),))

    def _why_not_served(self, port: NamedPort, address: str, proxy: CompiledProxy) -> str:
        """Why a proxy lacks a port that a VirtualOutbound has; empty if it is served."""
        called = OutboundAddress(address, port.port, port.destination, is_bound=False)
        if called not in proxy.proxy_class.outbounds:
            why = why_not_called(self._world, proxy.dataplane, port.destination.service)
            return why or f"the Dataplane has an inbound of its own at {address}:{port.port}"
        answered = address if is_ip(port.name) else self._answered(proxy.dataplane).get(port.name)
        return "" if answered == address else f"the name leads to {self._owners.get(answered or '', 'nobody')}"

    def _answered(self, dataplane: Resource) -> Mapping[str, str]:
        """The names for which a proxy answers, with their addresses."""
        answered = hosts(self._world, self._mesh, outbounds(self._world, dataplane))
        key = ByIdentity(answered)
        if key not in self._names:
            self._names[key] = {} if answered is None else dict(answered.names)
        return self._names[key]


def _idle(outbound: Resource, where: str, setting: Setting, reason: str) -> LegacyPlace:
    value = LegacyValue(setting, idle_reason=f"has no effect: {reason}")
    return LegacyPlace(outbound, where, SILENT, reason, (value,))


def _setting(resource: Resource, destination: Destination) -> Setting:
    """What a document says of a port: the tags of what is called there."""
    path = _CONF if _CONF in resource.data else ""
    origin = Origin(resource.key, resource.identity, _CONF, path=path, source=resource.source)
    return Setting(origin, {SERVICE_TAG: destination.service, **dict(destination.tags)}, path)


def _tags(destination: Destination) -> str:
    return " ".join([destination.service, *(f"{name}={value}" for name, value in destination.tags)])
