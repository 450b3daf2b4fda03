"""The listeners of a builtin gateway, which of them a request is for, and which policies are for one of them.

See docs/concepts/matching-and-merging.md#gateways.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.oracle.matching import Item, carries, has_type, routes_before, strength, top
from tests.oracle.reading import Data, Documents, Resource

_OF_NAMESPACE: Final = {"consumer", "workload-owner"}
_ORIGIN: Final = "kuma.io/origin"
_ZONE: Final = "kuma.io/zone"
_BEHIND_ORIGIN: Final = 4
"""How many differences come before the number of tags: those of the target, and the origin."""


@dataclass(frozen=True, eq=False)
class Listener:
    data: Data
    tags: Mapping[str, str]

    @property
    def host(self) -> str:
        return self.data.get("hostname") or "*"

    @property
    def protocol(self) -> str:
        return str(self.data["protocol"])


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
        if carries(_tags(proxy), selector["match"]) and _is_near(gateway, proxy)
    ]
    return min(ranked, key=lambda rank: rank[:3])[3] if ranked else None


def _is_near(gateway: Resource, proxy: Resource) -> bool:
    """A MeshGateway of one zone configures no proxy of another (Zones and namespaces)."""
    zone = gateway.labels.get(_ZONE, "")
    if gateway.labels.get(_ORIGIN) != "zone" or not zone:
        return True
    return proxy.labels.get(_ZONE, zone) == zone


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


def narrowest(of_port: list[Listener], name: str) -> Listener | None:
    fitting = [listener for listener in of_port if fits(listener.host, name)]
    return max(fitting, key=lambda listener: narrowness(listener.host), default=None)


def selects(documents: Documents, policy: Resource, proxy: Resource, listener: Listener) -> bool:
    """Whether a policy holds at a listener of a gateway."""
    if policy.labels.get("kuma.io/effect") == "shadow":
        return False
    return _is_for(documents, policy, proxy, listener, by_route=True)


def _is_for(
    documents: Documents, policy: Resource, proxy: Resource, listener: Listener, *, by_route: bool = False
) -> bool:
    """A policy that names a route at its top is for the listeners that the route is for."""
    gateway = mesh_gateway(documents, proxy)
    if gateway is None or not (_is_of_zone(policy, gateway) and _is_of_namespace(policy, proxy)):
        return False
    target = top(policy)
    if target["kind"] == "MeshHTTPRoute":
        routes = routes_before(documents, policy, target) if by_route else []
        return any(_is_for(documents, route, proxy, listener) for route in routes)
    return _targets(target, gateway, proxy, listener)


def _targets(target: Data, gateway: Resource, proxy: Resource, listener: Listener) -> bool:
    """A Dataplane is never a gateway (Kuma 2.14)."""
    kind, tags = target["kind"], target.get("tags") or {}
    if kind in {"Mesh", "MeshSubset"}:
        return has_type(proxy, target.get("proxyTypes")) and carries(listener.tags, tags)
    if kind in {"MeshService", "MeshServiceSubset"}:
        return carries(listener.tags, {"kuma.io/service": target["name"], **tags})
    return kind == "MeshGateway" and target["name"] == gateway.identity.name and carries(listener.tags, tags)


def _is_of_zone(policy: Resource, gateway: Resource) -> bool:
    """A policy of a zone is for the gateways of this zone, unless it is a producer's (Zones and namespaces)."""
    zone = policy.labels.get(_ZONE, "")
    if policy.role == "producer" or policy.labels.get(_ORIGIN) != "zone" or not zone:
        return True
    return gateway.labels.get(_ZONE, "") in {"", zone}


def _is_of_namespace(policy: Resource, proxy: Resource) -> bool:
    return policy.role not in _OF_NAMESPACE or policy.namespace == proxy.namespace != ""


def strength_at_listener(item: Item, target: Data) -> tuple[Any, ...]:
    """As on sidecars. Of two for listeners, that with more tags is the stronger, whatever their names (record 0068)."""
    keys = strength(item, target)
    tags = len(item.top.get("tags") or {}) if item.top["kind"] == "MeshGateway" else 0
    return (*keys[:_BEHIND_ORIGIN], tags, *keys[_BEHIND_ORIGIN:])
