"""Which timeouts and retries hold at a builtin gateway, by the documents (docs/concepts/policies-on-gateways.md).

Fields have the names that they have in policies, under the place where they are served: `row`, `retry`, `clients`, and
the name of each backend.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from tests.edge.listeners import Listener, listeners, narrowest, selects, strength_at_listener
from tests.edge.oracle import NO_SERVICE, MergedRule, Request, host_name, rows, tcp_route
from tests.oracle.destinations import HTTP, UNCLEAR, Destination, means
from tests.oracle.matching import Item, named, routes_before
from tests.oracle.merging import Conf, merged, value
from tests.oracle.reading import Data, Documents, Resource
from tests.oracle.routes import Call, shares, takes
from tests.oracle.values import retry, seconds

Fields = dict[str, dict[str, Any]]

_DEFAULTS: Final[Mapping[str, Mapping[str, str | None]]] = {
    "row": {"http.requestTimeout": "15s", "http.streamIdleTimeout": "5s"},
    "clients": {
        "idleTimeout": "5m",
        "http.requestTimeout": None,
        "http.streamIdleTimeout": "5s",
        "http.requestHeadersTimeout": "500ms",
        "http.maxStreamDuration": None,
        "http.maxConnectionDuration": None,
    },
    "clients of TCP": {"idleTimeout": "5m"},
    "cluster": {
        "connectionTimeout": "5s",
        "idleTimeout": "1h",
        "http.maxStreamDuration": None,
        "http.maxConnectionDuration": None,
    },
    "cluster of TCP": {"connectionTimeout": "5s"},
}
"""Which value holds, and the table Where it ends."""

_MESH: Final = {"kind": "Mesh"}
_ROUTES: Final = {"MeshHTTPRoute", "MeshTCPRoute"}
_OF_REQUESTS: Final = {"HTTP", "HTTPS"}
_LISTS: Final = ("retriableRequestHeaders", "retriableResponseHeaders", "hostSelection")
_DEFAULT_BASE: Final = "25ms"


class Holding:
    """What holds at a gateway."""

    def __init__(self, documents: Documents, proxy: Resource) -> None:
        self._documents = documents
        self._proxy = proxy
        self._listeners = listeners(documents, proxy)

    def of_request(self, request: Request) -> Fields | None:
        """None for a request that no backend is asked for, and where no document says what becomes of it."""
        taken = None if request.is_odd else self._taken(request)
        if taken is None or any("requestRedirect" in each for each in taken[1].default.get("filters") or []):
            return None
        listener, rule = taken
        backends = self._backends(rule.refs)
        confs = {
            kind: self.levels(kind, listener, backends, rule.contributors) for kind in ("MeshTimeout", "MeshRetry")
        }
        is_grpc = {backend.protocol for backend in backends} == {"grpc"}
        fields = {
            "row": _timeouts(confs["MeshTimeout"], "row"),
            "retry": _retries(confs["MeshRetry"], "grpc" if is_grpc else "http"),
            "clients": self._of_clients(listener, "clients"),
        }
        return {**fields, **self._of_clusters(listener, backends)} if backends else None

    def of_connection(self, request: Request) -> Fields | None:
        """The same for a connection to a listener of TCP or TLS."""
        listener = self._connected(request)
        taken = None if listener is None or request.is_odd else tcp_route(self._documents, self._proxy, listener)
        if listener is None or taken is None:
            return None
        route, refs = taken
        backends = self._backends(refs)
        attempts = value(self.levels("MeshRetry", listener, backends, [route]), "tcp.maxConnectAttempt")
        fields = {
            "retry": {} if attempts is None else {"tcp.maxConnectAttempt": attempts},
            "clients": self._of_clients(listener, "clients of TCP"),
        }
        return {**fields, **self._of_clusters(listener, backends)} if backends else None

    def _connected(self, request: Request) -> Listener | None:
        """The listener of a connection, if it is not for requests."""
        at_port = [each for each in self._listeners if each.data["port"] == request.port]
        protocol = at_port[0].protocol if at_port else ""
        if protocol == "TCP":
            return at_port[0]
        is_tls = protocol == "TLS" and request.server_name is not None
        return narrowest(at_port, (request.server_name or "").lower()) if is_tls else None

    def _backends(self, refs: Sequence[tuple[Resource, Data]]) -> list[Destination]:
        """Those that get something; none where it is not clear who does."""
        led = shares(self._documents, NO_SERVICE, tuple(refs))
        return [] if UNCLEAR in led else [backend for backend in led if isinstance(backend, Destination)]

    def _taken(self, request: Request) -> tuple[Listener, MergedRule] | None:
        """The listener and the rule that a request is for."""
        at_port = [each for each in self._listeners if each.data["port"] == request.port]
        protocol = at_port[0].protocol if at_port else ""
        if protocol not in _OF_REQUESTS or (protocol == "HTTPS") is (request.server_name is None):
            return None
        name = host_name(request.host)
        listener = narrowest(at_port, name)
        asked = listener if request.server_name is None else narrowest(at_port, request.server_name.lower())
        if listener is None or asked is not listener:
            return None
        call = Call("", request.port, request.method, request.path, request.headers, request.query)
        table = rows(self._documents, self._proxy, listener, name)
        return next(((listener, rule) for match, rule in table if takes(match, call)), None)

    def items(self, kind: str, listener: Listener) -> list[Item]:
        """All items of `to` of the policies that are for a listener."""
        return [
            Item(policy, index, item["targetRef"], item["default"])
            for policy in self._documents.of(kind)
            if selects(self._documents, policy, self._proxy, listener)
            for index, item in enumerate(policy.items("to"))
        ]

    def levels(
        self, kind: str, listener: Listener, backends: Sequence[Destination], routes: Iterable[Resource] = ()
    ) -> list[Conf]:
        """What is said of the routes, the one service that they lead to, if it is one, and the mesh."""
        items = self.items(kind, listener)
        of_routes = [conf for route in routes for conf in self._of_route(items, route)]
        service = backends[0] if len(backends) == 1 else NO_SERVICE
        return [*of_routes, *self._of_service([item for item in items if not _names_route_at_top(item)], service)]

    def _of_route(self, items: list[Item], route: Resource) -> Iterator[Conf]:
        """The newer way to name it, and then the older one (The old way to name a route)."""
        of_route = self._items_of_route(items, route)
        yield _conf([item for item in of_route if not _names_route_at_top(item)], by_target=True)
        yield _conf([item for item in of_route if _names_route_at_top(item)])

    def _items_of_route(self, items: list[Item], route: Resource) -> list[Item]:
        return [item for item in items if route in self._routes(item)]

    def _routes(self, item: Item) -> list[Resource]:
        if _names_route_at_top(item):
            return routes_before(self._documents, item.policy, item.top)
        is_for_routes = item.target["kind"] in _ROUTES
        return named(self._documents, item.policy, item.target) if is_for_routes else []

    def _of_service(self, items: list[Item], service: Destination) -> Iterator[Conf]:
        by_item = self._items_of_service(items, service)
        mesh = [item for item in items if item.target["kind"] == "Mesh"]
        whole = [*mesh, *(item for item, level in by_item if level == "service")]
        section = [*whole, *(item for item, level in by_item if level == "section")]
        is_real = service.service is not None
        return (_conf(of_level, by_target=is_real) for of_level in (section, whole, mesh))

    def _items_of_service(self, items: list[Item], service: Destination) -> list[tuple[Item, str]]:
        """Of a policy that names a route, items by tags do not hold; those for the mesh do (differences from Kuma)."""
        is_real = service.service is not None
        holding = [item for item in items if is_real or not _names_route(item.policy)]
        levels = ((item, means(self._documents, item.policy, item.target, service)) for item in holding)
        return [(item, level) for item, level in levels if level]

    def _of_clusters(self, listener: Listener, backends: Sequence[Destination]) -> Fields:
        return {str(backend): self._of_cluster(listener, backend) for backend in backends}

    def _of_cluster(self, listener: Listener, backend: Destination) -> dict[str, Any]:
        place = "cluster" if backend.protocol in HTTP else "cluster of TCP"
        return _timeouts(self.levels("MeshTimeout", listener, [backend]), place)

    def _of_clients(self, listener: Listener, place: str) -> dict[str, Any]:
        return _timeouts([_conf(self._items_of_clients(listener))], place)

    def _items_of_clients(self, listener: Listener) -> list[Item]:
        """Without TLS connections are no hostname's: all policies for listeners of the port hold."""
        of_port = [each for each in self._listeners if each.data["port"] == listener.data["port"]]
        chosen = of_port if listener.protocol == "HTTP" else [listener]
        return [
            Item(policy, index, _MESH, item["default"])
            for policy in self._documents.of("MeshTimeout")
            if any(selects(self._documents, policy, self._proxy, each) for each in chosen)
            for index, item in enumerate(policy.items("rules") or policy.items("from"))
            if not item.get("matches")
        ]

    def competitors(self, request: Request) -> dict[str, list[Resource]]:
        """The MeshTimeouts that say something for a request, level by level."""
        taken = self._taken(request)
        assert taken is not None
        listener, rule = taken
        backends = self._backends(rule.refs)
        items = self.items("MeshTimeout", listener)
        of_service = self._items_of_service(items, backends[0]) if len(backends) == 1 else []
        levels = {
            "of a route": [item for route in rule.contributors for item in self._items_of_route(items, route)],
            "of the service": [item for item, _ in of_service],
            "of the mesh": [item for item in items if item.target["kind"] == "Mesh" and not _names_route_at_top(item)],
            "of clients": self._items_of_clients(listener),
        }
        return {level: list(dict.fromkeys(item.policy for item in of_level)) for level, of_level in levels.items()}


