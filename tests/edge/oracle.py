"""Which route takes a request at a builtin gateway, read from the documents (docs/concepts/routes.md).

It is the same question as the Gateway API's: https://gateway-api.sigs.k8s.io/reference/spec/ on `Listener.hostname` and
`HTTPRouteSpec.hostnames`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from operator import itemgetter
from typing import Any, Final

from tests.edge.listeners import Listener, fits, listeners, narrowest, narrowness, selects, strength_at_listener
from tests.oracle.destinations import MISSING, UNCLEAR, Destination
from tests.oracle.matching import Item
from tests.oracle.reading import Data, Documents, Resource
from tests.oracle.routes import Call, completed, shares, specificity, takes

REFUSED: Final = "nothing listens there"
CLOSED: Final = "the connection is closed"
NO_ROUTE: Final = 404
MISDIRECTED: Final = 421
NOBODY: Final = 500

_HTTP: Final = {"HTTP", "HTTPS"}
_WITH_NAMES: Final = {"HTTPS", "TLS"}
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_MESH: Final = {"kind": "Mesh"}
NO_SERVICE: Final = Destination()


@dataclass(frozen=True)
class Request:
    """A request to a port of a gateway."""

    port: int
    host: str
    path: str = "/"
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    query: tuple[tuple[str, str], ...] = ()
    server_name: str | None = None
    """The name in TLS, empty for none; None: without TLS."""

    is_odd: bool = False
    """Whether it is something that no document speaks of, so that Envoy alone says what becomes of it."""


@dataclass(frozen=True)
class Answer:
    """What becomes of a request."""

    route: str = ""
    """The strongest of the routes that took it, by its KRI."""

    status: int = 0
    """Of an answer that the gateway gives by itself."""

    location: tuple[str, str, int, str] | None = None
    """Of a redirect: scheme, host, port and path."""

    shares: Mapping[str, Fraction] = field(default_factory=dict)
    host: str = ""
    """The host that the backend sees; empty: its own."""

    path: str = ""


@dataclass(eq=False)
class MergedRule:
    """What all rules of a pattern of hostnames with the same matches come to."""

    owner: Resource
    matches: list[dict[str, Any]]
    default: dict[str, Any] = field(default_factory=dict)
    suppliers: dict[str, Resource] = field(default_factory=dict)
    """Whose each value is."""

    @property
    def contributors(self) -> tuple[Resource, ...]:
        """The routes of which something is left in the rule, the strongest first (record 0039)."""
        return tuple(dict.fromkeys([self.owner, *reversed(self.suppliers.values())]))

    @property
    def refs(self) -> tuple[tuple[Resource, Data], ...]:
        """The references to backends, each with the route that it was written in."""
        owner = self.suppliers.get("backendRefs", self.owner)
        return tuple((owner, ref) for ref in self.default.get("backendRefs") or [])


def answer(documents: Documents, proxy: Resource, request: Request) -> Answer | str:
    if request.is_odd:
        return UNCLEAR
    at_port = [each for each in listeners(documents, proxy) if each.data["port"] == request.port]
    if not at_port:
        return REFUSED
    protocol = at_port[0].protocol
    if protocol in _WITH_NAMES:
        listener = narrowest(at_port, (request.server_name or "").lower())
        return CLOSED if listener is None else _in_tls(documents, proxy, listener, request, at_port)
    if protocol == "TCP":
        return _of_connection(documents, proxy, at_port[0])
    if request.server_name is not None:
        return CLOSED
    listener = narrowest(at_port, host_name(request.host))
    return Answer(status=NO_ROUTE) if listener is None else _of_request(documents, proxy, listener, request)


def _in_tls(
    documents: Documents, proxy: Resource, listener: Listener, request: Request, at_port: list[Listener]
) -> Answer | str:
    """The name in TLS chooses the listener. What belongs to another one should be asked for there (record 0067)."""
    if request.server_name is None:
        return CLOSED
    if listener.protocol == "TLS":
        return _of_connection(documents, proxy, listener)
    is_of_listener = narrowest(at_port, host_name(request.host)) is listener
    return _of_request(documents, proxy, listener, request) if is_of_listener else Answer(status=MISDIRECTED)


def host_name(host: str) -> str:
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()


def _items(documents: Documents, kind: str, proxy: Resource, listener: Listener) -> list[tuple[Resource, Data]]:
    """The items of routes that are for a listener, the strongest first: the order of whole policies, and then the
    later of a policy's items first.
    """
    routes = [route for route in documents.of(kind) if selects(documents, route, proxy, listener)]
    items = [
        (strength_at_listener(Item(route, index, _MESH, item), _MESH), route, item)
        for route in routes
        for index, item in enumerate(route.items("to"))
    ]
    return [(route, item) for _, route, item in sorted(items, key=itemgetter(0), reverse=True)]


def _of_request(documents: Documents, proxy: Resource, listener: Listener, request: Request) -> Answer | str:
    call = Call("", request.port, request.method, request.path, request.headers, request.query)
    for match, rule in rows(documents, proxy, listener, host_name(request.host)):
        if takes(match, call):
            return _taken(documents, listener, request, match, rule)
    return Answer(status=NO_ROUTE)


def rows(
    documents: Documents, proxy: Resource, listener: Listener, name: str
) -> Iterator[tuple[Mapping[str, Any], MergedRule]]:
    """The matches in the order in which they are tried: those of the narrowest pattern first."""
    items = _items(documents, "MeshHTTPRoute", proxy, listener)
    patterns = {pattern.lower() for _, item in items for pattern in _patterns(item) if fits(pattern, name)}
    for pattern in sorted(patterns, key=narrowness, reverse=True):
        of_pattern = [(policy, item) for policy, item in items if pattern in map(str.lower, _patterns(item))]
        matches = [(match, rule) for rule in _rules(of_pattern) for match in rule.matches]
        yield from sorted(matches, key=lambda pair: specificity(pair[0]))


def _patterns(item: Data) -> list[str]:
    return item.get("hostnames") or ["*"]


def _rules(items: list[tuple[Resource, Data]]) -> list[MergedRule]:
    """Rules with the same matches are one; `filters` and `backendRefs` are those of the strongest that has them."""
    rules: dict[str, MergedRule] = {}
    for policy, item in items:
        for written in item.get("rules") or []:
            matches = [completed(match) for match in written["matches"]]
            rule = rules.setdefault(json.dumps(matches, sort_keys=True), MergedRule(policy, matches))
            default = written.get("default") or {}
            rule.suppliers = {**dict.fromkeys(default, policy), **rule.suppliers}
            rule.default = {**default, **rule.default}
    return list(rules.values())


def _taken(
    documents: Documents, listener: Listener, request: Request, match: Mapping[str, Any], rule: MergedRule
) -> Answer | str:
    owner = _kri(rule.owner)
    filters = rule.default.get("filters") or []
    redirect = next((each["requestRedirect"] for each in filters if each["type"] == "RequestRedirect"), None)
    if redirect is not None:
        location = _location(listener, request, match, redirect)
        return Answer(owner, redirect.get("statusCode", 302), location)
    led = shares(documents, NO_SERVICE, rule.refs)
    if UNCLEAR in led:
        return UNCLEAR
    rewrite: Data = next((each["urlRewrite"] for each in filters if each["type"] == "URLRewrite"), {})
    host = rewrite.get("hostname") or request.host  # a server in the mesh has no name that could take its place
    if set(led) == {MISSING}:
        return Answer(owner, NOBODY)
    named = _named(led)
    host = "" if has_hosts_of_its_own(named) else host
    return Answer(owner, shares=named, host=host, path=_path(request, match, rewrite.get("path")))


def has_hosts_of_its_own(shares: Mapping[str, Fraction]) -> bool:
    """Whether some servers are outside the mesh: then which host they see depends on their addresses."""
    return any(backend.startswith("kri_extsvc_") for backend in shares)


def _location(
    listener: Listener, request: Request, match: Mapping[str, Any], redirect: Data
) -> tuple[str, str, int, str]:
    """Without a port it is that of the scheme, if the redirect has one, else that of the listener (Gateway API)."""
    spoken = "https" if listener.protocol == "HTTPS" else "http"
    scheme = redirect.get("scheme") or spoken
    port = redirect.get("port") or (_DEFAULT_PORTS[scheme] if redirect.get("scheme") else request.port)
    host = redirect.get("hostname") or host_name(request.host)
    return scheme, host, port, _path(request, match, redirect.get("path"))


def _path(request: Request, match: Mapping[str, Any], change: Data | None) -> str:
    """What replaces a prefix keeps the slash between it and what follows."""
    if change is None:
        return request.path
    if change["type"] == "ReplaceFullPath":
        return str(change["replaceFullPath"])
    prefix = match["path"]["value"].rstrip("/")
    behind, before = request.path.removeprefix(prefix), change["replacePrefixMatch"].rstrip("/")
    return f"{before}{behind}" or "/"


def _of_connection(documents: Documents, proxy: Resource, listener: Listener) -> Answer | str:
    """Without any route nobody takes connections."""
    route = tcp_route(documents, proxy, listener)
    if route is None:
        return CLOSED
    led = shares(documents, NO_SERVICE, route[1])
    if UNCLEAR in led:
        return UNCLEAR
    return CLOSED if set(led) == {MISSING} else Answer(shares=_named(led))


def tcp_route(
    documents: Documents, proxy: Resource, listener: Listener
) -> tuple[Resource, tuple[tuple[Resource, Data], ...]] | None:
    """The strongest MeshTCPRoute has all connections of a listener, with its references to backends."""
    for policy, item in _items(documents, "MeshTCPRoute", proxy, listener):
        return policy, tuple((policy, ref) for ref in item["rules"][0]["default"]["backendRefs"])
    return None


def _named(led: Mapping[Destination | str, Fraction]) -> dict[str, Fraction]:
    return {str(backend): share for backend, share in led.items()}


def _kri(route: Resource) -> str:
    identity = route.identity
    return f"kri_mhttpr_default_{identity.zone}_{identity.namespace}_{identity.name}_"
