"""MeshHTTPRoute: which requests go where, and what happens to them on the way.

    rules                                        Route, one for each match of the rule (for a prefix two)
    rules[].matches                              RouteMatch, in the order of Gateway API's specificity
    rules[].matches[].path                       of this
    rules[].matches[].path.type                  Exact: path; PathPrefix: path, and prefix up to a slash;
                                                 RegularExpression: safe_regex
    rules[].matches[].path.value                 with this value
    rules[].matches[].method                     headers, `:method`
    rules[].matches[].headers                    headers, each of this
    rules[].matches[].headers[].type             Present, Absent: present_match; all others: string_match
    rules[].matches[].headers[].name
    rules[].matches[].headers[].value
    rules[].matches[].queryParams                query_parameters, each of this
    rules[].matches[].queryParams[].type         Exact, RegularExpression: string_match
    rules[].matches[].queryParams[].name
    rules[].matches[].queryParams[].value
    rules[].default                              what is done with such requests
    rules[].default.backendRefs                  RouteAction.cluster; if several, RouteAction.weighted_clusters
    rules[].default.backendRefs[].kind           the cluster, with what follows
    rules[].default.backendRefs[].name
    rules[].default.backendRefs[].namespace
    rules[].default.backendRefs[].labels
    rules[].default.backendRefs[].port
    rules[].default.backendRefs[].sectionName
    rules[].default.backendRefs[].tags           its endpoints, those with the tags
    rules[].default.backendRefs[].weight         ClusterWeight.weight
    rules[].default.backendRefs[].mesh           invalid
    rules[].default.backendRefs[].proxyTypes     invalid
    rules[].default.filters                      in their order
    rules[].default.filters[].type               which of these:
    rules[].default.filters[].requestHeaderModifier
    rules[].default.filters[].requestHeaderModifier.set            Route.request_headers_to_add, overwriting
    rules[].default.filters[].requestHeaderModifier.set[].name
    rules[].default.filters[].requestHeaderModifier.set[].value
    rules[].default.filters[].requestHeaderModifier.add            Route.request_headers_to_add, appending
    rules[].default.filters[].requestHeaderModifier.add[].name
    rules[].default.filters[].requestHeaderModifier.add[].value
    rules[].default.filters[].requestHeaderModifier.remove         Route.request_headers_to_remove
    rules[].default.filters[].responseHeaderModifier
    rules[].default.filters[].responseHeaderModifier.set           Route.response_headers_to_add, overwriting
    rules[].default.filters[].responseHeaderModifier.set[].name
    rules[].default.filters[].responseHeaderModifier.set[].value
    rules[].default.filters[].responseHeaderModifier.add           Route.response_headers_to_add, appending
    rules[].default.filters[].responseHeaderModifier.add[].name
    rules[].default.filters[].responseHeaderModifier.add[].value
    rules[].default.filters[].responseHeaderModifier.remove        Route.response_headers_to_remove
    rules[].default.filters[].requestRedirect                      RedirectAction, in place of a RouteAction
    rules[].default.filters[].requestRedirect.scheme               RedirectAction.scheme_redirect
    rules[].default.filters[].requestRedirect.hostname             RedirectAction.host_redirect
    rules[].default.filters[].requestRedirect.port                 RedirectAction.port_redirect
    rules[].default.filters[].requestRedirect.statusCode           RedirectAction.response_code
    rules[].default.filters[].requestRedirect.path
    rules[].default.filters[].requestRedirect.path.type
    rules[].default.filters[].requestRedirect.path.replaceFullPath     RedirectAction.regex_rewrite
    rules[].default.filters[].requestRedirect.path.replacePrefixMatch  RedirectAction.prefix_rewrite
    rules[].default.filters[].urlRewrite
    rules[].default.filters[].urlRewrite.hostname                  RouteAction.host_rewrite_literal
    rules[].default.filters[].urlRewrite.hostToBackendHostname     RouteAction.auto_host_rewrite
    rules[].default.filters[].urlRewrite.path
    rules[].default.filters[].urlRewrite.path.type
    rules[].default.filters[].urlRewrite.path.replaceFullPath      RouteAction.regex_rewrite
    rules[].default.filters[].urlRewrite.path.replacePrefixMatch   RouteAction.prefix_rewrite
    rules[].default.filters[].requestMirror                        RouteAction.request_mirror_policies
    rules[].default.filters[].requestMirror.percentage             RequestMirrorPolicy.runtime_fraction
    rules[].default.filters[].requestMirror.backendRef             RequestMirrorPolicy.cluster
    rules[].default.filters[].requestMirror.backendRef.kind        the cluster, as of backendRefs above
    rules[].default.filters[].requestMirror.backendRef.name
    rules[].default.filters[].requestMirror.backendRef.namespace
    rules[].default.filters[].requestMirror.backendRef.labels
    rules[].default.filters[].requestMirror.backendRef.port
    rules[].default.filters[].requestMirror.backendRef.sectionName
    rules[].default.filters[].requestMirror.backendRef.tags
    rules[].default.filters[].requestMirror.backendRef.weight      without meaning
    rules[].default.filters[].requestMirror.backendRef.mesh        invalid
    rules[].default.filters[].requestMirror.backendRef.proxyTypes  invalid
    hostnames                                    VirtualHost.domains, of a gateway's listener

A rule without backendRefs leads to the service that was called, and so does what no rule takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from cp.model.violation import Violation
from cp.policies import HTTP_PROTOCOLS, Policy
from cp.policies.mesh_http_route.schema import Conf, Spec
from cp.policies.mesh_http_route.shape import table
from cp.policies.mesh_http_route.validation import TARGETS, ignored_conditions, validate
from cp.resources import deprecated
from cp.resources.complete import completed
from cp.resources.kinds import DocumentMeta, Kind, PolicyShape

if TYPE_CHECKING:
    from cp.policies import Backends
    from cp.rules import RouteRule
    from generators.proxy import Outbound

SCHEMA_DEFAULTS: Final = {
    "to[].rules[].matches[].headers[].type": "Exact",
    "to[].rules[].default.backendRefs[].weight": 1,
    "to[].rules[].default.filters[].requestRedirect.statusCode": 302,
    "to[].rules[].default.filters[].requestMirror.backendRef.weight": 1,
}


def conf_of(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """An item's rules from the last to the first: where two have the same matches, the one merged later counts."""
    conf = {"rules": list(reversed(item.get("rules") or []))}
    return conf | {"hostnames": item["hostnames"]} if item.get("hostnames") else conf


