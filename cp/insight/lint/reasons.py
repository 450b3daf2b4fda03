"""Why an item of a policy has no effect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from cp.insight.enforcement import decides_reach, parts_without_mtls
from cp.insight.lint.any_decision import AnyDecision
from cp.insight.lint.codes import FindingReason
from cp.insight.lint.decisions import (
    AdmissionDecision,
    ClientDecision,
    ConfDecision,
    DestinationDecision,
    RouteTableDecision,
    UnitOf,
    item_of,
    policy_of,
)
from cp.insight.lint.gateway_decisions import GatewayTableDecision
from cp.insight.lint.gateway_routes import of_listeners, of_table, selected_listeners
from cp.insight.lint.survey import MeshSurvey, items_of
from cp.insight.lint.targets import destination_name, missing, where_protocol_is_said
from cp.insight.lint.walk import PASSTHROUGH, BlockedItem, needs_mtls
from cp.insight.meaning import section_of
from cp.model.names import Destination, Identity
from cp.model.paths import step
from cp.model.wording import few
from cp.policies import Policy
from cp.resources.capabilities import MissingPart
from cp.resources.resource import Resource
from cp.resources.targets import GATEWAY
from cp.resources.world import World
from cp.rules import PolicyItem
from cp.rules.item_index import names_route_at_top, resources_meant
from cp.rules.items import reference
from cp.rules.matching import match, top_of
from cp.rules.merging import MergedField, Origin, Removal, Setting
from cp.rules.targets import ROUTES, TargetTables
from cp.translate.effective import BUILT_IN
from cp.translate.view.proxies import inbounds
from generators.proxy import Protocol

_FEW: Final = 3
_TableDecision: TypeAlias = RouteTableDecision | GatewayTableDecision


@dataclass(slots=True)
class _Rivals:
    """Who else sets the fields that an item sets: with another value, or with the same one."""

    unit_of: UnitOf
    """`policy_of` where items of one policy are no rivals, else `item_of`."""

    overriding: dict[str, dict[str, None]] = field(default_factory=dict)
    """The fields with another value, by who sets it."""

    agreeing: dict[str, dict[str, None]] = field(default_factory=dict)
    """The fields with the same value, by who sets it."""

    def add(self, whose: str, paths: Iterable[str], *, is_same: bool) -> None:
        (self.agreeing if is_same else self.overriding).setdefault(whose, {}).update(dict.fromkeys(paths))


def reason(survey: MeshSurvey, item: PolicyItem, *, as_whole: bool) -> FindingReason:
    """Why an item has no effect. `as_whole` says that its policy as a whole has none."""
    decisions = survey.decisions_of.get(item, ())
    if part := _part_without_mtls(survey.world, item):
        return FindingReason("mtls-off", part.sentence, part.path or item.policy.kind.root, part.hint)
    if decisions:
        return _of_decisions(survey, item, decisions, as_whole=as_whole)
    blocked = [blocked_item for blocked_item in survey.blocked if blocked_item.item is item]
    if blocked:
        return blocked_reason(item, blocked)
    if _is_beyond_clients(survey, item.policy):
        text = "it selects gRPC clients without a proxy, and they do nothing of what it says"
        return FindingReason("does-not-apply", text, item.origin.path, "write it for those that have a proxy")
    if item.policy.type == PASSTHROUGH:
        return _nothing_redirected(survey, item)
    return of_listeners(survey, item) or _of_place(survey, item)


def _of_decisions(
    survey: MeshSurvey, item: PolicyItem, decisions: Sequence[AnyDecision], *, as_whole: bool
) -> FindingReason:
    reason_of_route = of_listeners(survey, item) or of_table(item, decisions)
    reason_of_part = reason_of_route or _routed_elsewhere(survey, item, decisions, as_whole=as_whole)
    return reason_of_part or _overridden_or_redundant(item, decisions, as_whole=as_whole)


def _of_place(survey: MeshSurvey, item: PolicyItem) -> FindingReason:
    if decides_reach(survey.world, item.policy.type):
        text = "no proxy is told of others because of it, and no inbound that it selects takes TLS"
        return FindingReason("mtls-off", text, item.origin.path, "remove it, or switch on `mtls` of the Mesh")
    return _of_target(survey, item) if item.origin.part == "to" else _no_inbound(survey, item)


def _part_without_mtls(world: World, item: PolicyItem) -> MissingPart | None:
    """The part of a policy to which an item belongs that has no effect because there is no mTLS."""
    return next((part for part in parts_without_mtls(world, item.policy) if part.covers(item.origin.path)), None)


def _is_beyond_clients(survey: MeshSurvey, policy: Resource) -> bool:
    """Whether all that it selects are gRPC clients without a proxy, which cannot do what it asks."""
    only_clients = bool(survey.selected.get(policy)) and policy not in survey.of_envoys
    return only_clients and not survey.policies[policy.type].is_for_grpc_clients


def blocked_reason(item: PolicyItem, blocked: Sequence[BlockedItem]) -> FindingReason:
    """A route that decides nothing for its destination."""
    path, service = step(item.origin.path, "targetRef"), destination_name(blocked[0].destination)
    if blocked[0].by:
        by = _listed(origin_name(origin) for origin in blocked[0].by)
        hint = "say the same in a MeshHTTPRoute, or remove one of them"
        return FindingReason(
            "shadowed-route", f"for {service} the MeshHTTPRoute counts, and not this one: {by}", path, hint
        )
    where = where_protocol_is_said(blocked[0].destination)
    hint = f"if it speaks HTTP, say so in {where}; else write a MeshTCPRoute"
    return FindingReason(
        "no-meaning", f"a {item.policy.type} has no meaning for {service}, which speaks tcp", path, hint
    )


def origin_name(origin: Origin, line: int | None = None) -> str:
    """A policy by its type and name, with the file and a line: that of its item, unless another one is given."""
    if origin.part == BUILT_IN:
        return "the built-in default"
    place = f" ({origin.file}:{origin.line if line is None else line})" if origin.file else ""
    return f"{origin.policy.type} {origin.policy.name}{place}"


def _routed_elsewhere(
    survey: MeshSurvey, item: PolicyItem, decisions: Sequence[AnyDecision], *, as_whole: bool
) -> FindingReason | None:
    """The reason where an item is about the part of a destination that is not served."""
    unit_of = policy_of if as_whole else item_of
    unit = unit_of(item.origin)
    parts = [
        decision.parts
        for decision in decisions
        if isinstance(decision, DestinationDecision)
        and decision.is_about_unserved_part(lambda candidate: unit_of(candidate.origin) == unit)
    ]
    if not parts:
        return None
    meaningless = _without_meaning(survey.policies[item.policy.type], item, decisions)
    if meaningless is not None:
        return meaningless
    of_whole = [decision for decision in decisions if not isinstance(decision, DestinationDecision)]
    of_others = f"; for others {_overridden_or_redundant(item, of_whole, as_whole=as_whole).text}" if of_whole else ""
    text = "; ".join(dict.fromkeys(part.why for part in parts)) + of_others
    return FindingReason("routed-elsewhere", text, step(item.origin.path, "targetRef"), parts[0].hint)


def _without_meaning(policy: Policy[Any], item: PolicyItem, decisions: Sequence[AnyDecision]) -> FindingReason | None:
    """The reason where all that an item sets is for another protocol than is spoken, whatever the routes are."""
    sections: dict[str, tuple[Protocol, Destination]] = {}
    for decision in _decisions_if_whole(decisions):
        if not isinstance(decision, ConfDecision) or decision.protocol is None or decision.destination is None:
            return None
        for path in _own_paths(item, decision):
            name = section_of(policy, path)
            if name is None or decision.protocol in policy.section_protocols[name]:
                return None
            sections.setdefault(name, (decision.protocol, decision.destination))
    if not sections:
        return None
    name, (protocol, destination) = next(iter(sections.items()))
    text = f"`{name}` has no meaning where {protocol} is spoken, as with {destination_name(destination)}"
    meant = " or ".join(sorted(policy.section_protocols[name]))
    hint = f"if {meant} is spoken, say so in {where_protocol_is_said(destination)}"
    return FindingReason("no-meaning", text, step(item.layer.path, name), hint)


def _own_paths(item: PolicyItem, decision: ConfDecision) -> Iterator[str]:
    """The fields that an item sets for a decision, whether they hold or not."""
    for merged in decision.merged.fields.values():
        if any(setting.origin == item.origin for setting in (merged.winner, *merged.losers)):
            yield merged.path


def _overridden_or_redundant(item: PolicyItem, decisions: Sequence[AnyDecision], *, as_whole: bool) -> FindingReason:
    rivals = _Rivals(policy_of if as_whole else item_of)
    for decision in _decisions_if_whole(decisions):
        if isinstance(decision, RouteTableDecision | GatewayTableDecision):
            _compare_rows(item, decision, rivals)
        elif isinstance(decision, ClientDecision):
            _compare_first(item, decision, rivals)
        else:
            _compare(item, decision, rivals)
    path = item.layer.path
    if not (rivals.overriding or rivals.agreeing) and any(
        isinstance(decision_of_rule, AdmissionDecision) for decision_of_rule in decisions
    ):
        text = "no weaker item of `from` allows whom it denies, and it takes back nothing else"
        return FindingReason("redundant", text, path, "remove it, or leave it as a reminder")
    if rivals.overriding:
        text = _overridden(rivals)
        if all(isinstance(decision, RouteTableDecision | GatewayTableDecision) for decision in decisions):
            text = f"stronger routes with the same matches take its place: {_listed(rivals.overriding)}"
        hint = "remove it, or write it for fewer proxies than what overrides it"
        return FindingReason("overridden", text, path, hint)
    by = f" ({_listed(rivals.agreeing)} says so)" if rivals.agreeing else ""
    return FindingReason(
        "redundant", f"what it says would hold without it{by}", path, "remove it, or leave it as a reminder"
    )


def _overridden(rivals: _Rivals) -> str:
    """Who overrides which fields. Each of several rivals does so for other decisions."""
    of_each = [f"{_fields(paths)} overridden by {whose}" for whose, paths in rivals.overriding.items()]
    if len(of_each) == 1 and not rivals.agreeing:
        return f"{of_each[0]}, wherever it holds"
    redundant = "; what else it says would hold without it" if rivals.agreeing else ""
    more = f" and by {len(of_each) - _FEW} more" if len(of_each) > _FEW else ""
    return f"at one place or another {'; '.join(of_each[:_FEW])}{more}{redundant}"


def _decisions_if_whole(
    decisions: Iterable[AnyDecision],
) -> Iterator[ConfDecision | ClientDecision | _TableDecision]:
    for decision in decisions:
        if isinstance(decision, DestinationDecision):
            yield from decision.decisions
        elif isinstance(decision, AdmissionDecision):
            yield from decision.subsets
        else:
            yield decision


def _compare(item: PolicyItem, decision: ConfDecision, rivals: _Rivals) -> None:
    for merged_field in {**decision.merged.nulls, **decision.merged.removed, **decision.merged.fields}.values():
        values = (setting for setting in (merged_field.winner, *merged_field.losers) if setting.value is not None)
        own = next((setting for setting in values if setting.origin == item.origin), None)
        null = next((removal for removal in merged_field.removals if removal.null.origin == item.origin), None)
        if own is not None:
            _add(rivals, merged_field.path, own, _rival(merged_field, own, rivals.unit_of))
        elif null is not None:
            _add(rivals, merged_field.path, null.null, _winner_over_null(null, rivals.unit_of))


def _add(rivals: _Rivals, path: str, own: Setting, rival: Setting | None) -> None:
    if rival is not None:
        takes_away = rival.value is None and own.value is not None
        whose = origin_name(rival.origin, rival.line)
        rivals.add(f"a null of {whose}" if takes_away else whose, [path], is_same=rival.value == own.value)


def _winner_over_null(removal: Removal, unit_of: UnitOf) -> Setting | None:
    """The value that is stronger than a null; None if there is none, or if the null removed nothing."""
    over = removal.overridden_by if removal.removed else None
    return None if over is None or unit_of(over.origin) == unit_of(removal.null.origin) else over


def _rival(merged_field: MergedField, setting: Setting, unit_of: UnitOf) -> Setting | None:
    """The setting that wins over a setting; if it wins itself, another one with the same value."""
    unit = unit_of(setting.origin)
    over = setting.removed_by or merged_field.winner
    if unit_of(over.origin) != unit:
        return over
    rivals = (loser for loser in merged_field.losers if unit_of(loser.origin) != unit)
    return next((rival for rival in rivals if rival.value == setting.value), None)


def _compare_rows(item: PolicyItem, decision: _TableDecision, rivals: _Rivals) -> None:
    """Of the routes with the same matches the strongest one owns the row."""
    conf: Mapping[str, Any] = item.layer.conf
    own_matches = [list(rule.get("matches") or ()) for rule in conf.get("rules", ())]
    for rule in decision.rules:
        if rule.origin != item.origin and (not own_matches or list(rule.matches) in own_matches):
            rivals.add(origin_name(rule.origin), [], is_same=False)


def _compare_first(item: PolicyItem, decision: ClientDecision, rivals: _Rivals) -> None:
    own_conf = item.layer.conf
    for combined in decision.confs_in_order:
        if item not in combined.items:
            rivals.add(origin_name(combined.items[0].origin), own_conf, is_same=combined.conf.value == own_conf)


def _of_target(survey: MeshSurvey, item: PolicyItem) -> FindingReason:
    path = step(item.origin.path, "targetRef")
    lacks = missing(survey.world, item)
    if lacks is not None:
        return lacks
    count = survey.selected[item.policy]
    whom = f"none of the {count} proxies that it selects" if count > 1 else "the proxy that it selects"
    if item.target.kind in ROUTES:
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
    routes = [target for target in targets if target.kind in ROUTES]
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
    if not any(route.key in survey.effective for route in routes):
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


def _no_inbound(survey: MeshSurvey, item: PolicyItem) -> FindingReason:
    count = survey.selected[item.policy]
    if needs_mtls(item) and _has_inbound(survey, item.policy):
        proxies = f"none of the {count} proxies that it selects takes" if count > 1 else "its proxy does not take"
        text = f"{proxies} TLS, and it has an effect only where clients show who they are"
        return FindingReason("mtls-off", text, item.origin.path, "give the proxies identities that the mesh trusts")
    text = f"none of the {count} proxies that it selects has an inbound" if count > 1 else "its proxy has no inbound"
    return FindingReason("selects-no-inbound", text, item.origin.path, "select proxies that others call")


def _has_inbound(survey: MeshSurvey, policy: Resource) -> bool:
    return any(
        matched.policy is policy and index in matched.inbounds
        for proxy in survey.proxies
        for matched in match(survey.world, proxy.dataplane).get(policy.type, ())
        for index, _ in inbounds(proxy.dataplane)
    )


def _nothing_redirected(survey: MeshSurvey, item: PolicyItem) -> FindingReason:
    count = survey.selected[item.policy]
    proxies = f"none of the {count} proxies that it selects has" if count > 1 else "its proxy has no"
    text = f"{proxies} `networking.transparentProxying`, so calls to places outside of the mesh do not come by"
    hint = "give the Dataplane `transparentProxying` and redirect its traffic, or remove the policy"
    return FindingReason("not-redirected", text, item.origin.path, hint)


def _fields(paths: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(paths))
    return f"{few([f'`{path}`' for path in distinct])} {'is' if len(distinct) == 1 else 'are'}"


def _listed(names: Iterable[str]) -> str:
    return few(list(dict.fromkeys(names)))
