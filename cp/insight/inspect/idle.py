"""Why a value does nothing for a proxy although nobody overrides it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace

from cp.insight.inspect.meaning import meaningless_reason, traits
from cp.insight.inspect.scopes import ConfScope
from cp.insight.parts import DestinationParts, destination_parts
from cp.model.names import Destination
from cp.model.remembered import remembered
from cp.policies import Policy
from cp.resources.capabilities import BUILTIN_GATEWAYS, WORDS, ZONE_PROXIES, MissingPart, missing_parts
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.merging import MergedConf, Setting
from cp.translate.compiler import Compiler, ProxyClass


def unenforced_parts(resource: Resource) -> tuple[MissingPart, ...]:
    """The parts of a resource that have no effect on anybody."""
    return tuple(missing_parts(resource.type, resource.document.data))


class IdleReasons:
    """What of one policy does nothing for its proxies, and why. Proxies of one class are looked at once."""

    def __init__(self, compiler: Compiler, world: World, policy: Resource) -> None:
        self._compiler, self._world, self._policy = compiler, world, policy
        self._parts_of_classes: dict[ProxyClass, Mapping[Destination, DestinationParts]] = {}
        self._answers: dict[tuple[ProxyClass, Destination, Hashable], bool] = {}

    def sharing_key(self, dataplane: Resource) -> tuple[object, ...]:
        """All of a proxy on which the answers depend, beside what it matched, calls and is called at."""
        caller = self._compiler.stages.caller(self._world, dataplane)
        return (
            unenforced_parts(dataplane),
            _ports_without_inbound(dataplane),
            traits(dataplane),
            replace(caller, told=()),
        )

    def reason(  # noqa: PLR0913  # all that is known of the field
        self,
        dataplane: Resource,
        scope: ConfScope,
        path: str,
        setting: Setting,
        *,
        conf_fields: Iterable[str],
        removed: Setting | None = None,
    ) -> str:
        """Why a field does nothing there; empty where it is in force. Of a null: one in whose place nothing holds.

        `conf_fields` are the fields of the same conf.
        """
        unenforced = next(
            (part for part in self._unenforced_parts if part.covers(setting.path)), None
        ) or self._unenforced_part_of(dataplane, scope)
        if unenforced is not None:
            return f"{WORDS}: {unenforced.sentence}"
        unenforced_inside = next((part for part in self._unenforced_parts if part.is_within(setting.path)), None)
        if unenforced_inside is not None:
            return f"{WORDS} in part, {unenforced_inside.path}: {unenforced_inside.sentence}"
        parts = self._parts(dataplane).get(scope.destination) if scope.destination is not None else None
        policy = self._compiler.policies[self._policy.type]
        reason = meaningless_reason(policy, dataplane, scope, path, conf_fields=conf_fields, parts=parts)
        return reason or self._part_reason(parts, scope, path, setting, removed=removed)

    def _part_reason(
        self, parts: DestinationParts | None, scope: ConfScope, path: str, setting: Setting, *, removed: Setting | None
    ) -> str:
        """Where the part of a destination that a field is about is not served, or is not on the way."""
        if parts is not None and self._is_about_missing_part(parts, path, setting, removed):
            return f"has no effect: {parts.why}"
        if parts is not None and self._is_bypassed(parts, scope, path):
            return f"has no effect on this route: it leads to others than {parts.name}, and this is about its cluster"
        return ""

    def _is_bypassed(self, parts: DestinationParts, scope: ConfScope, path: str) -> bool:
        """Whether a value is about the cluster of a service, at a route that leads to the clusters of others."""
        if not scope.contributors or self._answer_once(
            parts, scope.contributors, lambda: parts.is_reached_by(scope.contributors)
        ):
            return False
        return self._answer_once(parts, path, lambda: parts.changes_cluster_only(self._policy.type, path))

    def _is_about_missing_part(
        self, parts: DestinationParts, path: str, setting: Setting, removed: Setting | None
    ) -> bool:
        if removed is None:
            return self._answer_once(
                parts, ("missing", path, setting.value is None), lambda: self._is_missing(parts, path, setting)
            )
        return parts.null_matters_to_missing_part_only(self._policy.type, path, removed.value)

    def _is_missing(self, parts: DestinationParts, path: str, setting: Setting) -> bool:
        kind = self._policy.type
        is_value = setting.value is not None and not self._compiler.policies[kind].is_route
        says_nothing = is_value and parts.says_nothing_to_served_part(kind, path)
        return says_nothing or parts.matters_to_missing_part_only(kind, path)

    def _answer_once(self, parts: DestinationParts, question: Hashable, answer: Callable[[], bool]) -> bool:
        """What is the same at each of the rules of a route, that may be many."""
        key = parts.bundle, parts.destination, question
        if key not in self._answers:
            self._answers[key] = answer()
        return self._answers[key]

    def confs_by_routes(self, dataplane: Resource) -> Iterator[tuple[ConfScope, MergedConf]]:
        """What holds for the services that a proxy reaches only by the routes of others. Their own routes do not."""
        if self._compiler.policies[self._policy.type].is_route:
            return
        for destination, parts in self._parts(dataplane).items():
            conf = parts.upstream.effective.get(self._policy.type) if parts.upstream is not None else None
            if conf is not None and not parts.entries:
                yield ConfScope(destination), conf

    @remembered
    def _unenforced_parts(self) -> tuple[MissingPart, ...]:
        return unenforced_parts(self._policy)

    def _unenforced_part_of(self, dataplane: Resource, scope: ConfScope) -> MissingPart | None:
        """What is missing for the proxy. Beside listeners it has what it has of policies that need none."""
        by_capability = {part.capability: part for part in unenforced_parts(dataplane)}
        if scope.is_whole_proxy and self._has_sidecar_hook:
            return None
        if scope.inbound_port in _ports_without_inbound(dataplane):
            return by_capability.get(ZONE_PROXIES)
        return by_capability.get(BUILTIN_GATEWAYS)

    @property
    def _has_sidecar_hook(self) -> bool:
        policy = self._compiler.policies[self._policy.type]
        return type(policy).sidecar is not Policy.sidecar

    @property
    def _is_about_calls(self) -> bool:
        shape = self._policy.kind.policy
        return shape is not None and shape.to and bool(self._policy.data.get("to"))

    def _proxy_class(self, dataplane: Resource) -> ProxyClass | None:
        """What a proxy is served; None where that could not be made, which is told as a fault of its own."""
        try:
            return self._compiler.proxy(self._world, dataplane).bundle
        except Exception:  # noqa: BLE001  # what the policies come to can be said all the same
            return None

    def _parts(self, dataplane: Resource) -> Mapping[Destination, DestinationParts]:
        proxy_class = self._proxy_class(dataplane) if self._is_about_calls else None
        if proxy_class is None:
            return {}
        if proxy_class not in self._parts_of_classes:
            served = destination_parts(self._compiler.stages, proxy_class, dataplane.mesh)
            self._parts_of_classes[proxy_class] = {parts.destination: parts for parts in served}
        return self._parts_of_classes[proxy_class]


def _ports_without_inbound(dataplane: Resource) -> frozenset[int]:
    """The ports of listeners at which there is no inbound."""
    networking = dataplane.spec.net
    return frozenset(listener.port for listener in networking.listeners or ()) - {
        listener.port for listener in networking.inbound or ()
    }
