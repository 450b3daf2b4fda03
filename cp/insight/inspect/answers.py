"""What a proxy's policies come to, in the form in which Kuma's API answers it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from cp.insight.inspect.idle import not_enforced
from cp.model.checkpoint import Checkpoint, checked, never_stopped
from cp.model.names import Key
from cp.resources.capabilities import warning
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules import MATCHES_TAG, PolicyRules, ResourceRule, SubsetRule, SubsetRules, TagCondition, build, matches_hash
from cp.rules.matching import MatchedPolicy, match
from cp.rules.matching.profile import gateway_of, listeners, sections
from cp.rules.merging import Origin

Data: TypeAlias = dict[str, Any]


def inspect_rules(
    world: World, dataplane: Resource, checkpoint: Checkpoint = never_stopped, *, shadow: bool = False
) -> Data:
    """The rules of every kind of policy that selects a proxy: the answer of `/_rules`."""
    matched = match(world, dataplane, shadow=shadow)
    by_kind = checked(sorted(matched.items()), checkpoint)
    rules = [build(world, found, world.kinds[kind]) for kind, found in by_kind]
    return {
        "resource": resource_meta(dataplane.key),
        "rules": [_of_kind(world, dataplane, of_kind) for of_kind in checked(rules, checkpoint)],
        "httpMatches": _http_matches(world, dataplane, rules),
    }


def inspect_policies(world: World, dataplane: Resource, *, shadow: bool = False) -> Data:
    """The policies that select a proxy, kind by kind, from the general to the specific."""
    matched = match(world, dataplane, shadow=shadow)
    return {"policies": [_selected(one) for _, found in sorted(matched.items()) for one in found]}


def resource_meta(key: Key) -> Data:
    return {"type": key.type, "mesh": key.mesh, "name": key.name}


def _selected(one: MatchedPolicy) -> Data:
    parts = {"inbounds": list(one.inbounds), "listeners": list(one.listeners)}
    return {
        **resource_meta(one.policy.key),
        **{name: found for name, found in parts.items() if found},
        **_silent(one.policy),
    }


def _silent(policy: Resource) -> Data:
    """What of a policy is not enforced, if there is something."""
    found = [str(warning(one, policy.kind.root)) for one in not_enforced(policy)]
    return {"warnings": found} if found else {}


def _warnings(dataplane: Resource, rules: PolicyRules) -> list[str]:
    """What of the rules of a kind is not enforced."""
    every = (dataplane, *(one.policy for one in rules.matched))
    return [f"{one.key}: {warning(part, one.kind.root)}" for one in every for part in not_enforced(one)]


def _of_kind(world: World, dataplane: Resource, rules: PolicyRules) -> Data:
    gateway = gateway_of(world, dataplane)
    inbounds = list(_inbounds(dataplane, rules) if gateway is None else _at_ports(dataplane, gateway, rules))
    answer: Data = {
        "type": rules.kind.name,
        "toResourceRules": [_resource_rule(world, rule) for rule in rules.to.all],
        "toRules": _subset_rules(rules.to_subsets),
        "fromRules": _non_empty((inbound, _subset_rules(of.from_(index))) for inbound, of, index in inbounds),
        "inboundRules": _non_empty((inbound, _inbound_rules(of, index)) for inbound, of, index in inbounds),
        "warnings": _warnings(dataplane, rules),
    }
    if gateway is not None:
        answer["gatewayToRules"] = list(_at_listeners(gateway, rules))
    if rules.proxy is not None:
        answer["proxyRule"] = {"conf": rules.proxy.conf.value, "origin": _policies(rules.proxy.origins)}
    return answer


_Inbound: TypeAlias = tuple[Data, PolicyRules, int | None]


def _inbounds(dataplane: Resource, rules: PolicyRules) -> Iterator[_Inbound]:
    for index, found in enumerate(sections(dataplane)):
        yield {"port": found.get("port"), "tags": dict(found.get("tags") or {})}, rules, index


def _at_ports(dataplane: Resource, gateway: Resource, rules: PolicyRules) -> Iterator[_Inbound]:
    """The ports of a builtin gateway. Listeners that share one, under different hostnames, count as one here."""
    ports: dict[int, list[int]] = {}
    for index, listener in enumerate(listeners(gateway)):
        ports.setdefault(listener.get("port", 0), []).append(index)
    networking = dataplane.data.get("networking") or {}
    tags = dict((networking.get("gateway") or {}).get("tags") or {})
    for port, indexes in sorted(ports.items()):
        yield {"port": port, "tags": tags}, rules.at_listeners(indexes), None


def _at_listeners(gateway: Resource, rules: PolicyRules) -> Iterator[Data]:
    """The rules for destinations, for each listener of a builtin gateway apart."""
    for index, listener in enumerate(listeners(gateway)):
        if found := _subset_rules(rules.at_listeners([index]).to_subsets):
            yield {
                "inbound": {"port": listener.get("port")},
                "hostname": listener.get("hostname") or "*",
                "rules": found,
            }


def _non_empty(found: Iterable[tuple[Data, Sequence[Data]]]) -> list[Data]:
    return [{"inbound": inbound, "rules": list(rules)} for inbound, rules in found if rules]


def _resource_rule(world: World, rule: ResourceRule) -> Data:
    resource = world.find(rule.identity)
    key = Key(rule.identity.type, rule.identity.mesh, rule.identity.name) if resource is None else resource.key
    return {
        "resourceMeta": resource_meta(key),
        "resourceSectionName": rule.identity.section,
        "conf": [conf.value for conf in rule.combined.confs],
        "origin": _items(rule.combined.origins),
    }


def _subset_rules(rules: SubsetRules) -> list[Data]:
    return [entry for rule in rules.rules for entry in _subset_rule(rule)]


def _subset_rule(rule: SubsetRule) -> Iterator[Data]:
    for conf in rule.combined.confs:
        matchers = [_matcher(one) for one in rule.matchers]
        yield {"matchers": matchers, "conf": conf.value, "origin": _policies(rule.combined.origins)}


def _matcher(one: TagCondition) -> Data:
    return {"key": one.key, "value": one.value, "not": one.is_not}


def _inbound_rules(rules: PolicyRules, index: int | None) -> list[Data]:
    return [
        {
            **({} if rule.match is None else {"match": rule.match}),
            "conf": [conf.value for conf in rule.combined.confs],
            "origin": _items([rule.origin]),
        }
        for rule in rules.inbound(index).rules
    ]


def _items(origins: Iterable[Origin]) -> list[Data]:
    return [{"resourceMeta": resource_meta(origin.policy), "ruleIndex": origin.index} for origin in origins]


def _policies(origins: Iterable[Origin]) -> list[Data]:
    return [resource_meta(policy) for policy in dict.fromkeys(origin.policy for origin in origins)]


def _http_matches(world: World, dataplane: Resource, rules: Iterable[PolicyRules]) -> list[Data]:
    """What the texts stand for that stand in matchers for the matches of a route."""
    matchers = (one for of in rules for rule in of.to_subsets.rules for one in rule.matchers)
    wanted = {one.value for one in matchers if one.key == MATCHES_TAG}
    known = {} if not wanted else dict(_hashes(world, dataplane.mesh))
    return [{"hash": text, "match": known[text]} for text in sorted(wanted & known.keys())]


def _hashes(world: World, mesh: str) -> Iterator[tuple[str, Sequence[Mapping[str, Any]]]]:
    for route in world.table("MeshHTTPRoute", mesh):
        for to in route.data.get("to") or ():
            for rule in to.get("rules") or ():
                matches = rule.get("matches") or ()
                yield matches_hash(matches), matches
