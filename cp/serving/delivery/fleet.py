"""`ProxyStatus`: how one proxy is, in few words. `FleetDelta`: the proxies of one process that have changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cp.ads.connection import Connection, ConnectionRecord
from cp.model.failure import Failure
from cp.serving.delivery.delivery import ProxyState, state_of


@dataclass(frozen=True, slots=True)
class ProxyStatus:
    """How one proxy is. It is small, as there is one for each of thousands."""

    proxy: str
    state: ProxyState
    since: float | None
    """Since when it is in sync, or not; of a proxy that has left, when it did, if that is remembered."""

    envoy: str = ""
    """The version that it says of itself."""

    findings: int = 0
    """NACKs that stand, and parts that are not built for it."""


@dataclass(frozen=True, slots=True)
class FleetDelta:
    """The proxies of one process that serves some: all of them, or those of which something has changed."""

    source: str
    """An id of what remembers versions: where it is another one, all that was known of the process is void."""

    version: int
    revision: int
    """The revision that the process serves."""

    is_whole: bool
    statuses: tuple[ProxyStatus, ...]


def proxy_status(
    proxy: str, connections: Sequence[Connection], since: float | None, failures: Collection[Failure], *, in_sync: bool
) -> ProxyStatus:
    """Return the status of a connected proxy. `since` is since when it is in sync, or not."""
    state = state_of(connections, failures, in_sync=in_sync)
    nacks = 0 if state.is_in_sync else sum(len(connection.nacks) for connection in connections)
    return ProxyStatus(proxy, state, since, connections[-1].node.version, nacks + len(failures))


def status_of_offline(proxy: str, last: ConnectionRecord | None) -> ProxyStatus:
    """How a proxy is that is not connected. `last` is its newest connection."""
    if last is None:
        return ProxyStatus(proxy, ProxyState.OFFLINE, None)
    return ProxyStatus(proxy, ProxyState.OFFLINE, last.until, last.node.version)


SEVERITY: Final = (
    ProxyState.ONLINE,
    ProxyState.OVER_LIMIT,
    ProxyState.OUT_OF_SYNC,
    ProxyState.REFUSED,
    ProxyState.FAILED,
)
"""The states of connected proxies, the worst last."""


def combined_status(statuses: Iterable[ProxyStatus]) -> ProxyStatus | None:
    """Of a proxy with streams to several processes the worst status; of one with none when it left last."""
    of_processes = list(statuses)
    connected = [status for status in of_processes if status.state in SEVERITY]
    if connected:
        return max(connected, key=lambda status: (SEVERITY.index(status.state), status.since or 0.0))
    return max(of_processes, key=lambda status: status.since or 0.0, default=None)
