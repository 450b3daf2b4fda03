"""`Recompilation`: the proxies of a mesh compiled once more, without a policy or one of its items.

It is asked where confs do not tell whether something would differ. It costs as much as the mesh has proxies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cp.insight.enforcement import decides_reach
from cp.insight.gateways import gateway_parts
from cp.insight.lint.walk import PASSTHROUGH
from cp.model.checkpoint import Checkpoint, checked
from cp.model.document import Document
from cp.model.names import Key
from cp.resources.resource import Resource
from cp.resources.targets import ROUTE_KINDS
from cp.resources.world import World
from cp.rules import PolicyItem
from cp.rules.matching import match
from cp.translate.compiler import CompiledProxy, Compiler
from cp.translate.effective import Effective
from cp.translate.packing import TYPES
from cp.translate.view.proxies import outbounds

_NOT_CONFS: Final = frozenset({*ROUTE_KINDS, PASSTHROUGH})
"""Kinds of which it counts what they shape: a route table, or what passes through a proxy."""


@dataclass(frozen=True, slots=True)
class Recompilation:
    """The proxies of a World as they are, and what compiles them once more."""

    world: World
    proxies: Sequence[CompiledProxy]
    compiler: Compiler
    """The one that compiled them: it makes anew only what a change concerns."""

    new_compiler: Callable[[], Compiler]
    checkpoint: Checkpoint

    def is_served_the_same_without(self, policy: Resource, item: PolicyItem | None = None) -> bool:
        """Whether every proxy would be served the same without a policy, or one of its items.

        Where a part could not be made, what is served tells nothing of it.
        """
        changes = {policy.key: None if item is None else _without(policy.document, item)}
        if decides_reach(self.world, policy.type) and self._are_told_the_same(changes, policy):
            return True
        return self._is_unchanged(changes, policy, self.compiler, _is_served_the_same)

    def is_the_same_without(self, route: Resource) -> bool:
        """Whether the same would be served, and the same confs would hold, without a route.

        A compiler of its own works out everything: to the one that has the mesh already, a route concerns the services
        in its items, and not the other routes of its name, which a policy at their top level would mean instead.
        """
        return self._is_unchanged({route.key: None}, route, self.new_compiler(), _is_the_same)

    def _are_told_the_same(self, changes: Mapping[Key, Document | None], policy: Resource) -> bool:
        """Whether every proxy would be told of the same destinations: to find that out costs less than to compile it.

        It is asked of permissions that hold at no inbound, which do nothing else.
        """
        world = self.world.next(changes, self.world.revision)
        dataplanes = (proxy.dataplane for proxy in checked(self.proxies, self.checkpoint))
        return all(
            outbounds(world, dataplane) == outbounds(self.world, dataplane)
            for dataplane in dataplanes
            if dataplane.mesh == policy.mesh
        )

    def _is_unchanged(
        self,
        changes: Mapping[Key, Document | None],
        policy: Resource,
        compiler: Compiler,
        is_same: Callable[[CompiledProxy, CompiledProxy], bool],
    ) -> bool:
        world = self.world.next(changes, self.world.revision)
        proxies = [proxy for proxy in self.proxies if proxy.dataplane.mesh == policy.mesh]
        # Those that it selects come first: one difference is enough.
        proxies.sort(key=lambda proxy: not _is_selected(self.world, proxy.dataplane, policy))
        pairs = (
            (proxy, compiler.proxy_or_failure(world, proxy.dataplane)) for proxy in checked(proxies, self.checkpoint)
        )
        return all(isinstance(new, CompiledProxy) and is_same(proxy, new) for proxy, new in pairs)


def _without(document: Document, item: PolicyItem) -> Document:
    root, part = item.policy.kind.root, item.origin.part
    spec = dict(document.data[root])
    spec[part] = [data for index, data in enumerate(spec[part]) if index != item.index]
    return Document(document.key, {**document.data, root: {name: value for name, value in spec.items() if value}})


def _is_selected(world: World, dataplane: Resource, policy: Resource) -> bool:
    return any(matched.policy is policy for matched in match(world, dataplane).get(policy.type, ()))


def _is_served_the_same(proxy: CompiledProxy, recompiled: CompiledProxy) -> bool:
    if proxy.failures or recompiled.failures:
        return False
    return all(proxy.snapshot.digest(type_url) == recompiled.snapshot.digest(type_url) for type_url in TYPES)


def _is_the_same(proxy: CompiledProxy, recompiled: CompiledProxy) -> bool:
    """Whether the same confs hold as well, be they visible in what is served or not."""
    return _is_served_the_same(proxy, recompiled) and _confs(proxy) == _confs(recompiled)


def _confs(proxy: CompiledProxy) -> Sequence[Mapping[str, Any]]:
    """Every conf that holds for a proxy. Of destinations without one of their parts, what is served decides."""
    proxy_class = proxy.proxy_class
    callable_ = (
        result for result in proxy_class.outbounds.values() if result.outbound.names or not proxy_class.caller.is_grpc
    )
    whole = [result for result in callable_ if result.address.destination in proxy_class.backends]
    effectives: list[Effective] = [result.effective for result in whole]
    effectives += [of_route for result in whole for of_route in result.of_routes.values()]
    effectives += [inbound.effective for inbound in proxy.inbounds]
    effectives.append(proxy.sidecar.effective)
    gateway = proxy_class.gateway
    parts = () if gateway is None else gateway_parts(gateway)
    effectives += [part.effective for part in parts]
    return [
        {kind: merged.value for kind, merged in effective.items() if kind not in _NOT_CONFS} for effective in effectives
    ]
