"""`PolicyConfs`: what a legacy policy comes to, as confs of policies with a targetRef."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from cp.model.failure import Failure, failure
from cp.model.memo import Memo
from cp.model.names import Key
from cp.model.remembered import remembered
from cp.resources.kinds import Kinds, LegacySide
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules.items import recipe
from cp.rules.legacy.matching import side_of
from cp.rules.merging import Conf, Layer, MergedConf, Origin, merge

Confs: TypeAlias = Mapping[str, MergedConf]
"""What legacy policies come to, by the kind of policy with a targetRef that says the same."""

_LEVELS: Final = MappingProxyType(
    {LegacySide.OUTBOUND: "service", LegacySide.INBOUND: "inbound", LegacySide.PROXY: "proxy"}
)
"""What a policy is for, as explanations name it."""

_NOTHING_MORE: Final[Conf] = MappingProxyType({})


class PolicyConfs:
    """What one legacy policy comes to, for each protocol. Equal only to itself.

    What cannot be worked out, by a fault of ours, is what the policy came to before or, where that is not known,
    nothing: the policy keeps its place, and others theirs (record 0044).
    """

    def __init__(
        self, policy: Resource, mesh: Mapping[str, Any], kinds: Kinds, last_good: PolicyConfs | None = None
    ) -> None:
        self._policy = policy
        self._mesh = mesh
        self._kinds = kinds
        self._last_good = last_good
        self._of_protocols: dict[str, Confs] = {}
        self.failure: Failure | None = None
        """Why what it was asked for so far could not be worked out."""

    def of(self, protocol: str) -> Confs:
        if protocol not in self._of_protocols:
            self._of_protocols[protocol] = self._read(
                partial(self._confs, protocol), lambda last_good: last_good.of(protocol)
            )
        return self._of_protocols[protocol]

    @remembered
    def at_caller(self) -> Confs:
        """What it comes to where its clients see to it themselves."""
        of_caller = partial(self._confs, "http", "service", {"atCaller": True})
        return self._read(of_caller, lambda last_good: last_good.at_caller)

    def to_fall_back_on(self) -> PolicyConfs | None:
        """What the next version of the policy falls back on. It holds no version before it."""
        if self.failure is None:
            return PolicyConfs(self._policy, self._mesh, self._kinds)
        return self._last_good

    def _read(
        self, confs: Callable[[], Iterator[tuple[str, MergedConf]]], of_last_good: Callable[[PolicyConfs], Confs]
    ) -> Confs:
        try:
            return dict(confs())
        except Exception as error:  # noqa: BLE001  # whatever it is, it is this policy's
            self.failure = failure_of_policy(self._policy, error)
        if self._last_good is None:
            return {}
        self.failure = self.failure.keeping()
        return of_last_good(self._last_good)

    def _confs(self, protocol: str, level: str = "", more: Conf = _NOTHING_MORE) -> Iterator[tuple[str, MergedConf]]:
        policy = self._policy
        level = level or _LEVELS[side_of(policy)]
        origin = Origin(policy.key, policy.identity, "conf", level=level, path="conf", source=policy.source)
        for legacy in policy.kind.legacy.confs(policy.data, self._mesh, protocol) if policy.kind.legacy else ():
            conf = {**legacy.conf, **more}
            layer = Layer(conf, origin, "conf", conf, legacy.places)
            shape = self._kinds[legacy.kind].policy
            yield legacy.kind, merge((layer,)) if shape is None else merge((layer,), recipe(shape))


class _ConfsOfPolicies(Memo[World, Key, PolicyConfs | None]):
    """What each legacy policy comes to. Some refer to what their Mesh says."""

    def basis(self, source: World, key: Key) -> tuple[Resource | None, Mapping[str, Any]]:
        policy, mesh = source.get(key), source.mesh(key.mesh)
        shape = None if policy is None else policy.kind.legacy
        fields = () if shape is None or mesh is None or not shape.reads else (shape.reads,)
        return policy, {} if mesh is None else {name: mesh.data[name] for name in fields if name in mesh.data}

    def work_out(self, source: World, key: Key) -> PolicyConfs | None:
        policy, mesh = self.basis(source, key)
        earlier = self.earlier(key)
        last_good = None if earlier is None else earlier.to_fall_back_on()
        return None if policy is None else PolicyConfs(policy, mesh, source.kinds, last_good)


def confs_of_policy(world: World, policy: Key) -> PolicyConfs | None:
    """What a legacy policy comes to: the same object for as long as that does not change. None: it is not there."""
    return world.recall(_ConfsOfPolicies, policy)


def failure_of_policy(policy: Resource, error: Exception) -> Failure:
    return replace(failure(error, f"{policy.type} {policy.name}"), policies=(policy.key,))


def legacy_confs(world: World, mesh: str) -> Iterator[tuple[Resource, Confs]]:
    """What each legacy policy of a mesh comes to for services of HTTP, whomever it selects."""
    return ((policy, confs.of("http")) for policy, confs in _all_confs(world, mesh))


def legacy_failures(world: World, mesh: str) -> Iterator[tuple[Resource, Failure]]:
    """The legacy policies of a mesh of which it could not be worked out what they come to, whomever they select."""
    for policy, confs in _all_confs(world, mesh):
        confs.of("http")
        if confs.failure is not None:
            yield policy, confs.failure


def _all_confs(world: World, mesh: str) -> Iterator[tuple[Resource, PolicyConfs]]:
    tables = (world.table(kind.name, mesh) for kind in world.kinds.values() if kind.legacy is not None)
    for policy in (policy for table in tables for policy in table):
        confs = confs_of_policy(world, policy.key)
        if confs is not None:
            yield policy, confs
