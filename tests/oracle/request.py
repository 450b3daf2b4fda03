"""The answer for one call: where it goes, and what holds for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from tests.oracle.destinations import HTTP, MISSING, UNCLEAR, Destination, outbound
from tests.oracle.merging import value
from tests.oracle.reading import Data, Documents, Resource
from tests.oracle.routes import Call, route_items, rows, shares, takes
from tests.oracle.values import levels, retry, timeout


@dataclass(frozen=True)
class Answer:
    """What becomes of a call, in words that the documents and Envoy share."""

    owner: str = ""
    """The route that took it, by its KRI; empty: none, so that it is the service's."""

    redirect: int = 0
    shares: Mapping[str, Fraction] = field(default_factory=dict)
    """Backends, by the names of their clusters."""

    request_timeout: Fraction | None = None
    stream_idle_timeout: Fraction | None = None
    idle_timeout: Fraction | None = None
    retry: Mapping[str, Any] | None = None
    connect_attempts: int | None = None
    connection_timeouts: Mapping[str, Fraction] = field(default_factory=dict)


NOTHING_LISTENS: Final = "nothing listens there"


def answer(documents: Documents, proxy: Resource, call: Call) -> Answer | str:
    """Where the documents do not say, `UNCLEAR`: a reference may mean several."""
    called = next(data for data in outbounds(proxy) if _place(data) == (call.address, call.port))
    destination = outbound(documents, proxy, called)
    if destination is None:
        return NOTHING_LISTENS
    if isinstance(destination, str):
        return destination
    http = route_items(documents, "MeshHTTPRoute", proxy, destination)
    tcp = route_items(documents, "MeshTCPRoute", proxy, destination)
    if destination.protocol in HTTP and (http or not tcp):
        return _of_request(documents, proxy, destination, call)
    return _of_connection(documents, proxy, destination)


def _place(data: Data) -> tuple[str, int]:
    return data.get("address", "127.0.0.1"), data["port"]


def outbounds(proxy: Resource) -> list[Data]:
    """Of those in one place the first is served, also where it leads to nothing (record 0042)."""
    served: dict[tuple[str, int], Data] = {}
    for data in proxy.spec["networking"].get("outbound") or []:
        served.setdefault(_place(data), data)
    return list(served.values())


def is_judged(proxy: Resource) -> bool:
    """A machine whose calls are redirected to the proxy has other outbounds than those that are written down."""
    networking = proxy.spec["networking"]
    return "transparentProxying" not in networking and "koguma.io/client" not in proxy.labels


def _of_request(documents: Documents, proxy: Resource, called: Destination, call: Call) -> Answer | str:
    row = next(row for row in rows(documents, proxy, called) if takes(row.match, call))
    owner = _kri(row.owner)
    if row.redirect is not None:
        return Answer(owner, redirect=row.redirect.get("statusCode", 302))
    led = shares(documents, called, row.refs)
    if UNCLEAR in led:
        return UNCLEAR
    if set(led) == {MISSING}:
        return Answer(owner, shares=_named(led))
    of_timeout = levels(documents, "MeshTimeout", proxy, called, row.contributors)
    of_retry = levels(documents, "MeshRetry", proxy, called, row.contributors)
    return Answer(
        owner,
        shares=_named(led),
        request_timeout=timeout(of_timeout, "http.requestTimeout"),
        stream_idle_timeout=timeout(of_timeout, "http.streamIdleTimeout"),
        retry=retry(of_retry, called.protocol),
        connection_timeouts=_connections(documents, proxy, led),
    )


def _of_connection(documents: Documents, proxy: Resource, called: Destination) -> Answer | str:
    """Of several MeshTCPRoutes the strongest counts: its list of backends replaces the others' (document 002)."""
    items = route_items(documents, "MeshTCPRoute", proxy, called)
    route = [item.policy for item in items[:1]]
    refs = items[0].conf[0]["default"]["backendRefs"] if items else []
    led = shares(documents, called, tuple((items[0].policy, ref) for ref in refs))
    if UNCLEAR in led:
        return UNCLEAR
    if set(led) == {MISSING}:
        return Answer(shares=_named(led))
    of_timeout = levels(documents, "MeshTimeout", proxy, called, route)
    of_retry = levels(documents, "MeshRetry", proxy, called, route)
    return Answer(
        shares=_named(led),
        idle_timeout=timeout(of_timeout, "idleTimeout"),
        connect_attempts=value(of_retry, "tcp.maxConnectAttempt"),
        connection_timeouts=_connections(documents, proxy, led),
    )


def _connections(
    documents: Documents, proxy: Resource, led: Mapping[Destination | str, Fraction]
) -> dict[str, Fraction]:
    """A connection is made to a backend, for whichever service it was called: the backend's own policies hold."""
    timeouts = {}
    for backend in led:
        if isinstance(backend, Destination):
            timeouts[str(backend)] = timeout(levels(documents, "MeshTimeout", proxy, backend), "connectionTimeout")
    return timeouts


def _named(led: Mapping[Destination | str, Fraction]) -> dict[str, Fraction]:
    return {str(backend): share for backend, share in led.items()}


def _kri(route: Resource | None) -> str:
    if route is None:
        return ""
    identity = route.identity
    return f"kri_mhttpr_default_{identity.zone}_{identity.namespace}_{identity.name}_"
