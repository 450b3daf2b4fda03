"""Why an item of a policy has no effect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cp.insight.enforcement import decides_reach, parts_without_mtls
from cp.insight.lint.any_decision import AnyDecision
from cp.insight.lint.blocked import blocked_reason
from cp.insight.lint.codes import FindingReason
from cp.insight.lint.decisions import ConfDecision, DestinationDecision, item_of, policy_of
from cp.insight.lint.gateway_routes import of_listeners, of_table
from cp.insight.lint.rivals import decisions_if_whole, overridden_or_redundant
from cp.insight.lint.survey import MeshSurvey
from cp.insight.lint.uncalled import of_target
from cp.insight.lint.walk import PASSTHROUGH, needs_mtls
from cp.insight.lint.wording import destination_name, where_protocol_is_said
from cp.insight.meaning import section_of
from cp.model.names import Destination
from cp.model.paths import step
from cp.policies import Policy
from cp.resources.capabilities import MissingPart
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules import PolicyItem
from cp.rules.matching import match
from cp.translate.view.proxies import inbounds
from generators.proxy import Protocol


def reason(survey: MeshSurvey, item: PolicyItem, *, as_whole: bool) -> FindingReason:
    """Why an item has no effect. `as_whole` says that its policy as a whole has none."""
    decisions = survey.effects.decisions_of.get(item, ())
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
    return reason_of_part or overridden_or_redundant(item, decisions, as_whole=as_whole)


def _of_place(survey: MeshSurvey, item: PolicyItem) -> FindingReason:
    if decides_reach(survey.world, item.policy.type):
        text = "no proxy is told of others because of it, and no inbound that it selects takes TLS"
        return FindingReason("mtls-off", text, item.origin.path, "remove it, or switch on `mtls` of the Mesh")
    return of_target(survey, item) if item.origin.part == "to" else _no_inbound(survey, item)


def _part_without_mtls(world: World, item: PolicyItem) -> MissingPart | None:
    """The part of a policy to which an item belongs that has no effect because there is no mTLS."""
    return next((part for part in parts_without_mtls(world, item.policy) if part.covers(item.origin.path)), None)


def _is_beyond_clients(survey: MeshSurvey, policy: Resource) -> bool:
    """Whether all that it selects are gRPC clients without a proxy, which cannot do what it asks."""
    only_clients = bool(survey.selected.get(policy)) and policy not in survey.of_envoys
    return only_clients and not survey.policies[policy.type].is_for_grpc_clients


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
    of_others = f"; for others {overridden_or_redundant(item, of_whole, as_whole=as_whole).text}" if of_whole else ""
    text = "; ".join(dict.fromkeys(part.why for part in parts)) + of_others
    return FindingReason("routed-elsewhere", text, step(item.origin.path, "targetRef"), parts[0].hint)


def _without_meaning(policy: Policy[Any], item: PolicyItem, decisions: Sequence[AnyDecision]) -> FindingReason | None:
    """The reason where all that an item sets is for another protocol than is spoken, whatever the routes are."""
    sections: dict[str, tuple[Protocol, Destination]] = {}
    for decision in decisions_if_whole(decisions):
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
