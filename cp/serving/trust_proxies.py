"""`TrustProxies`: how far the proxies of a mesh are with what its trust record says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from cp.identity.identities import identity_of
from cp.model.names import Key
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.serving.delivery import Presence, ProxyState, last_left
from cp.serving.trust_moves import ProxyStanding


class ProxyPresences(Protocol):
    """Where proxies stand, in any process of this control plane."""

    async def presences(self, dataplanes: Iterable[Key]) -> Mapping[Key, Presence]: ...


class TrustProxies:
    def __init__(
        self, proxies: ProxyPresences, clock: Callable[[], float], watched_since: float, patience: float
    ) -> None:
        """`patience`: for how many seconds a proxy that has disconnected is expected back."""
        self._proxies, self._clock = proxies, clock
        self._watched_since, self._patience = watched_since, patience

    async def standings(self, world: World, mesh: str) -> tuple[ProxyStanding, ...]:
        dataplanes = {dataplane.key: dataplane for dataplane in world.table("Dataplane", mesh)}
        presences = await self._proxies.presences(dataplanes)
        return tuple(self._standing(world, dataplanes[key], presence) for key, presence in presences.items())

    def _standing(self, world: World, dataplane: Resource, presence: Presence) -> ProxyStanding:
        until = None if presence.state is not ProxyState.OFFLINE else self._expected_until(presence)
        return ProxyStanding(
            dataplane=dataplane.key,
            state=presence.state,
            is_expected=until is None or self._clock() < until,
            is_certified=presence.certificate is not None or identity_of(world, dataplane) is None,
            serves=bool(dataplane.spec.net.inbound),
            until=until,
        )

    def _expected_until(self, presence: Presence) -> float:
        """Until when a proxy that has disconnected is expected back. It still has what it was given before."""
        left = last_left(presence)
        return (self._watched_since if left is None else max(left, self._watched_since)) + self._patience
