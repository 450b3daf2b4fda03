"""Why a value does nothing for a proxy although nobody overrides it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from cp.insight.inspect.meaning import traits, why_meaningless
from cp.insight.inspect.places import ProxyPlace
from cp.insight.parts import DestinationParts, destination_parts, fragments_of
from cp.model.names import Destination
from cp.model.remembered import remembered
from cp.policies import Policy
from cp.resources.capabilities import BUILTIN_GATEWAYS, WORDS, ZONE_PROXIES, MissingPart, missing_parts
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.merging import MergedConf, Setting
from cp.translate.compiler import CompiledProxy, Compiler, ProxyClass

_PATCH: Final = "MeshProxyPatch"
_MODIFICATIONS: Final = "appendModifications["
_MATCHES_NOTHING: Final = "has no effect: the proxy has nothing that `match` is about"


def not_enforced(resource: Resource) -> tuple[MissingPart, ...]:
    """The parts of a resource that have no effect on anybody."""
    return tuple(missing_parts(resource.type, resource.document.data))


class IdleValues:
    """What of one policy does nothing for its proxies, and why. Proxies of one class are looked at once."""

    def __init__(self, compiler: Compiler, world: World, policy: Resource) -> None:
        self._compiler, self._world, self._policy = compiler, world, policy
        self._of_classes: dict[int, tuple[ProxyClass, Mapping[Destination, DestinationParts]]] = {}
        self._found: dict[tuple[object, ...], bool] = {}

    def alike(self, dataplane: Resource) -> tuple[object, ...]:
        """All of a proxy on which the answers depend, beside what it matched, calls and is called at."""
        caller = self._compiler.stages.caller(self._world, dataplane)
        fitting = self._fitting_modifications(dataplane)
        return (
            not_enforced(dataplane),
            _without_inbound(dataplane),
            traits(dataplane),
            replace(caller, told=()),
            fitting,
        )

    def why(  # noqa: PLR0913  # all that is known of the field
        self,
        dataplane: Resource,
        place: ProxyPlace,
        path: str,
        setting: Setting,
        *,
        beside: Iterable[str],
        removes: Setting | None = None,
    ) -> str:
        """Why a field does nothing there; empty where it is in force. Of a null: one in whose place nothing holds.

        `beside` has the fields of the same conf.
        """
        found = next((one for one in self._missing if one.covers(setting.path)), None) or self._of_proxy(
            dataplane, place
        )
        if found is not None:
            return f"{WORDS}: {found.sentence}"
        inside = next((one for one in self._missing if one.is_within(setting.path)), None)
        if inside is not None:
            return f"{WORDS} in part, {inside.path}: {inside.sentence}"
        parts = self._parts(dataplane).get(place.destination) if place.destination is not None else None
        policy = self._compiler.policies[self._policy.type]
        meaningless = why_meaningless(policy, dataplane, place, path, beside=beside, parts=parts)
        fitting = self._fitting_modifications(dataplane)
        if fitting is not None and path.startswith(_MODIFICATIONS) and path not in fitting:
            return _MATCHES_NOTHING
        return meaningless or self._why_passed_by(parts, place, path, setting, removes=removes)

    def _why_passed_by(
        self, parts: DestinationParts | None, place: ProxyPlace, path: str, setting: Setting, *, removes: Setting | None
    ) -> str:
        """Where the part of a destination that a field is about is not served, or is not on the way."""
        if parts is not None and self._is_about_missing_part(parts, path, setting, removes):
            return f"has no effect: {parts.why}"
        if parts is not None and self._is_passed_by(parts, place, path):
            return f"has no effect on this route: it leads to others than {parts.name}, and this is about its cluster"
        return ""

    def _is_passed_by(self, parts: DestinationParts, place: ProxyPlace, path: str) -> bool:
        """Whether a value is about the cluster of a service, at a route that leads to the clusters of others."""
        if not place.via or self._once(parts, place.via, lambda: parts.is_reached_by(place.via)):
            return False
        return self._once(parts, path, lambda: parts.changes_cluster_only(self._policy.type, path))

    def _is_about_missing_part(
        self, parts: DestinationParts, path: str, setting: Setting, removes: Setting | None
    ) -> bool:
        if removes is None:
            return self._once(
                parts, ("missing", path, setting.value is None), lambda: self._is_missing(parts, path, setting)
            )
        return parts.null_matters_to_missing_part_only(self._policy.type, path, removes.value)

    def _is_missing(self, parts: DestinationParts, path: str, setting: Setting) -> bool:
        kind = self._policy.type
        is_value = setting.value is not None and not self._compiler.policies[kind].is_route
        says_nothing = is_value and parts.says_nothing_to_served_part(kind, path)
        return says_nothing or parts.matters_to_missing_part_only(kind, path)

    def _once(self, parts: DestinationParts, asked: object, answer: Callable[[], bool]) -> bool:
        """What is the same at each of the rules of a route, that may be many."""
        key = id(parts.bundle), parts.destination, asked  # bundles are kept, so that no other gets the number
        if key not in self._found:
            self._found[key] = answer()
        return self._found[key]

    def _fitting_modifications(self, dataplane: Resource) -> frozenset[str] | None:
        """The modifications of MeshProxyPatches that match something of a proxy; None if that is not known."""
        if self._policy.type != _PATCH:
            return None
        proxy = self._proxy(dataplane)
        used = () if proxy is None else (used for fragment in fragments_of(proxy) for used in fragment.used)
        return None if proxy is None else frozenset(path for kind, path in used if kind == _PATCH)

    def by_routes(self, dataplane: Resource) -> Iterator[tuple[ProxyPlace, MergedConf]]:
        """What holds for the services that a proxy reaches only by the routes of others. Their own routes do not."""
        if self._compiler.policies[self._policy.type].is_route:
            return
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

    def _proxy(self, dataplane: Resource) -> CompiledProxy | None:
        """What a proxy is served; None where that could not be made, which is told as a fault of its own."""
        try:
            return self._compiler.proxy(self._world, dataplane)
        except Exception:  # noqa: BLE001  # what the policies come to can be said all the same
            return None

    def _parts(self, dataplane: Resource) -> Mapping[Destination, DestinationParts]:
        proxy = self._proxy(dataplane) if self._is_about_calls else None
        if proxy is None:
            return {}
        bundle = proxy.bundle
        if id(bundle) not in self._of_classes:
            found = destination_parts(self._compiler.stages, bundle, dataplane.mesh)
            self._of_classes[id(bundle)] = bundle, {one.destination: one for one in found}
        return self._of_classes[id(bundle)][1]


def _without_inbound(dataplane: Resource) -> frozenset[int]:
    """The ports of listeners at which there is no inbound."""
    net = dataplane.spec.net
    return frozenset(one.port for one in net.listeners or ()) - {one.port for one in net.inbound or ()}
