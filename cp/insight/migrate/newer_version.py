"""What a mesh uses that Kuma 3.0 does not have any more, and policies that say the same in words that it has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from cp.insight.migrate.facts import MeshFacts
from cp.insight.migrate.translation import Translation, valid_or_kept
from cp.model.document import Document
from cp.model.paths import step
from cp.resources.resource import Resource
from cp.resources.targets import HTTP_ROUTE
from cp.resources.world import World

_WITHOUT_FROM: Final = frozenset(
    {"MeshTimeout", "MeshCircuitBreaker", "MeshAccessLog", "MeshRateLimit", "MeshTLS", "MeshTrafficPermission"}
)
_BY_TAGS: Final = frozenset({"MeshSubset", "MeshService", "MeshServiceSubset"})
_TO: Final = frozenset({"Mesh", "MeshService", "MeshExternalService", "MeshMultiZoneService"})
_FOR_ROUTES: Final = frozenset({"MeshAccessLog", "MeshLoadBalancingStrategy", "MeshRetry", "MeshTimeout"})
_OF_MESH: Final[Mapping[str, str]] = {
    "mtls": "a MeshIdentity and a MeshTrust",
    "routing": "MeshExternalServices and MeshPassthrough",
    "meshServices": "nothing: the mode is always Exclusive",
    "logging": "the backend in a MeshAccessLog",
    "tracing": "the backend in a MeshTrace",
    "networking": "a MeshPassthrough",
    "metrics": "a MeshMetric",
    "constraints": "nothing: decide who may write Dataplanes where you keep them",
    "skipCreatingInitialPolicies": "nothing: a new Mesh starts without policies",
}
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_NO_GATEWAYS: Final = "builtin gateways are gone"
_DELEGATED: Final = "let a delegated gateway take its place"
_NO_TAGS: Final = "tags are gone"
_LABELLED: Final = "label the Dataplane, with `kuma.io/workload` for its MeshService"
_NO_NAMES: Final = "names are gone here"
_CHOSEN_BY_LABELS: Final = "choose by `labels`, such as `kuma.io/display-name`"
_BY_LABELS: Final = "choose proxies with the kind Dataplane, by `labels`"


@dataclass(frozen=True, slots=True)
class GoneUse:
    """A place at which a document uses something that is gone."""

    resource: Resource
    path: str
    message: str
    instead: str

    @property
    def place(self) -> str:
        source = self.resource.source
        return f"{source.file}:{source.line(self.path)}" if source.file else ""

    def __str__(self) -> str:
        subject = " ".join(part for part in (self.place, str(self.resource.key), self.path) if part)
        return f"{subject}: {self.message}; {self.instead}"


def gone_uses(world: World, mesh: str) -> Iterator[GoneUse]:
    """All that a mesh uses and Kuma 3.0 does not have, in the order of its kinds."""
    for kind in world.kinds.values():
        table = world.table(kind.name, "" if kind.is_global else mesh)
        for resource in table:
            if kind.name != "Mesh" or resource.name == mesh:
                yield from (GoneUse(resource, *use) for use in _of_resource(resource))


_Use = tuple[str, str, str]
"""A path, what is wrong there, and what to write instead."""


def _of_resource(resource: Resource) -> Iterator[_Use]:
    data = resource.document.data
    if resource.kind.legacy is not None:
        yield "", "policies with sources and destinations are gone", "run `koguma migrate` without --to first"
    if resource.kind.policy is not None:
        yield from _of_policy(resource.type, data.get("spec") or {})
    if (of_kind := _OF_KINDS.get(resource.type)) is not None:
        yield from of_kind(data)
    if resource.type != "Secret" and _NAME.fullmatch(resource.display_name) is None:
        yield "name", "is no name by RFC 1035", "begin with a letter, and use lower case letters, digits and `-`"


def _of_mesh(data: Mapping[str, Any]) -> Iterator[_Use]:
    yield from ((name, "is gone", f"write {instead}") for name, instead in _OF_MESH.items() if data.get(name))


def _of_service(data: Mapping[str, Any]) -> Iterator[_Use]:
    if ((data.get("spec") or {}).get("selector") or {}).get("dataplaneTags"):
        yield "spec.selector.dataplaneTags", "is gone", "choose by `dataplaneLabels`"


def _of_names(_data: Mapping[str, Any]) -> Iterator[_Use]:
    yield "selectors", "what is called by tags is gone", "name MeshServices with a HostnameGenerator"


def _of_service_outside(_data: Mapping[str, Any]) -> Iterator[_Use]:
    yield "", "what is called by tags is gone", "write a MeshExternalService"


def _of_gateway(_data: Mapping[str, Any]) -> Iterator[_Use]:
    yield "", _NO_GATEWAYS, _DELEGATED


def _of_top(target: Mapping[str, Any]) -> Iterator[_Use]:
    """What is gone of the target at the top of a policy."""
    top = target.get("kind")
    if top in _BY_TAGS:
        yield "spec.targetRef.kind", f"the kind {top} is gone here", _BY_LABELS
    elif top == "Dataplane" and target.get("name"):
        yield "spec.targetRef.name", _NO_NAMES, _CHOSEN_BY_LABELS
    elif top == HTTP_ROUTE:
        yield "spec.targetRef.kind", f"the kind {top} is gone here", "name the route in `to[].targetRef`"
    elif top == "MeshGateway":
        yield "spec.targetRef.kind", _NO_GATEWAYS, _DELEGATED


def _of_policy(kind: str, spec: Mapping[str, Any]) -> Iterator[_Use]:
    yield from _of_top(spec.get("targetRef") or {})
    if spec.get("from") and kind in _WITHOUT_FROM:
        yield "spec.from", "is gone", "write `rules`"
    for index, item in enumerate(spec.get("to") or ()):
        path = step("spec.to", index)
        yield from _of_item(kind, path, item.get("targetRef") or {})
        for place, reference in _backends(path, item):
            if reference.get("kind") == "MeshServiceSubset":
                yield f"{place}.kind", "the kind MeshServiceSubset is gone here", "give each subset a MeshService"


def _backends(path: str, item: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The references of a route to what it leads to, each with its path."""
    for number, rule in enumerate(item.get("rules") or ()):
        default, place = rule.get("default") or {}, f"{step(f'{path}.rules', number)}.default"
        for at, reference in enumerate(default.get("backendRefs") or ()):
            yield step(f"{place}.backendRefs", at), reference
        for at, change in enumerate(default.get("filters") or ()):
            if (reference := (change.get("requestMirror") or {}).get("backendRef")) is not None:
                yield f"{step(f'{place}.filters', at)}.requestMirror.backendRef", reference


