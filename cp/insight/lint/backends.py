"""Backends of routes: those that lead nowhere or do not speak HTTP, and hosts that they do not have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from cp.insight.lint.codes import FindingReason, finding_about
from cp.insight.lint.survey import MeshSurvey
from cp.insight.lint.wording import destination_name, where_protocol_is_said
from cp.model.names import Destination, Identity
from cp.model.paths import step
from cp.model.target import BackendRef
from cp.model.violation import Finding
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.resource import Resource
from cp.resources.targets import HTTP_ROUTE, ROUTE_KINDS, TCP_ROUTE
from cp.resources.world import World
from cp.rules import PolicyItem
from cp.rules.item_index import resources_meant, section_meant
from cp.rules.items import items, reference, tags_of
from cp.rules.matches import matches_hash
from cp.rules.targets import TargetTables
from cp.translate.view.backends import BackendResolver
from cp.translate.view.services import destination_of, protocol_of
from generators.proxy import Rewrite, Route

_AT_GATEWAY: Final = Destination("")
"""What a route of a gateway is for: it has no service of its own."""

_RuleKey: TypeAlias = tuple[Identity, str]
"""A rule of a route resource: the resource, and the matches as one text."""


def backends(survey: MeshSurvey) -> Iterator[Finding]:
    """Backends and mirrors of routes that lead nowhere."""
    called = _called_by_tag(survey)
    for kind in ROUTE_KINDS:
        for policy in survey.world.of_type(kind):
            for item in items(policy).to:
                yield from _of_item(survey, policy, item, called)


def _called_by_tag(survey: MeshSurvey) -> tuple[Destination, ...]:
    results = (result for outbounds in survey.outbounds for result in outbounds.callable_outbounds)
    called = (result.address.destination for result in results)
    return tuple(dict.fromkeys(destination for destination in called if not destination.is_real))


def rewrites(survey: MeshSurvey) -> Iterator[Finding]:
    """`hostToBackendHostname` of routes of which no backend has a host name."""
    with_host = _rules_with_rewrite(survey)
    for policy in survey.world.of_type(HTTP_ROUTE) if with_host else ():
        for item in items(policy).to:
            for index, rule in enumerate(policy.data["to"][item.index].get("rules") or ()):
                default = step(step(step(item.origin.path, "rules"), index), "default")
                paths = list(_rewrites_of(rule, default))
                if paths and with_host.get((policy.identity, matches_hash(rule.get("matches") or ()))) is False:
                    yield from (finding_about(policy, _without_host(path)) for path in paths)


def _rules_with_rewrite(survey: MeshSurvey) -> Mapping[_RuleKey, bool]:
    """The rules that ask for the host of the backend where they are served, and whether some backend may have one."""
    with_host: dict[_RuleKey, bool] = {}
    for result in survey.gateways.values():
        for host in result.hosts.values():
            for row in filter(_takes_host, host.routes):
                rule = host.route_rules[row.owner]
                for identity in rule.contributors:
                    key = (identity, rule.hash)
                    with_host[key] = with_host.get(key, False) or _may_have_host(row)
    return with_host


def _takes_host(row: Route) -> bool:
    return any(isinstance(change, Rewrite) and change.host_to_backend for change in row.filters)


def _may_have_host(row: Route) -> bool:
    """Whether a backend has a host name, or may have: of one that is missing nobody knows."""
    return not row.splits or any(split.host or split.missing for split in row.splits)


def _rewrites_of(rule: Mapping[str, Any], path: str) -> Iterator[str]:
    for index, filter_ in enumerate((rule.get("default") or {}).get("filters") or ()):
        if (filter_.get("urlRewrite") or {}).get("hostToBackendHostname"):
            yield f"{step(step(path, 'filters'), index)}.urlRewrite.hostToBackendHostname"


def _without_host(path: str) -> FindingReason:
    text = (
        "this has no effect: no backend has a host name of its own, as services in the mesh have none, "
        "and the host stays as the client wrote it"
    )
    return FindingReason("does-not-apply", text, path, "write `hostname` if they expect another host, or remove it")


def _of_item(
    survey: MeshSurvey, policy: Resource, item: PolicyItem, called: Iterable[Destination]
) -> Iterator[Finding]:
    world, is_of_nobody = survey.world, policy in survey.judged_set and not survey.selected.get(policy)
    to: Mapping[str, Any] = policy.data["to"][item.index]
    by_tag = [destination for destination in called if (SERVICE_TAG, destination.service) in (tags_of(item) or ())]
    calls = [*_destinations(world, item), *by_tag] or [Destination(item.target.name or "")]
    for index, rule in enumerate(to.get("rules") or ()):
        default, redirects = step(step(step(item.origin.path, "rules"), index), "default"), _redirects(rule)
        yield from () if redirects or is_of_nobody else _weights(policy, rule, default)
        for path, reference_ in _references(rule, default):
            if why := _lost(world, policy, calls, reference_):
                gets_nothing = redirects or is_of_nobody or reference_.get("weight") == 0
                yield finding_about(policy, _to_nothing(why, path, gets_nothing=gets_nothing))
            elif redirects:
                continue
            elif policy.type == HTTP_ROUTE and (spoken := _not_http(world, policy, calls, reference_)) is not None:
                yield finding_about(policy, _unlike(world, policy.mesh, spoken, path))


def _to_nothing(why: str, path: str, *, gets_nothing: bool) -> FindingReason:
    if ".requestMirror." in path:
        return FindingReason("refers-to-nothing", f"{why}: no copies are sent", path, "correct the reference")
    if gets_nothing:
        hint = "create it before calls are sent to it"
        return FindingReason("target-missing", f"{why}, which gets nothing yet", path, hint)
    return FindingReason("refers-to-nothing", f"{why}: its share of the calls fails", path, "correct the reference")


def _references(rule: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    default = rule.get("default") or {}
    for index, backend in enumerate(default.get("backendRefs") or ()):
        yield step(step(path, "backendRefs"), index), backend
    for index, filter_ in enumerate(default.get("filters") or ()):
        mirror = filter_.get("requestMirror")
        if mirror is not None:
            yield f"{step(step(path, 'filters'), index)}.requestMirror.backendRef", mirror.get("backendRef") or {}


def _weights(policy: Resource, rule: Mapping[str, Any], path: str) -> Iterator[Finding]:
    default = rule.get("default") or {}
    weights = [element.get("weight") for element in default.get("backendRefs") or ()]
    if weights and all(weight == 0 for weight in weights):
        effect = "connection is closed" if policy.type == TCP_ROUTE else "request is answered with 500"
        text = f"all weights are 0: every {effect}"
        yield finding_about(
            policy, FindingReason("zero-weights", text, step(path, "backendRefs"), "give one of them a weight")
        )


def _redirects(rule: Mapping[str, Any]) -> bool:
    """Whether a rule redirects requests, so that none goes to a backend."""
    filters = (rule.get("default") or {}).get("filters") or ()
    return any(element.get("type") == "RequestRedirect" for element in filters)


def _lost(world: World, policy: Resource, calls: Iterable[Destination], data: Mapping[str, Any]) -> str:
    """Why a reference leads nowhere, for some port that can be called; empty if it always leads somewhere."""
    backend_ref = _decoded(data)
    splits = (
        BackendResolver(world, policy.mesh, destination).split(backend_ref, policy.identity) for destination in calls
    )
    return next((split.reason for split in splits if split.missing), "")


def _not_http(
    world: World, policy: Resource, calls: Iterable[Destination], data: Mapping[str, Any]
) -> Destination | None:
    """The destination of a reference to which requests are sent, and which does not speak HTTP."""
    for call in calls:
        if call == _AT_GATEWAY or protocol_of(world, policy.mesh, call).is_http:
            resolver = BackendResolver(world, policy.mesh, call)
            resolver.split(_decoded(data), policy.identity)
            if not all(protocol_of(world, policy.mesh, backend).is_http for backend in resolver.used):
                return next(iter(resolver.used))
    return None


def _unlike(world: World, mesh: str, backend: Destination, path: str) -> FindingReason:
    whom, protocol = destination_name(backend), protocol_of(world, mesh, backend)
    text = f"requests are sent to {whom} as HTTP, and its protocol is {protocol}: if it speaks no HTTP, they all fail"
    hint = f"if it speaks HTTP, say so in {where_protocol_is_said(backend)}; if not, write a {TCP_ROUTE}"
    return FindingReason("backend-not-http", text, path, hint)


def _decoded(data: Mapping[str, Any]) -> BackendRef:
    names = {"sectionName": "section_name", "proxyTypes": "proxy_types"}
    return BackendRef(**{names.get(name, name): value for name, value in data.items()})


def _destinations(world: World, item: PolicyItem) -> Iterator[Destination]:
    """The ports of the services that an item is for."""
    to = reference(item)
    for service in () if to is None else resources_meant(TargetTables.of(world, item.policy.mesh), to):
        for port in getattr(service.spec, "ports", None) or ():
            destination = destination_of(service, port)
            section = section_meant(service, to) if to is not None else ""
            if not section or _section_name(destination.identity) == section:
                yield destination


def _section_name(identity: Identity | None) -> str:
    return "" if identity is None else identity.section
