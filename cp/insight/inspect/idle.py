"""Why a value has no effect on a proxy although nothing overrides it."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from cp.insight.effects import MATCHES_NOTHING, with_another
from cp.insight.enforcement import only_with_mtls, parts_without_effect
from cp.insight.gateways import CALL_HOOKS
from cp.insight.inspect.gateway_reasons import GatewayReasons
from cp.insight.inspect.meaning import meaningless_reason, traits
from cp.insight.inspect.scopes import ConfScope
from cp.insight.parts import DestinationParts, destination_parts, fragments_of, made_in
from cp.insight.tagged_clients import items_for_nobody
from cp.insight.whole import of_inbound, writers_over, written_over
from cp.model.failure import Failure
from cp.model.names import Destination
from cp.model.remembered import remembered
from cp.model.wording import few
from cp.policies import Policy
from cp.resources.capabilities import ZONE_PROXIES, MissingPart
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.merging import MergedConf, MergedField, Setting
from cp.translate.compiler import CompiledProxy, Compiler
from cp.translate.effective import has_hook
from cp.translate.gateway import GatewayResult
from cp.translate.proxy_class import ProxyClass
from cp.translate.view.mtls import inbound_tls
from cp.translate.view.proxies import inbounds

_NO_TLS: Final = "has no effect: the proxy takes no TLS, so clients do not show who they are"
_KNOWS_NOBODY: Final = "has no effect: those whom it means have certificates without tags, by a MeshIdentity"


class IdleReasons:
    """The reasons why values of one policy have no effect on its proxies.

    Answers are kept by the class of a proxy, because all proxies of a class are served the same destinations.
    """

    def __init__(self, compiler: Compiler, world: World, policy: Resource) -> None:
        self._compiler, self._world, self._policy = compiler, world, policy
        self._parts_of_classes: dict[ProxyClass, Mapping[Destination, DestinationParts]] = {}
        self._answers: dict[tuple[ProxyClass, Destination, Hashable], bool] = {}
        self._writers: dict[tuple[ProxyClass, Destination, str], tuple[str, ...]] = {}
        self._of_gateways = GatewayReasons(compiler, world, policy)

    def sharing_key(self, dataplane: Resource) -> tuple[object, ...]:
        """The facts about a proxy that decide whether values have an effect, beyond those that decide its confs."""
        caller = self._compiler.translator.callers.caller(self._world, dataplane)
        return (
            parts_without_effect(self._world, dataplane),
            _ports_without_inbound(dataplane),
            traits(dataplane),
            inbound_tls(self._world, dataplane) is not None,
            replace(caller, sidecar_fields=()),
            self._matching_changes(dataplane),
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
        """Why a field has no effect in a scope; empty if it is in force.

        `conf_fields` are the paths of all fields of the same conf. `removed` is given for a null only, if no weaker
        setting holds in place of the removed one.
        """
        unenforced_reason = self._unenforced_reason(dataplane, scope, setting.path)
        if unenforced_reason:
            return unenforced_reason
        proxy = self._proxy(dataplane) if dataplane.spec.is_builtin_gateway and not scope.is_whole_proxy else None
        if proxy is not None:
            return self._of_gateways.reason(proxy, scope, path, conf_fields)
        if self._asks_for_tls(dataplane, scope, setting.path):
            return _NO_TLS
        if any(setting.path.startswith(f"{item}.") for item in self._paths_for_nobody):
            return _KNOWS_NOBODY
        parts = self._parts(dataplane).get(scope.destination) if scope.destination is not None else None
        policy = self._compiler.policies[self._policy.type]
        reason = meaningless_reason(policy, dataplane, scope, path, conf_fields=conf_fields, parts=parts)
        if reason_of_change := self._reason_of_change(policy, dataplane, path):
            return reason_of_change
        return (
            reason
            or self._reason_of_writers(dataplane, scope, path, parts, setting)
            or self._part_reason(parts, scope, path, setting, removed=removed)
        )

    def _reason_of_writers(
        self, dataplane: Resource, scope: ConfScope, path: str, parts: DestinationParts | None, setting: Setting
    ) -> str:
        """The reason if other kinds of policies write over a value, as they come later."""
        policy = self._compiler.policies[self._policy.type]
        if setting.value is None or policy.is_route or has_hook(policy, "finish"):
            return ""
        if parts is not None:
            writers = self._writers_over_destination(parts, policy, path)
        else:
            writers = self._writers_over_inbound(dataplane, scope, path)
        return written_over(writers) if writers else ""

    def _writers_over_destination(self, parts: DestinationParts, policy: Policy[Any], path: str) -> tuple[str, ...]:
        key = parts.proxy_class, parts.destination, path
        if key not in self._writers:
            kinds = self._compiler.policies
            may_write = [other.kind.name for other in writers_over(tuple(kinds.values()), policy, kinds)]
            self._writers[key] = parts.writers_over(policy.kind.name, partial(with_another, path=path), may_write)
        return self._writers[key]

    def _writers_over_inbound(self, dataplane: Resource, scope: ConfScope, path: str) -> tuple[str, ...]:
        proxy, policy = self._proxy(dataplane), self._compiler.policies[self._policy.type]
        if proxy is None or scope.inbound_index is None or scope.clients:
            return ()
        for (index, _), reached in zip(inbounds(dataplane), proxy.inbounds, strict=True):
            whole = (
                of_inbound(tuple(self._compiler.policies.values()), policy, reached)
                if index == scope.inbound_index
                else None
            )
            conf = reached.effective.get(policy.kind.name)
            if whole is not None and conf is not None:
                return whole.writers_over(conf.value, path)
        return ()

    def reason_of_switch(self, path: str, setting: Setting, conf_fields: Mapping[str, MergedField]) -> str:
        """The reason if what a value is about is switched off, or has nothing to act with."""
        policy = self._compiler.policies[self._policy.type]
        if setting.value is None:
            return ""
        if policy.needed_list and path != policy.needed_list and not _is_filled(policy.needed_list, conf_fields):
            return f"has no effect: there are no `{policy.needed_list}`"
        off = {switch.rpartition(".")[0]: switch for switch in policy.switches if _is_off(policy, switch, conf_fields)}
        own = [switch for section, switch in off.items() if path.startswith(f"{section}.") and path != switch]
        if path.partition(".")[0] in policy.section_settings and not _has_acting(policy, off, conf_fields):
            own = list(off.values())
        named = few([f"`{switch}`" for switch in sorted(own)])
        return f"has no effect: {named} {'switches' if len(own) == 1 else 'switch'} it off" if own else ""

    def is_about_clusters_alone(self, scope: ConfScope) -> bool:
        """Whether a scope is a listener of a gateway, and the policy writes into clusters and nothing else."""
        policy = self._compiler.policies[self._policy.type]
        is_listener = scope.listener_port is not None and not scope.clients and not policy.is_route
        return is_listener and not has_hook(policy, *CALL_HOOKS)

    def gateway(self, dataplane: Resource) -> GatewayResult | None:
        """What a builtin gateway is served."""
        proxy = self._proxy(dataplane) if dataplane.spec.is_builtin_gateway else None
        return None if proxy is None else proxy.proxy_class.gateway

    def _unenforced_reason(self, dataplane: Resource, scope: ConfScope, path: str) -> str:
        """The reason if a value is not enforced, alone or with what is around it, or if something inside it is not."""
        part = next((part for part in self._unenforced_parts if part.covers(path)), None)
        part = part or self._unenforced_part_of(dataplane, scope)
        if part is not None:
            return part.reason
        inner_part = next((part for part in self._unenforced_parts if part.is_within(path)), None)
        return "" if inner_part is None else f"{inner_part.words} in part, {inner_part.path}: {inner_part.sentence}"

    def _asks_for_tls(self, dataplane: Resource, scope: ConfScope, path: str) -> bool:
        """Whether a value has an effect only where TLS is spoken, and the proxy takes none."""
        if scope.inbound_port is None or not any(part.covers(path) for part in self._policy.derived(only_with_mtls)):
            return False
        return inbound_tls(self._world, dataplane) is None

    @remembered
    def _paths_for_nobody(self) -> tuple[str, ...]:
        """The items for clients by their tags, which none of them shows."""
        if not self._compiler.policies[self._policy.type].judges_every_client:
            return ()
        return tuple(item.origin.path for item in items_for_nobody(self._world, self._policy))

    def _part_reason(
        self, parts: DestinationParts | None, scope: ConfScope, path: str, setting: Setting, *, removed: Setting | None
    ) -> str:
        """The reason if the part of a destination that a field is about is not served, or if a route bypasses it."""
        if parts is not None and self._is_about_unserved_part(parts, path, setting, removed):
            return f"has no effect: {parts.why}"
        if parts is not None and self._is_bypassed(parts, scope, path):
            return f"has no effect on this route: it leads to others than {parts.name}, and this is about its cluster"
        return ""

    def _is_bypassed(self, parts: DestinationParts, scope: ConfScope, path: str) -> bool:
        """Whether a field acts on the cluster of a service only, and the route of its scope leads to other clusters."""
        if not scope.contributors:
            return False
        is_reached = self._answer_once(parts, scope.contributors, lambda: parts.is_reached_by(scope.contributors))
        return not is_reached and self._answer_once(
            parts, path, lambda: parts.acts_on_cluster_only(self._policy.type, path)
        )

    def _is_about_unserved_part(
        self, parts: DestinationParts, path: str, setting: Setting, removed: Setting | None
    ) -> bool:
        if removed is None:
            return self._answer_once(
                parts,
                ("unserved", path, setting.value is None),
                lambda: self._acts_on_unserved_part(parts, path, setting),
            )
        return parts.null_acts_on_unserved_part_only(self._policy.type, path, removed.value)

    def _acts_on_unserved_part(self, parts: DestinationParts, path: str, setting: Setting) -> bool:
        kind = self._policy.type
        is_value = setting.value is not None and not self._compiler.policies[kind].is_route
        has_no_effect = is_value and parts.has_no_effect_on_served_part(kind, path)
        return has_no_effect or parts.acts_on_unserved_part_only(kind, path)

    def _answer_once(self, parts: DestinationParts, question: Hashable, answer: Callable[[], bool]) -> bool:
        """The answer to a question about a destination. Each rule of a route asks it, and there can be many rules."""
        key = parts.proxy_class, parts.destination, question
        if key not in self._answers:
            self._answers[key] = answer()
        return self._answers[key]

    def _reason_of_change(self, policy: Policy[Any], dataplane: Resource, path: str) -> str:
        """The reason if a change matches nothing of a proxy, or cannot be made to anything that it matches."""
        changes = self._matching_changes(dataplane)
        if changes is None or not path.startswith(f"{policy.change_list}["):
            return ""
        return dict(changes).get(path, MATCHES_NOTHING)

    def _matching_changes(self, dataplane: Resource) -> frozenset[tuple[str, str]] | None:
        """The changes of policies of this kind that match something of a proxy; None if they are not known.

        With each the reason if it is made to nothing there.
        """
        kind = self._policy.type
        proxy = self._proxy(dataplane) if self._compiler.policies[kind].change_list else None
        if proxy is None:
            return None
        changes: dict[str, str] = {}
        for fragment in fragments_of(proxy):
            changes |= {path: "" for of, path in made_in(fragment) if of == kind}
            for of, path, reason in fragment.problems:
                if of == kind:
                    changes.setdefault(path, f"has no effect: {reason}")
        return frozenset(changes.items())

    def confs_by_routes(self, dataplane: Resource) -> Iterator[tuple[ConfScope, MergedConf]]:
        """The confs of services that a proxy has no outbound for, but reaches by routes of other services."""
        if self._compiler.policies[self._policy.type].is_route:
            return
        if dataplane.spec.is_builtin_gateway:
            proxy = self._proxy(dataplane)
            yield from () if proxy is None else self._of_gateways.confs_of_clusters(proxy)
            return
        for destination, parts in self._parts(dataplane).items():
            conf = parts.backend.effective.get(self._policy.type) if parts.backend is not None else None
            if conf is not None and not parts.outbounds:
                yield ConfScope(destination), conf

    @remembered
    def _unenforced_parts(self) -> tuple[MissingPart, ...]:
        return parts_without_effect(self._world, self._policy)

    def _unenforced_part_of(self, dataplane: Resource, scope: ConfScope) -> MissingPart | None:
        """The part of the Dataplane that is not enforced, so that nothing in the scope is."""
        if scope.inbound_port not in _ports_without_inbound(dataplane):
            return None
        parts = parts_without_effect(self._world, dataplane)
        return next((part for part in parts if part.capability == ZONE_PROXIES), None)

    @property
    def _is_about_calls(self) -> bool:
        shape = self._policy.kind.policy
        return shape is not None and shape.to and bool(self._policy.data.get("to"))

    def _proxy(self, dataplane: Resource) -> CompiledProxy | None:
        """What a proxy is served; None if it could not be compiled, which is reported as a failure of its own."""
        proxy = self._compiler.proxy_or_failure(self._world, dataplane)
        return None if isinstance(proxy, Failure) else proxy

    def _parts(self, dataplane: Resource) -> Mapping[Destination, DestinationParts]:
        proxy = self._proxy(dataplane) if self._is_about_calls else None
        if proxy is None:
            return {}
        proxy_class = proxy.proxy_class
        if proxy_class not in self._parts_of_classes:
            served = destination_parts(self._compiler.translator, proxy_class, dataplane.mesh)
            self._parts_of_classes[proxy_class] = {parts.destination: parts for parts in served}
        return self._parts_of_classes[proxy_class]


def _is_filled(name: str, conf_fields: Mapping[str, MergedField]) -> bool:
    """Whether a list has entries, whoever wrote them."""
    return any((path == name and field.value) or path.startswith(f"{name}[") for path, field in conf_fields.items())


def _is_off(policy: Policy[Any], switch: str, conf_fields: Mapping[str, MergedField]) -> bool:
    """Whether a section is switched off. Of numbers and truth values neither counts as the other."""
    field, off = conf_fields.get(switch), policy.switches[switch]
    return field is not None and field.value == off and isinstance(field.value, bool) is isinstance(off, bool)


def _has_acting(policy: Policy[Any], off: Container[str], conf_fields: Iterable[str]) -> bool:
    """Whether some section with a switch is there, and is not off."""
    sections = [section for switch in policy.switches if (section := switch.rpartition(".")[0]) not in off]
    return any(f"{path}.".startswith(f"{section}.") for path in conf_fields for section in sections)


def _ports_without_inbound(dataplane: Resource) -> frozenset[int]:
    """The ports of the Dataplane's listeners that are no inbounds."""
    networking = dataplane.spec.net
    return frozenset(listener.port for listener in networking.listeners or ()) - {
        listener.port for listener in networking.inbound or ()
    }