def _of_item(kind: str, path: str, target: Mapping[str, Any]) -> Iterator[_Use]:
    named = target.get("kind")
    allowed = _TO | {HTTP_ROUTE} if kind in _FOR_ROUTES else _TO
    if named not in allowed:
        yield f"{path}.targetRef.kind", f"the kind {named} is gone here", f"one of {', '.join(sorted(allowed))}"
    elif target.get("name"):
        yield f"{path}.targetRef.name", _NO_NAMES, _CHOSEN_BY_LABELS


def _of_dataplane(data: Mapping[str, Any]) -> Iterator[_Use]:
    networking = data.get("networking") or {}
    for index, inbound in enumerate(networking.get("inbound") or ()):
        path = step("networking.inbound", index)
        if inbound.get("tags"):
            yield f"{path}.tags", _NO_TAGS, _LABELLED
        if not inbound.get("protocol"):
            yield path, "its protocol was that of a tag", "write it in `protocol`"
    for index, outbound in enumerate(networking.get("outbound") or ()):
        if not outbound.get("backendRef"):
            yield step("networking.outbound", index), "is for a service by its tag", "write a `backendRef`"
    if networking.get("advertisedAddress"):
        yield "networking.advertisedAddress", "is gone", "give the Dataplane the address by which it is reached"
    yield from _of_proxy_of_gateway(networking.get("gateway") or {})
    if (networking.get("transparentProxying") or {}).get("reachableServices"):
        yield "networking.transparentProxying.reachableServices", "is by tags", "write `reachableBackends`"


def _of_proxy_of_gateway(gateway: Mapping[str, Any]) -> Iterator[_Use]:
    if gateway.get("type") == "BUILTIN":
        yield "networking.gateway", _NO_GATEWAYS, _DELEGATED
    elif gateway.get("tags"):
        yield "networking.gateway.tags", _NO_TAGS, _LABELLED


_OF_KINDS: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterator[_Use]]]] = MappingProxyType(
    {
        "Mesh": _of_mesh,
        "Dataplane": _of_dataplane,
        "MeshService": _of_service,
        "ExternalService": _of_service_outside,
        "MeshGateway": _of_gateway,
        "MeshGatewayRoute": _of_gateway,
        "VirtualOutbound": _of_names,
    }
)


def rewrites(facts: MeshFacts) -> Iterator[Translation]:
    """The same policies with `rules` in place of `from`, where that is for all clients and means the same."""
    for kind in (facts.world.kinds[name] for name in sorted(_WITHOUT_FROM)):
        policies = tuple(policy for policy in facts.world.table(kind.name, facts.mesh) if _is_for_all(policy))
        if policies:
            documents = tuple(_with_rules(policy.document) for policy in policies)
            origins = {document.key: document.key for document in documents}
            yield valid_or_kept(facts, Translation(kind.name, policies, documents, origins))


def _is_for_all(policy: Resource) -> bool:
    items = (policy.document.data.get("spec") or {}).get("from") or ()
    shape = policy.kind.policy
    return bool(items) and shape is not None and shape.from_as_rules and all(_names_mesh(item) for item in items)


def _names_mesh(item: Mapping[str, Any]) -> bool:
    return (item.get("targetRef") or {}).get("kind") == "Mesh"


def _with_rules(document: Document) -> Document:
    spec = document.data["spec"]
    rules = [{"default": item.get("default") or {}} for item in spec["from"]]
    kept = {name: value for name, value in spec.items() if name != "from"}
    return replace(document, data={**document.data, "spec": {**kept, "rules": rules}})
