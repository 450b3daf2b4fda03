"""The rules and policies of one proxy, in the form of Kuma's API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

from cp.insight.enforcement import parts_without_effect
from cp.insight.inspect.affected import legacy_policies
from cp.insight.legacy import (
    VIRTUAL_OUTBOUND,
    LegacyPlace,
    LegacyPlaces,
    NamedPlaces,
    gateway_route_places,
    knows_names,
    written_path,
    written_values,
)
from cp.model.checkpoint import Checkpoint, checked, never_stopped
from cp.model.failure import WHOLE, Failure, made_or_failure
from cp.model.names import Key
from cp.model.secret_data import redacted_answer
from cp.policies import discover
from cp.resources.capabilities import warning
from cp.resources.engine import FIELD, engine_of
from cp.resources.resource import Resource
from cp.resources.targets import HTTP_ROUTE
from cp.resources.world import World
from cp.rules import MATCHES_TAG, PolicyRules, ResourceRule, SubsetRule, SubsetRules, TagCondition, build, matches_hash
from cp.rules.legacy import legacy_rules
from cp.rules.legacy.gateway_routes import GATEWAY_ROUTE
from cp.rules.matching import MatchedPolicy, match
from cp.rules.matching.profile import gateway_of, listeners, sections
from cp.rules.merging import Origin
from cp.translate.compiler import Compiler
from cp.translate.effective import of_inbound, rules_of
from cp.translate.inbound import secured_by
from cp.translate.view.mtls import inbound_tls, secured
from cp.translate.view.proxies import inbounds

Data: TypeAlias = dict[str, Any]
PlacesOrFailure: TypeAlias = Sequence[LegacyPlace] | Failure
"""What legacy policies are for on a proxy, or the fault of ours for which nobody can tell."""


def inspect_rules(
    world: World, dataplane: Resource, checkpoint: Checkpoint = never_stopped, *, shadow: bool = False
) -> Data:
    """The rules of every kind of policy that selects a proxy: the answer to `/_rules`."""
    matched = match(world, dataplane, shadow=shadow)
    by_kind = checked(sorted(matched.items()), checkpoint)
    rules = [build(world, matches, world.kinds[kind]) for kind, matches in by_kind]
    answer = {
        "resource": resource_meta(dataplane.key),
        "rules": [_kind_data(world, dataplane, policy_rules) for policy_rules in checked(rules, checkpoint)],
        "httpMatches": _http_matches(world, dataplane, rules),
        **({} if shadow else _legacy_rules(_legacy_places(world, dataplane))),
    }
    return redacted_answer(answer, checkpoint)


def inspect_policies(world: World, dataplane: Resource, *, shadow: bool = False) -> Data:
    """The policies that select a proxy, kind by kind, from the general to the specific, and the engine of its mesh."""
    matched, mesh = match(world, dataplane, shadow=shadow), world.mesh(dataplane.mesh)
    places = () if shadow else _legacy_places(world, dataplane)
    return {
        **({} if mesh is None else {FIELD: engine_of(mesh.data)}),
        "policies": [
            *(_policy_data(world, policy) for _, matches in sorted(matched.items()) for policy in matches),
            *_legacy_policies(world, dataplane, places),
        ],
        **_legacy_failure(places),
    }


def _legacy_rules(places: PlacesOrFailure) -> Data:
    """What holds of legacy policies for each service, inbound, listener or proxy; empty without any."""
    if isinstance(places, Failure):
        return _legacy_failure(places)
    holding = [place for place in places if any(value.is_in_force for value in place.values)]
    return {"legacyRules": [_legacy_rule(place) for place in holding]} if holding else {}


def _legacy_failure(places: PlacesOrFailure) -> Data:
    """Why nobody can tell what legacy policies do on a proxy; empty where it is told."""
    return {"legacyFailure": places.unknown} if isinstance(places, Failure) else {}


def _legacy_rule(place: LegacyPlace) -> Data:
    policy = place.policy
    values = [value for value in written_values(policy, place.values) if value.is_in_force]
    return {
        "type": policy.type,
        "where": place.where,
        "conf": {written_path(policy, value): value.setting.value for value in values},
        "origin": [{"resourceMeta": resource_meta(policy.key), **_place_of(policy)}],
    }


def _legacy_policies(world: World, dataplane: Resource, places: PlacesOrFailure) -> Iterator[Data]:
    """The legacy policies that select a proxy, with what they are for there, and whether they hold."""
    if isinstance(places, Failure):
        yield from ({**resource_meta(policy.key), **_place_of(policy)} for policy in legacy_policies(world, dataplane))
        return
    of_policies: dict[Resource, list[LegacyPlace]] = {}
    for place in places:
        of_policies.setdefault(place.policy, []).append(place)
    for policy, of_policy in of_policies.items():
        listed = [_place_data(place) for place in of_policy]
        is_in_force = any(place_data["inForce"] for place_data in listed)
        yield {**resource_meta(policy.key), "inForce": is_in_force, "for": listed, **_place_of(policy)}


def _legacy_places(world: World, dataplane: Resource) -> PlacesOrFailure:
    return made_or_failure(lambda: tuple(_all_legacy_places(world, dataplane)), WHOLE)


def _all_legacy_places(world: World, dataplane: Resource) -> Iterable[LegacyPlace]:
    routes = world.table(GATEWAY_ROUTE, dataplane.mesh) if dataplane.spec.is_builtin_gateway else ()
    names = world.table(VIRTUAL_OUTBOUND, dataplane.mesh) if knows_names(dataplane) else ()
    if not legacy_rules(world, dataplane) and not routes and not names:
        return ()
    compiler = Compiler(discover())
    proxy = compiler.proxy(world, dataplane)
    of_names = NamedPlaces(world, dataplane.mesh).of_proxy(proxy) if names else ()
    return chain(LegacyPlaces(compiler.policies, world).of_proxy(proxy), gateway_route_places(world, proxy), of_names)


def _place_of(policy: Resource) -> Data:
    return {"file": policy.source.file, "line": policy.source.line("")} if policy.source.file else {}


def _place_data(place: LegacyPlace) -> Data:
    why = {"reason": place.reason} if place.reason else {}
    return {"where": place.where, "inForce": place.holds, **why}


def resource_meta(key: Key) -> Data:
    return {"type": key.type, "mesh": key.mesh, "name": key.name}


def _policy_data(world: World, matched_policy: MatchedPolicy) -> Data:
    parts = {"inbounds": list(matched_policy.inbounds), "listeners": list(matched_policy.listeners)}
    return {
        **resource_meta(matched_policy.policy.key),
        **{name: indexes for name, indexes in parts.items() if indexes},
        **_policy_warnings(world, matched_policy.policy),
    }


def _policy_warnings(world: World, policy: Resource) -> Data:
    """Warnings about the parts of a policy that have no effect; empty without any."""
    warnings = [str(warning(part, policy.kind.root)) for part in parts_without_effect(world, policy)]
    return {"warnings": warnings} if warnings else {}


def _warnings(world: World, dataplane: Resource, rules: PolicyRules) -> list[str]:
    """Warnings about the parts of a Dataplane, and of the policies that matched it, that have no effect."""
    resources = (dataplane, *(matched_policy.policy for matched_policy in rules.matched))
    return [
        f"{resource.key}: {warning(part, resource.kind.root)}"
        for resource in resources
        for part in parts_without_effect(world, resource)
    ]


def _unjudged(world: World, dataplane: Resource, rules: PolicyRules) -> Iterator[str]:
    """Warnings about inbounds that also take calls in plain text, of which nobody knows who makes them."""
    tls = inbound_tls(world, dataplane) if rules.shape.side_by_side else None
    for index, inbound in () if tls is None else inbounds(dataplane):
        served = secured_by(discover(), secured(inbound, tls), of_inbound({}, rules_of(world, dataplane), index))
        if served.is_permissive:
            whoever = "whoever speaks plain text is asked for no permission"
            yield f"{dataplane.key}: {whoever} at port {inbound.port}"


def _kind_data(world: World, dataplane: Resource, rules: PolicyRules) -> Data:
    gateway = gateway_of(world, dataplane)
    inbounds = list(_inbounds(dataplane, rules) if gateway is None else _gateway_inbounds(dataplane, gateway, rules))
    answer: Data = {
        "type": rules.kind.name,
        "toResourceRules": [_resource_rule(world, rule) for rule in rules.to.all],
        "toRules": _subset_rules(rules.to_subsets),
        "fromRules": _non_empty_rules(
            (inbound, _from_rules(port_rules, index)) for inbound, port_rules, index in inbounds
        ),
        "inboundRules": _non_empty_rules(
            (inbound, _inbound_rules(port_rules, index)) for inbound, port_rules, index in inbounds
        ),
        "warnings": [*_warnings(world, dataplane, rules), *_unjudged(world, dataplane, rules)],
    }
    if gateway is not None:
        answer["gatewayToRules"] = list(_gateway_rules(gateway, rules))
    if rules.proxy is not None:
        answer["proxyRule"] = {"conf": rules.proxy.conf.value, "origin": _policy_list(rules.proxy.origins)}
    return answer


_Inbound: TypeAlias = tuple[Data, PolicyRules, int | None]


def _inbounds(dataplane: Resource, rules: PolicyRules) -> Iterator[_Inbound]:
    for index, section in enumerate(sections(dataplane)):
        yield {"port": section.get("port"), "tags": dict(section.get("tags") or {})}, rules, index


def _gateway_inbounds(dataplane: Resource, gateway: Resource, rules: PolicyRules) -> Iterator[_Inbound]:
    """The ports of a builtin gateway, in place of inbounds. Listeners with one port and several hostnames are one."""
    ports: dict[int, list[int]] = {}
    for index, listener in enumerate(listeners(gateway)):
        ports.setdefault(listener.get("port", 0), []).append(index)
    networking = dataplane.data.get("networking") or {}
    tags = dict((networking.get("gateway") or {}).get("tags") or {})
    for port, indexes in sorted(ports.items()):
        yield {"port": port, "tags": tags}, rules.at_listeners(indexes), None


def _gateway_rules(gateway: Resource, rules: PolicyRules) -> Iterator[Data]:
    """The rules for destinations, listener by listener of a builtin gateway."""
    for index, listener in enumerate(listeners(gateway)):
        if subset_rules := _subset_rules(rules.at_listeners([index]).to_subsets):
            yield {
                "inbound": {"port": listener.get("port")},
                "hostname": listener.get("hostname") or "*",
                "rules": subset_rules,
            }


def _non_empty_rules(pairs: Iterable[tuple[Data, Sequence[Data]]]) -> list[Data]:
    return [{"inbound": inbound, "rules": list(rules)} for inbound, rules in pairs if rules]


def _resource_rule(world: World, rule: ResourceRule) -> Data:
    resource = world.find(rule.identity)
    key = Key(rule.identity.type, rule.identity.mesh, rule.identity.name) if resource is None else resource.key
    return {
        "resourceMeta": resource_meta(key),
        "resourceSectionName": rule.identity.section,
        "conf": [conf.value for conf in rule.combined.confs],
        "origin": _item_data(rule.combined.origins),
    }


def _subset_rules(rules: SubsetRules) -> list[Data]:
    return [entry for rule in rules.rules for entry in _subset_rule(rule)]


def _from_rules(rules: PolicyRules, index: int | None) -> list[Data]:
    subsets = rules.from_(index)
    if not rules.shape.side_by_side:
        return _subset_rules(subsets)
    of_each = zip(_subset_rules(subsets), subsets.rules, strict=True)
    return [{**data, "origin": _placed_policies(rule.combined.origins)} for data, rule in of_each]


def _subset_rule(rule: SubsetRule) -> Iterator[Data]:
    for conf in rule.combined.confs:
        matchers = [_matcher(condition) for condition in rule.matchers]
        yield {"matchers": matchers, "conf": conf.value, "origin": _policy_list(rule.combined.origins)}


def _matcher(condition: TagCondition) -> Data:
    return {"key": condition.key, "value": condition.value, "not": condition.is_not}


def _inbound_rules(rules: PolicyRules, index: int | None) -> list[Data]:
    return [
        {
            **({} if rule.match is None else {"match": rule.match}),
            "conf": [conf.value for conf in rule.combined.confs],
            "origin": _places([rule.origin]) if rules.shape.side_by_side else _item_data([rule.origin]),
        }
        for rule in rules.inbound(index).rules
    ]


def _item_data(origins: Iterable[Origin]) -> list[Data]:
    return [{"resourceMeta": resource_meta(origin.policy), "ruleIndex": origin.index} for origin in origins]


def _places(origins: Iterable[Origin]) -> list[Data]:
    """Items with where they are written, for rules that count one by one."""
    listed = list(origins)
    return [{**item, **_place(origin)} for item, origin in zip(_item_data(listed), listed, strict=True)]


def _placed_policies(origins: Iterable[Origin]) -> list[Data]:
    """Policies in Kuma's form, each with where its strongest item is written."""
    strongest = {origin.policy: origin for origin in origins}
    return [{**resource_meta(policy), **_place(origin)} for policy, origin in strongest.items()]


def _place(origin: Origin) -> Data:
    return {"file": origin.file, "line": origin.line} if origin.file else {}


def _policy_list(origins: Iterable[Origin]) -> list[Data]:
    return [resource_meta(policy) for policy in dict.fromkeys(origin.policy for origin in origins)]


def _http_matches(world: World, dataplane: Resource, rules: Iterable[PolicyRules]) -> list[Data]:
    """The matches of routes whose hashes the matchers have as values."""
    matchers = (
        condition for policy_rules in rules for rule in policy_rules.to_subsets.rules for condition in rule.matchers
    )
    hashes = {condition.value for condition in matchers if condition.key == MATCHES_TAG}
    matches = {} if not hashes else dict(_hashes(world, dataplane.mesh))
    return [{"hash": digest, "match": matches[digest]} for digest in sorted(hashes & matches.keys())]


def _hashes(world: World, mesh: str) -> Iterator[tuple[str, Sequence[Mapping[str, Any]]]]:
    for route in world.table(HTTP_ROUTE, mesh):
        for to in route.data.get("to") or ():
            for rule in to.get("rules") or ():
                matches = rule.get("matches") or ()
                yield matches_hash(matches), matches