def finish(conf: dict[str, Any]) -> dict[str, Any]:
    """The rules in the order in which they are tried: those of the most specific policy first."""
    return conf | {"rules": list(reversed(conf.get("rules") or []))}


def deprecations(spec: Spec, _meta: DocumentMeta) -> Iterator[Violation]:
    yield from deprecated.top_kind(spec)
    yield from deprecated.several_destinations(spec)
    yield from ignored_conditions(spec)


class MeshHTTPRoute(Policy[Conf]):
    kind = Kind(
        name="MeshHTTPRoute",
        short="mhttpr",
        plural="meshhttproutes",
        schema=Spec,
        validate=validate,
        deprecations=deprecations,
        complete=completed(SCHEMA_DEFAULTS),
        customary=((r"(HeaderModifier\.remove\[\d+\])$", r"\1.name"),),
        policy=PolicyShape(
            to=True, conf_of=conf_of, finish=finish, merge_by_key={"rules": "matches"}, group_by="hostnames"
        ),
    )
    order = 100
    conf = Conf
    targets = TARGETS
    is_for_grpc_clients = True
    is_route = True
    gateway_protocols = HTTP_PROTOCOLS

    def shape(self, rules: Sequence[RouteRule], outbound: Outbound, backends: Backends) -> Outbound:
        if not outbound.protocol.is_http:
            return outbound
        return replace(outbound, routes=table(rules, backends))


POLICY = MeshHTTPRoute()
