"""Why an item of `to` is for nothing that the proxies of its policy call."""

from __future__ import annotations

from collections.abc import Iterator

from cp.insight.lint.blocked import blocked_reason
from cp.insight.lint.codes import FindingReason
from cp.insight.lint.gateway_routes import selected_listeners
from cp.insight.lint.survey import MeshSurvey, items_of
from cp.insight.lint.targets import missing
from cp.model.names import Destination, Identity
from cp.model.paths import step
from cp.resources.resource import Resource
from cp.resources.targets import GATEWAY, ROUTE_KINDS
from cp.rules import PolicyItem
from cp.rules.item_index import names_route_at_top, resources_meant
from cp.rules.items import reference
from cp.rules.matching import top_of
from cp.rules.targets import TargetTables


def of_target(survey: MeshSurvey, item: PolicyItem) -> FindingReason:
    path = step(item.origin.path, "targetRef")
    lacks = missing(survey.world, item)
    if lacks is not None:
        return lacks
    count = survey.selected[item.policy]
    whom = f"none of the {count} proxies that it selects" if count > 1 else "the proxy that it selects"
    if item.target.kind in ROUTE_KINDS:
        verb = "has" if count > 1 else "does not have"
        why, hint = _why_no_route(survey, item)
        text = f"{whom} {verb} {item.target.kind} {item.target.name or 'with these labels'}: {why}"
        return FindingReason("route-not-there", text, path, hint)
    if top_of(item.policy).kind == GATEWAY and not selected_listeners(survey, item.policy):
        text, hint = "none of the listeners that it selects is served", "see to these listeners, or select others"
        return FindingReason("not-called", text, "spec.targetRef", hint)
    misunderstood = _for_real_services_alone(survey, item, path) or _for_namesake(survey, item, path)
    if misunderstood is not None:
        return misunderstood
    verb = "calls" if count > 1 else "does not call"
    target = "anybody" if item.target.kind == "Mesh" else f"{item.target.kind} {item.target.name or ''}".rstrip()
    return FindingReason(
        "not-called", f"{whom} {verb} {target}", path, "give a proxy an outbound for it, or remove the item"
    )


def _for_real_services_alone(survey: MeshSurvey, item: PolicyItem, path: str) -> FindingReason | None:
    """The reason for an item beside one for a route: such a policy is not for calls by tag."""
    if names_route_at_top(item.policy):
        return _of_route_at_top(item)
    targets = (item_of_to.target for item_of_to in items_of(item.policy) if item_of_to.origin.part == "to")
    routes = [target for target in targets if target.kind in ROUTE_KINDS]
    tagged = [destination.service for destination in _called(survey, item.policy) if not destination.is_real]
    if not routes or not any(item.target.kind == "Mesh" or service == item.target.name for service in tagged):
        return None
    text = (
        f"as the policy has an item for a {routes[0].kind}, its others are for real services alone, "
        "and what they are for is called by `kuma.io/service`"
    )
    return FindingReason("not-called", text, path, f"write what is for the {routes[0].kind} in a policy of its own")


def _of_route_at_top(item: PolicyItem) -> FindingReason:
    """A policy with a route at its top level is only for the calls that this route takes."""
    name = top_of(item.policy).name
    text = f"it is for the calls that MeshHTTPRoute {name} takes, and no proxy that it selects has that route"
    path = f"{item.policy.kind.root}.targetRef"
    return FindingReason("route-not-there", text, path, "see what is said of the route, or name another one")


def _for_namesake(survey: MeshSurvey, item: PolicyItem, path: str) -> FindingReason | None:
    """The reason for an item whose service has a namesake in another namespace or zone, and that one is called."""
    meant = reference(item)
    if meant is None or not item.target.name:
        return None
    identities = [destination.identity for destination in _called(survey, item.policy)]
    target = (item.target.kind, item.target.name)
    namesakes = (
        identity for identity in identities if identity is not None and (identity.type, identity.name) == target
    )
    namesake = next(namesakes, None)
    if namesake is None:
        return None
    if _share_location(namesake, meant.identity):
        text = f"of {item.target.kind} {_with_location(namesake)} the port {namesake.section} is called, and not "
        return FindingReason(
            "not-called", text + meant.identity.section, path, "correct `sectionName`, or remove the item"
        )
    whom = f"{item.target.kind} {_with_location(meant.identity)}"
    text = f"it is for {whom}, and what is called is the one {_location(namesake)}"
    return FindingReason("not-called", text, path, _naming_hint(namesake, meant.identity))


def _share_location(namesake: Identity, meant: Identity) -> bool:
    return (namesake.zone, namesake.namespace) == (meant.zone, meant.namespace)


def _naming_hint(namesake: Identity, meant: Identity) -> str:
    """A target can name a namespace, and no zone."""
    if namesake.namespace and namesake.zone == meant.zone:
        return f"write `namespace: {namesake.namespace}` in the target, if that one is meant"
    return "choose the service by `labels`, or write the policy where the service is"


def _with_location(identity: Identity) -> str:
    return f"{identity.name} {_location(identity)}"


def _location(identity: Identity) -> str:
    zone = f" of zone {identity.zone}" if identity.zone else ""
    return f"in the namespace {identity.namespace}{zone}" if identity.namespace else f"without a namespace{zone}"


def _called(survey: MeshSurvey, policy: Resource) -> Iterator[Destination]:
    """The destinations that the proxies of a policy call."""
    for outbounds in survey.outbounds:
        of_kind = outbounds.rules.get(policy.type)
        if of_kind is not None and any(matched.policy is policy for matched in of_kind.matched):
            yield from (result.address.destination for result in outbounds.callable_outbounds)


def _why_no_route(survey: MeshSurvey, item: PolicyItem) -> tuple[str, str]:
    """Why its proxies do not have the route that an item is for, and what to do about it."""
    routes = _routes(survey, item)
    if not any(survey.selected.get(route) for route in routes):
        return "the route selects no proxy at all", "correct the `targetRef` at the top of the route"
    if not any(_share_proxy(survey, item.policy, route) for route in routes):
        return "the route is for others", "give the policy and the route the same `targetRef` at the top"
    blocked = [blocked_item for blocked_item in survey.blocked if blocked_item.item.policy in routes]
    if blocked:
        why = blocked_reason(blocked[0].item, blocked)
        return why.text, why.hint
    if not any(route.key in survey.effects.effective for route in routes):
        return "the route itself has no effect", "see what is said of the route"
    return (
        "it is for a service that is not called from there",
        "select the proxies that call it, and not those that serve it",
    )


def _routes(survey: MeshSurvey, item: PolicyItem) -> tuple[Resource, ...]:
    to = reference(item)
    return () if to is None else resources_meant(TargetTables.of(survey.world, item.policy.mesh), to)


def _share_proxy(survey: MeshSurvey, policy: Resource, route: Resource) -> bool:
    """Whether some proxy is selected by both a policy and a route."""
    of_classes = (
        {matched_policy.policy for of_kind in matched.values() for matched_policy in of_kind}
        for matched, _ in survey.classes
    )
    return any({policy, route} <= policies for policies in of_classes)
