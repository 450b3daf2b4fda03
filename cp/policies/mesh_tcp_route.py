"""MeshTCPRoute: where connections to a service go.

    default                             the one rule
    default.backendRefs                 TcpProxy.cluster; if several, TcpProxy.weighted_clusters
    default.backendRefs[].kind          the cluster, with what follows
    default.backendRefs[].name
    default.backendRefs[].namespace
    default.backendRefs[].labels
    default.backendRefs[].port
    default.backendRefs[].sectionName
    default.backendRefs[].tags          its endpoints, those with the tags
    default.backendRefs[].weight        ClusterWeight.weight
    default.backendRefs[].mesh          invalid
    default.backendRefs[].proxyTypes    invalid

HTTP is carried so as well, where no MeshHTTPRoute is for the same service.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from cp.model.target import BackendRef, TargetRef
from cp.model.violation import Violation, at
from cp.policies import Policy, in_spec
from cp.resources import deprecated
from cp.resources.backends import backend_refs
from cp.resources.checks import absent
from cp.resources.complete import completed
from cp.resources.kinds import DocumentMeta, Kind, PolicyShape
from cp.resources.schema import Schema, decode
from cp.resources.spec import PolicySpec
from cp.resources.targets import GATEWAY, SERVICES, AllowedTargets
from generators.proxy import Protocol, Route

if TYPE_CHECKING:
    from cp.policies import Backends
    from cp.rules import RouteRule
    from generators.proxy import Outbound


class TcpRouteConf(Schema, frozen=True):
    backend_refs: list[BackendRef] | None = None


class TcpRouteRule(Schema, frozen=True):
    default: TcpRouteConf | None = None


class TcpRouteTo(Schema, frozen=True):
    target_ref: TargetRef = TargetRef()
    rules: list[TcpRouteRule] | None = None


class Spec(PolicySpec, frozen=True):
    to: list[TcpRouteTo] | None = None


TARGETS: Final = AllowedTargets(top_system=(GATEWAY,), to=SERVICES, to_gateway=("Mesh",))


@in_spec
def validate(spec: Spec, meta: DocumentMeta) -> Iterator[Violation]:
    yield from TARGETS.violations(spec, meta)
    for index, to in enumerate(spec.to or ()):
        yield from at(f"to[{index}]", _to(to))


def _to(to: TcpRouteTo) -> Iterator[Violation]:
    rules = to.rules or []
    if len(rules) > 1:
        hint = "nothing tells connections apart; split them by the `weight` of backendRefs"
        yield Violation("rules", f"are {len(rules)}, and one is what there can be", hint)
    for index, rule in enumerate(rules):
        backends = (rule.default.backend_refs if rule.default else None) or []
        if not backends:
            yield absent(
                f"rules[{index}].default.backendRefs", "must be set", "name the services that connections go to"
            )
        yield from at(f"rules[{index}].default.backendRefs", backend_refs(backends))


def conf_of(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """The rule of an item. An item without one sends connections to the destination that was called."""
    rules: list[Mapping[str, Any]] = item.get("rules") or []
    return rules[0] if rules else {"default": {"backendRefs": [{**item["targetRef"], "weight": 1}]}}


def deprecations(spec: Spec, _meta: DocumentMeta) -> Iterator[Violation]:
    yield from deprecated.top_kind(spec)
    yield from deprecated.several_destinations(spec)


class MeshTCPRoute(Policy[TcpRouteRule]):
    kind = Kind(
        name="MeshTCPRoute",
        short="mtcpr",
        plural="meshtcproutes",
        schema=Spec,
        validate=validate,
        deprecations=deprecations,
        complete=completed({"to[].rules[].default.backendRefs[].weight": 1}),
        policy=PolicyShape(to=True, conf_of=conf_of),
    )
    order = 200
    conf = TcpRouteRule
    targets = TARGETS
    is_route = True
    gateway_protocols = frozenset({Protocol.TCP})

    def shape(self, rules: Sequence[RouteRule], outbound: Outbound, backends: Backends) -> Outbound:
        """A MeshHTTPRoute for the same destination takes precedence.

        See docs/concepts/routes.md#http-routes-before-tcp-routes.
        """
        if outbound.routes:
            return outbound
        if not rules:
            return outbound
        rule = rules[0]
        references = decode(TcpRouteConf, rule.default).backend_refs or ()
        splits = (backends.split(reference, rule.backends.identity) for reference in references)
        served = tuple(split for split in splits if split.weight > 0)
        route = Route(name=rule.name, owner=backends.owner(rule), splits=served)
        return replace(outbound, protocol=Protocol.TCP, routes=(route,))


POLICY = MeshTCPRoute()
