"""Which route takes a request at a builtin gateway, read from the documents (docs/concepts/routes.md).

It is the same question as the Gateway API's: https://gateway-api.sigs.k8s.io/reference/spec/ on `Listener.hostname` and
`HTTPRouteSpec.hostnames`.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from tests.oracle.destinations import MISSING, UNCLEAR, Destination
from tests.oracle.matching import carries
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
_NO_SERVICE: Final = Destination()


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


@dataclass(frozen=True)
class Listener:
    data: Data
    tags: Mapping[str, str]

    @property
    def host(self) -> str:
        return self.data.get("hostname") or "*"

    @property
    def protocol(self) -> str:
        return str(self.data["protocol"])


@dataclass(eq=False)
class _Rule:
    """What all rules of a pattern of hostnames with the same matches come to."""

    owner: Resource
    matches: list[dict[str, Any]]
    default: dict[str, Any] = field(default_factory=dict)
    backends_of: Resource | None = None


def answer(documents: Documents, proxy: Resource, request: Request) -> Answer | str:
    if request.is_odd:
        return UNCLEAR
    at_port = [each for each in listeners(documents, proxy) if each.data["port"] == request.port]
    if not at_port:
        return REFUSED
    protocol = at_port[0].protocol
    if protocol in _WITH_NAMES:
        listener = _narrowest(at_port, (request.server_name or "").lower())
        return CLOSED if listener is None else _in_tls(documents, proxy, listener, request, at_port)
    if protocol == "TCP":
        return _of_connection(documents, proxy, at_port[0])
    if request.server_name is not None:
        return CLOSED
    listener = _narrowest(at_port, _name(request.host))
    return Answer(status=NO_ROUTE) if listener is None else _of_request(documents, proxy, listener, request)


def _in_tls(
    documents: Documents, proxy: Resource, listener: Listener, request: Request, at_port: list[Listener]
) -> Answer | str:
    """The name in TLS chooses the listener. What belongs to another one should be asked for there (record 0067)."""
    if request.server_name is None:
        return CLOSED
    if listener.protocol == "TLS":
        return _of_connection(documents, proxy, listener)
    is_of_listener = _narrowest(at_port, _name(request.host)) is listener
    return _of_request(documents, proxy, listener, request) if is_of_listener else Answer(status=MISDIRECTED)


def listeners(documents: Documents, proxy: Resource) -> list[Listener]:
    """Those that are served: with all of their certificates, for this mesh, and only one for TCP at a port."""
    gateway = mesh_gateway(documents, proxy)
    served: list[Listener] = []
    for data in gateway.spec["conf"]["listeners"] if gateway else ():
        is_second = data["protocol"] == "TCP" and any(each.data["port"] == data["port"] for each in served)
        if not (is_second or data.get("crossMesh")) and _has_certificates(documents, data):
            served.append(Listener(data, {**_tags(proxy), **_own_tags(gateway), **(data.get("tags") or {})}))
    return served


def _tags(proxy: Resource) -> Mapping[str, str]:
    tags: Mapping[str, str] = proxy.spec["networking"]["gateway"]["tags"]
    return tags


def _own_tags(gateway: Resource | None) -> Mapping[str, str]:
    return {} if gateway is None else gateway.spec.get("tags") or {}


def mesh_gateway(documents: Documents, proxy: Resource) -> Resource | None:
    """The one with the selector of the most tags, then of the most values, then by its name."""
    ranked = [
        (-len(selector["match"]), sum(value == "*" for value in selector["match"].values()), gateway.stored, gateway)
        for gateway in documents.of("MeshGateway")
        for selector in gateway.items("selectors")
        if carries(_tags(proxy), selector["match"])
    ]
    return min(ranked, key=lambda rank: rank[:3])[3] if ranked else None


def _has_certificates(documents: Documents, listener: Data) -> bool:
    """Of what is drawn, nothing is a certificate that has no BEGIN."""
    sources = (listener.get("tls") or {}).get("certificates") or []
    return all(
        "secret" not in source or _is_certificate(documents.get("Secret", source["secret"])) for source in sources
    )


def _is_certificate(secret: Resource | None) -> bool:
    return secret is not None and b"BEGIN CERTIFICATE" in b64decode(secret.spec["data"])


def fits(pattern: str, name: str) -> bool:
    """`*.a` is for every name that ends so, however long; `*` is for all."""
    pattern = pattern.lower()
    return pattern in {"*", name} or (pattern.startswith("*.") and name.endswith(pattern[1:]) and name != pattern[1:])


def narrowness(pattern: str) -> tuple[bool, int]:
    """An exact name before a pattern, and a longer pattern before a shorter one."""
    return "*" not in pattern, len(pattern)


def _narrowest(of_port: list[Listener], name: str) -> Listener | None:
    fitting = [listener for listener in of_port if fits(listener.host, name)]
    return max(fitting, key=lambda listener: narrowness(listener.host), default=None)


def _name(host: str) -> str:
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()


def _items(documents: Documents, kind: str, proxy: Resource, listener: Listener) -> list[tuple[Resource, Data]]:
    """The items of routes that are for a listener, the strongest first: the order of whole policies, and then the
    later of a policy's items first.
    """
    gateway = mesh_gateway(documents, proxy)
    policies = [policy for policy in documents.of(kind) if gateway is not None and _is_for(policy, gateway, listener)]
    policies.sort(key=lambda policy: (-_asked(policy), policy.identity.name, policy.stored))
    return [(policy, item) for policy in policies for item in reversed(policy.items("to"))]


def _is_for(policy: Resource, gateway: Resource, listener: Listener) -> bool:
    target = policy.spec.get("targetRef") or {}
    is_of_gateway = target.get("kind") == "MeshGateway" and target["name"] == gateway.identity.name
    return is_of_gateway and carries(listener.tags, target.get("tags") or {})


def _asked(policy: Resource) -> int:
    return len(policy.spec["targetRef"].get("tags") or {})


def _of_request(documents: Documents, proxy: Resource, listener: Listener, request: Request) -> Answer | str:
    call = Call("", request.port, request.method, request.path, request.headers, request.query)
    for match, rule in _rows(documents, proxy, listener, _name(request.host)):
        if takes(match, call):
            return _taken(documents, listener, request, match, rule)
    return Answer(status=NO_ROUTE)


def _rows(
    documents: Documents, proxy: Resource, listener: Listener, name: str
) -> Iterator[tuple[Mapping[str, Any], _Rule]]:
    """The matches in the order in which they are tried: those of the narrowest pattern first."""
    items = _items(documents, "MeshHTTPRoute", proxy, listener)
    patterns = {pattern.lower() for _, item in items for pattern in _patterns(item) if fits(pattern, name)}
    for pattern in sorted(patterns, key=narrowness, reverse=True):
        of_pattern = [(policy, item) for policy, item in items if pattern in map(str.lower, _patterns(item))]
        matches = [(match, rule) for rule in _rules(of_pattern) for match in rule.matches]
        yield from sorted(matches, key=lambda pair: specificity(pair[0]))


def _patterns(item: Data) -> list[str]:
    return item.get("hostnames") or ["*"]


def _rules(items: list[tuple[Resource, Data]]) -> list[_Rule]:
    """Rules with the same matches are one; `filters` and `backendRefs` are those of the strongest that has them."""
    rules: dict[str, _Rule] = {}
    for policy, item in items:
        for written in item.get("rules") or []:
            matches = [completed(match) for match in written["matches"]]
            rule = rules.setdefault(json.dumps(matches, sort_keys=True), _Rule(policy, matches))
            default = written.get("default") or {}
            if "backendRefs" in default and "backendRefs" not in rule.default:
                rule.backends_of = policy
            rule.default = {**default, **rule.default}
    return list(rules.values())


def _taken(
    documents: Documents, listener: Listener, request: Request, match: Mapping[str, Any], rule: _Rule
) -> Answer | str:
    owner = _kri(rule.owner)
    filters = rule.default.get("filters") or []
    redirect = next((each["requestRedirect"] for each in filters if each["type"] == "RequestRedirect"), None)
    if redirect is not None:
        location = _location(listener, request, match, redirect)
        return Answer(owner, redirect.get("statusCode", 302), location)
    refs = rule.default.get("backendRefs") or []
    led = shares(documents, _NO_SERVICE, tuple((rule.backends_of or rule.owner, ref) for ref in refs))
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
    host = redirect.get("hostname") or _name(request.host)
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
    """The strongest MeshTCPRoute has it; without any, nobody takes connections."""
    items = _items(documents, "MeshTCPRoute", proxy, listener)
    if not items:
        return CLOSED
    policy, item = items[0]
    led = shares(documents, _NO_SERVICE, tuple((policy, ref) for ref in item["rules"][0]["default"]["backendRefs"]))
    if UNCLEAR in led:
        return UNCLEAR
    return CLOSED if set(led) == {MISSING} else Answer(shares=_named(led))


def _named(led: Mapping[Destination | str, Fraction]) -> dict[str, Fraction]:
    return {str(backend): share for backend, share in led.items()}


def _kri(route: Resource) -> str:
    identity = route.identity
    return f"kri_mhttpr_default_{identity.zone}_{identity.namespace}_{identity.name}_"