def _names_route(policy: Resource) -> bool:
    return any(item["targetRef"]["kind"] in _ROUTES for item in policy.items("to"))


def _names_route_at_top(item: Item) -> bool:
    return bool(item.top["kind"] == "MeshHTTPRoute")


def _conf(items: list[Item], *, by_target: bool = False) -> Conf:
    """The order of whole policies, or that of items."""
    ordered = sorted(items, key=lambda item: strength_at_listener(item, item.target if by_target else _MESH))
    return merged(item.conf for item in ordered)


def _timeouts(confs: Sequence[Conf], place: str) -> dict[str, Any]:
    texts = {path: value(confs, path) or default for path, default in _DEFAULTS[place].items()}
    return {path: seconds(text) for path, text in texts.items() if text is not None}


def _retries(confs: Sequence[Conf], section: str) -> dict[str, Any]:
    fields = retry(confs, section)
    if fields is None:
        return {}
    values = {path: value(confs, f"{section}.{path}") for path in (*_LISTS, "hostSelectionMaxAttempts")}
    reset = value(confs, f"{section}.rateLimitedBackOff.resetHeaders") or []
    values |= {**fields, **_back_off(confs, section), "resetHeaders": [header["name"] for header in reset] or None}
    return {path: written for path, written in values.items() if written is not None}


def _back_off(confs: Sequence[Conf], section: str) -> Mapping[str, Any]:
    """Envoy needs a base, which is at most the maximum."""
    base, most = (value(confs, f"{section}.backOff.{name}Interval") for name in ("base", "max"))
    if base is None and most is None:
        return {}
    first = seconds(base) if base else min(seconds(most or _DEFAULT_BASE), seconds(_DEFAULT_BASE))
    return {"baseInterval": first, "maxInterval": None if most is None else max(first, seconds(most))}
