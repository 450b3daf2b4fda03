"""`Publisher`: hands what a turn computed to the hub, and says whom it reached and what failed."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import TypeAlias

import structlog

from cp.ads.hub import Hub
from cp.model.failure import Failure
from cp.model.names import Key, dataplane_key, proxy_id
from cp.resources.assignment import held_dataplanes, rolled_keys
from cp.resources.world import World
from cp.serving.publications import Publication
from cp.serving.turn import PendingChanges, TurnResult
from cp.translate.snapshot import SnapshotPart


class Publisher:
    """What the reconciler tells the hub. It keeps which proxies are connected, and what failed for them."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub.publisher
        self._connected: dict[str, dict[str, None]] = {}
        self._failures: Mapping[str, tuple[Failure, ...]] = {}
        self._log = structlog.get_logger()

    @property
    def meshes(self) -> Collection[str]:
        """The meshes of which a proxy was connected when the last turn began."""
        return self._connected.keys()

    def connected(self, mesh: str) -> Collection[str]:
        """The proxies of a mesh that were connected when the last turn began, in the order in which they came."""
        return self._connected.get(mesh, {}).keys()

    def _is_connected(self, proxy: str) -> bool:
        return proxy in self.connected(dataplane_key(proxy).mesh)

    @property
    def failures(self) -> Mapping[str, tuple[Failure, ...]]:
        """The parts that are not built for connected proxies; proxies without a failure are left out."""
        return self._failures

    @property
    def certified_clients(self) -> frozenset[Key]:
        """The connected gRPC clients that have certificates."""
        return frozenset(map(dataplane_key, self._hub.certified_clients))

    def update_connected(self, arrived: Iterable[str]) -> frozenset[str]:
        """Add the proxies that connected since the last turn, and remove those that disconnected, which it returns."""
        arrived_or_departed = self._hub.departures().union(arrived)
        departed = frozenset(proxy for proxy in arrived_or_departed if not self._hub.is_connected(proxy))
        for proxy in arrived_or_departed - departed:
            self._connected.setdefault(dataplane_key(proxy).mesh, {})[proxy] = None
        for proxy in departed:
            self._connected.get(dataplane_key(proxy).mesh, {}).pop(proxy, None)
        self._connected = {mesh: proxies for mesh, proxies in self._connected.items() if proxies}
        return departed

    def publish(
        self,
        pending: PendingChanges,
        result: TurnResult,
        world_before: World,
        *,
        arrived_meanwhile: Iterable[str],
        mesh: str = "",
    ) -> Publication:
        """Hand a result to the hub. `mesh` is the only one that it is about, if that was set aside."""
        at = self._hub.now()
        newcomers = frozenset(proxy for proxy in pending.arrived if not self._hub.knows(proxy))
        published = self._hand_over(result, pending, self._hub.arriving.union(arrived_meanwhile))
        written = frozenset(pending.changed_keys)
        changed = rolled_keys(result.world, written)
        held = self._held(result.world, written)
        faults, limits = _divided(result.failures)
        return Publication(
            previous_revision=world_before.revision,
            revision=result.world.revision,
            at=at,
            proxies=published - newcomers,
            newcomers=newcomers,
            held=held,
            forerunners=self._held(world_before, written) - held,
            changed=changed,
            failed=frozenset(self._newly_failed(faults, pending.arrived, changed)),
            limited=frozenset(self._newly_failed(limits, pending.arrived, changed)),
            is_whole=pending.contents is None,
            mesh=mesh,
            revisions=frozenset(pending.revisions) if mesh and pending.contents is None else None,
        )

    def _held(self, world: World, written: frozenset[Key]) -> frozenset[str]:
        """The connected proxies that a rollout serves something else in place of what was written."""
        return frozenset(filter(self._is_connected, map(proxy_id, held_dataplanes(world, written))))

    def _hand_over(self, result: TurnResult, pending: PendingChanges, returned: Container[str]) -> frozenset[str]:
        """Give the hub the snapshots. Returns the proxies that have to take theirs: it is new, or they `returned`.

        `returned` are the proxies that connected while the turn was computed, so perhaps after a later write. They are
        given nothing yet: the next turn serves them, and until then they do not have the change.
        """
        snapshots, certificates = result.snapshots, result.certificates
        published = frozenset(
            proxy
            for proxy, snapshot in snapshots.items()
            if proxy in returned or self._hub.publish(proxy, snapshot, pending.noticed_at)
        )
        for proxy, part in certificates.items():
            if proxy not in returned:
                self._hub.publish_part(proxy, part)
        for proxy in pending.arrived.keys() - snapshots.keys():
            if proxy not in returned:  # its Dataplane is gone, or a fault of ours: it keeps what it has
                self._hub.confirm(proxy)
        return published

    def _newly_failed(
        self, failures: Mapping[str, tuple[Failure, ...]], arrived: Container[str], changed: frozenset[Key]
    ) -> Iterator[str]:
        """The proxies with a failure that a change has brought, or that is about what was changed.

        What failed earlier for a proxy that has just connected is not known, so nothing counts as brought.
        """
        for proxy, of_proxy in failures.items():
            earlier = of_proxy if proxy in arrived else self._failures.get(proxy, ())
            if any(failure not in earlier or not changed.isdisjoint(failure.policies) for failure in of_proxy):
                yield proxy

    def keep_failures(self, failures: Mapping[str, tuple[Failure, ...]], departed: Container[str]) -> None:
        """Remember each failure until a turn computes the proxy without it, and log it once."""
        for proxy, of_proxy in failures.items():
            for new in set(of_proxy).difference(self._failures.get(proxy, ())):
                fields = {"proxy": proxy, "reason": str(new), "policies": list(map(str, new.policies))}
                if new.is_limit:
                    self._log.warning("proxy.over_limit", **fields)
                else:
                    self._log.error("proxy.failed", **fields)
        latest = {**self._failures, **failures}
        self._failures = {proxy: of_proxy for proxy, of_proxy in latest.items() if of_proxy and proxy not in departed}

    def withdraw(self, parts: Mapping[str, SnapshotPart]) -> None:
        """Take parts that nobody else may have out of what proxies that left were given."""
        for proxy, part in parts.items():
            self._hub.withdraw(proxy, part)

    def forget_gone(self, world: World, departed: Iterable[str], changed: Iterable[Key]) -> None:
        """Keep nothing of proxies that are not connected and have no Dataplane any more."""
        for proxy in (*departed, *(proxy_id(key) for key in changed if key.type == "Dataplane")):
            if world.get(dataplane_key(proxy)) is None and not self._hub.is_connected(proxy):
                self._hub.forget(proxy)


_Failures: TypeAlias = Mapping[str, tuple[Failure, ...]]


def _divided(failures: _Failures) -> tuple[_Failures, _Failures]:
    """Return the failures that are faults of ours, and those of limits, of proxies that have any."""
    faults = {proxy: tuple(fault for fault in of_proxy if not fault.is_limit) for proxy, of_proxy in failures.items()}
    limits = {proxy: tuple(limit for limit in of_proxy if limit.is_limit) for proxy, of_proxy in failures.items()}
    return faults, limits
