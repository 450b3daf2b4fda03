"""Why a value does nothing for a proxy although nobody overrides it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from cp.insight.inspect.places import ProxyPlace
from cp.insight.parts import DestinationParts, destination_parts
from cp.model.names import Destination
from cp.model.remembered import remembered
from cp.policies import Policy
from cp.resources.capabilities import BUILTIN_GATEWAYS, WORDS, ZONE_PROXIES, MissingPart, missing_parts
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.merging import MergedConf, Setting
from cp.translate.compiler import Compiler, ProxyClass


def not_enforced(resource: Resource) -> tuple[MissingPart, ...]:
    """The parts of a resource that have no effect on anybody."""
    return tuple(missing_parts(resource.type, resource.document.data))


class IdleValues:
    """What of one policy does nothing for its proxies, and why. Proxies of one class are looked at once."""

    def __init__(self, compiler: Compiler, world: World, policy: Resource) -> None:
        self._compiler, self._world, self._policy = compiler, world, policy
        self._of_classes: dict[int, tuple[ProxyClass, Mapping[Destination, DestinationParts]]] = {}

    def alike(self, dataplane: Resource) -> tuple[object, ...]:
        """All of a proxy on which the answers depend, beside what it matched, calls and is called at."""
        caller = self._compiler.translator.callers.caller(self._world, dataplane)
        return not_enforced(dataplane), _without_inbound(dataplane), replace(caller, told=())

    def why(
        self, dataplane: Resource, place: ProxyPlace, path: str, setting: Setting, removes: Setting | None = None
    ) -> str:
        """Why a field does nothing there; empty where it is in force. Of a null: one in whose place nothing holds."""
        found = next((one for one in self._missing if one.covers(setting.path)), None) or self._of_proxy(
            dataplane, place
        )
        if found is not None:
            return f"{WORDS}: {found.sentence}"
        inside = next((one for one in self._missing if one.is_within(setting.path)), None)
        if inside is not None:
            return f"{WORDS} in part, {inside.path}: {inside.sentence}"
        parts = self._parts(dataplane).get(place.destination) if place.destination is not None else None
        if parts is not None and self._is_about_missing_part(parts, path, removes):
            return f"has no effect: {parts.why}"
        if parts is not None and self._is_passed_by(parts, place, path):
            return f"has no effect on this route: it leads to others than {parts.name}, and this is about its cluster"
        return ""

    def _is_passed_by(self, parts: DestinationParts, place: ProxyPlace, path: str) -> bool:
        """Whether a value is about the cluster of a service, at a route that leads to the clusters of others."""
        if not place.via or parts.is_reached_by(place.via):
            return False
        return parts.changes_cluster_only(self._policy.type, path)

    def _is_about_missing_part(self, parts: DestinationParts, path: str, removes: Setting | None) -> bool:
        if removes is None:
            return parts.matters_to_missing_part_only(self._policy.type, path)
        return parts.null_matters_to_missing_part_only(self._policy.type, path, removes.value)

    def by_routes(self, dataplane: Resource) -> Iterator[tuple[ProxyPlace, MergedConf]]:
        """What holds for the services that a proxy reaches only by the routes of others."""
        for destination, parts in self._parts(dataplane).items():
            held = parts.upstream.effective.get(self._policy.type) if parts.upstream is not None else None
            if held is not None and not parts.entries:
                yield ProxyPlace(destination), held

    @remembered
    def _missing(self) -> tuple[MissingPart, ...]:
        return not_enforced(self._policy)

    def _of_proxy(self, dataplane: Resource, place: ProxyPlace) -> MissingPart | None:
        """What is missing for the proxy. Beside listeners it has what it has of policies that need none."""
        missing = {one.capability: one for one in not_enforced(dataplane)}
        if place.is_whole and self._adds_to_proxies:
            return None
        if place.inbound in _without_inbound(dataplane):
            return missing.get(ZONE_PROXIES)
        return missing.get(BUILTIN_GATEWAYS)

    @property
    def _adds_to_proxies(self) -> bool:
        found = self._compiler.policies[self._policy.type]
        return type(found).sidecar is not Policy.sidecar

    @property
    def _is_about_calls(self) -> bool:
        shape = self._policy.kind.policy
        return shape is not None and shape.to and bool(self._policy.data.get("to"))

    def _bundle(self, dataplane: Resource) -> ProxyClass | None:
        """What a proxy is served; None where that could not be made, which is told as a fault of its own."""
        try:
            return self._compiler.proxy(self._world, dataplane).bundle
        except Exception:  # noqa: BLE001  # what the policies come to can be said all the same
            return None

    def _parts(self, dataplane: Resource) -> Mapping[Destination, DestinationParts]:
        bundle = self._bundle(dataplane) if self._is_about_calls else None
        if bundle is None:
            return {}
        if id(bundle) not in self._of_classes:
            found = destination_parts(self._compiler.translator, bundle, dataplane.mesh)
            self._of_classes[id(bundle)] = bundle, {one.destination: one for one in found}
        return self._of_classes[id(bundle)][1]


def _without_inbound(dataplane: Resource) -> frozenset[int]:
    """The ports of listeners at which there is no inbound."""
    net = dataplane.spec.net
    return frozenset(one.port for one in net.listeners or ()) - {one.port for one in net.inbound or ()}
