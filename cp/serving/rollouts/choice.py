"""Which proxies a rollout reaches, which of them are alike, and which get it first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeAlias

from cp.model.failure import Failure
from cp.model.memo import ByIdentity
from cp.model.names import Key
from cp.policies import Policies
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.serving.rollouts.steps import RolloutStep
from cp.translate.compiler import CompiledProxy, Compiler

_Likeness: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class ReachedProxy:
    """A proxy that is served something else with a rollout. Proxies that are equal in `likeness` form a class."""

    name: str
    likeness: _Likeness


def reached_proxies(
    worlds: tuple[World, World], dataplanes: Iterable[Resource], policies: Policies, certified: AbstractSet[Key]
) -> list[ReachedProxy]:
    """The proxies for which the second World makes a difference, by the bytes that they are served.

    A proxy that cannot be compiled in the first World, by a fault of ours, is not reached: what is new to it cannot be
    known, so it is left alone until the rollout is stored for all. A proxy that cannot be compiled in the second World
    is reached: once it is to be served, the fault brings the rollout back.
    """
    before, after = Compiler(policies), Compiler(policies)
    before.certified_clients = after.certified_clients = certified
    reached = []
    for dataplane in dataplanes:
        old = before.proxy_or_failure(worlds[0], dataplane)
        if isinstance(old, Failure):
            continue
        new = after.proxy_or_failure(worlds[1], dataplane)
        if isinstance(new, Failure):
            reached.append(ReachedProxy(dataplane.name, (_likeness(old), ())))
        elif old.snapshot != new.snapshot:
            reached.append(ReachedProxy(dataplane.name, (_likeness(old), _likeness(new))))
    return reached


def _likeness(proxy: CompiledProxy) -> _Likeness:
    """What decides over a proxy: the same services that it calls, inbounds of the same protocols, the same policies.

    Where it is compiled a class has the same addresses too, and a builtin gateway is one by itself: too narrow here.
    """
    of_class, gateway = proxy.proxy_class, proxy.dataplane.spec.net.gateway
    return (
        ByIdentity(of_class.outbound_policies),
        of_class.rules.legacy.policies_of_calls,
        of_class.caller,
        frozenset(address.destination for address in of_class.addresses),
        ByIdentity(proxy.inbound_policies),
        proxy.legacy_policies,
        tuple(result.inbound.protocol for result in proxy.inbounds),
        frozenset((gateway.tags or {}).items()) if gateway is not None else None,
    )


def chosen(
    reached: Sequence[ReachedProxy], versions: Mapping[str, str], step: RolloutStep, has_it: Collection[str], seed: str
) -> list[str]:
    """The names of proxies that have it with a step: in each class those that have it already, and others by chance.

    The same seed gives the same choice. `versions` are those of the proxies' Envoys, and divide classes: what one
    version takes, another may refuse.
    """
    classes: dict[tuple[_Likeness, str], list[str]] = {}
    for proxy in reached:
        classes.setdefault((proxy.likeness, versions.get(proxy.name, "")), []).append(proxy.name)
    names: list[str] = []
    for members in classes.values():
        in_order = sorted(members, key=lambda name: (name not in has_it, _chance(seed, name)))
        already = sum(name in has_it for name in members)
        names += in_order[: max(already, step.count(len(members)))]
    return sorted(names)


def _chance(seed: str, name: str) -> bytes:
    return sha256(f"{seed}/{name}".encode()).digest()
