"""Policies of which values hold and change nothing that proxies are served.

The rule `idle` compares confs. But Envoy may be configured the same for two different confs: a health check that is
switched off is like one that nobody switched on. This rule compares what is served, for the policies of which no other
rule tells anything.

To compile the mesh without each policy would take long. For most policies one difference is found quickly: in the
fragments of a destination, in a row of a route table, or in a value for an inbound. Only for the others the mesh is
compiled once more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeAlias

from cp.insight.effects import built, confs_of
from cp.insight.lint.any_decision import AnyDecision
from cp.insight.lint.codes import NO_EFFECT, NOTHING_SERVED, FindingReason, finding_about
from cp.insight.lint.decisions import (
    AdmissionDecision,
    ClientDecision,
    ConfDecision,
    DestinationDecision,
    RouteTableDecision,
    policy_of,
)
from cp.insight.lint.gateway_decisions import GatewayDecision, GatewayTableDecision
from cp.insight.lint.survey import MeshSurvey, items_of
from cp.insight.meaning import has_meaning
from cp.model.checkpoint import checked
from cp.model.names import Key
from cp.model.violation import Finding
from cp.policies import Policy
from cp.resources.resource import Resource
from cp.resources.targets import HTTP_ROUTE
from cp.resources.world import World
from cp.rules import PolicyItem
from cp.rules.merging import Conf, MergedField
from cp.translate.effective import has_hook
from cp.translate.fragments import Task
from cp.translate.view.backend_refs import resolved_data
from generators.proxy import Inbound, Protocol

_SWITCH: Final = "disabled"
_SOME_HOST: Final = "127.0.0.1"

_NOT_ABOUT_EFFECTS: Final = frozenset({"deprecated"})
"""Codes of findings about how something is written, and not about what comes of it."""

_SilentItems: TypeAlias = Mapping[Resource, tuple[PolicyItem, ...]]


def unserved(survey: MeshSurvey, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Items of which no finding tells anything yet, of policies without which all would be served the same."""
    silent = _silent_items(survey, findings)
    changing = _quickly_found_changing(survey, {policy.key for policy in silent})
    for policy, items in checked(silent.items(), survey.checkpoint):
        if policy.key not in changing and survey.recompilation.is_served_the_same_without(policy):
            yield from (finding_about(policy, _reason(item)) for item in items)


def _silent_items(survey: MeshSurvey, findings: Iterable[Finding]) -> _SilentItems:
    """The items of which nothing is told, of policies of which something holds."""
    paths: dict[Key | None, list[str]] = {}
    for finding in findings:
        if finding.code not in _NOT_ABOUT_EFFECTS:
            is_about_policy = finding.message.startswith(NO_EFFECT)
            paths.setdefault(finding.resource, []).append("" if is_about_policy else finding.path)
    policies = (policy for policy in survey.judged if policy.key in survey.effects.effective)
    silent = {policy: tuple(_untold(policy, paths.get(policy.key, ()))) for policy in policies}
    return {policy: items for policy, items in silent.items() if items}


def _untold(policy: Resource, paths: Collection[str]) -> Iterator[PolicyItem]:
    for item in items_of(policy):
        own = item.layer.path if item.origin.part == "default" else item.origin.path
        if not any(not path or path.startswith(own) for path in paths):
            yield item


def _quickly_found_changing(survey: MeshSurvey, keys: AbstractSet[Key]) -> set[Key]:
    """The policies among these that surely change what is served."""
    changing: set[Key] = set()
    for decision in checked((*survey.decisions, *survey.destinations), survey.checkpoint):
        keys_here = {item.policy.key for item in decision.items} & keys - changing
        if isinstance(decision, RouteTableDecision | GatewayTableDecision):
            changing |= keys_here & _owners_of_rows(decision) if keys_here else set()
            continue
        changing |= {key for key in checked(keys_here, survey.checkpoint) if _is_change(survey, decision, key)}
    return changing


def _owners_of_rows(decision: RouteTableDecision | GatewayTableDecision) -> set[Key]:
    """The policies without which a table would surely be served differently, found out for all of them at once.

    A row of HTTP carries the name of its route. A TCP route may lead where calls go without it, and be the same.
    """
    owners = decision.surely_effective(policy_of) if decision.kind.name == HTTP_ROUTE else ()
    return {owner for owner in owners if isinstance(owner, Key)}


def _is_change(survey: MeshSurvey, decision: AnyDecision, key: Key) -> bool:
    """Whether what comes of one decision would surely be served differently without a policy."""
    if isinstance(decision, DestinationDecision | AdmissionDecision):
        return decision.differs_without(lambda item: item.policy.key == key)
    if isinstance(decision, GatewayDecision):
        return decision.is_built_differently_without(lambda item: item.policy.key == key)
    if isinstance(decision, GatewayTableDecision):
        return False
    # How callers speak with an inbound may be what would be so without the policy.
    return (
        decision.destination is None
        and not has_hook(survey.policies[decision.kind.name], "secure")
        and _sets_something(survey, decision, key)
    )


def _sets_something(survey: MeshSurvey, decision: ConfDecision | ClientDecision, key: Key) -> bool:
    """Whether a policy sets a value of which something is built at an inbound. At whole proxies it is not seen so."""
    policy, protocol, fields = survey.policies[decision.kind.name], decision.protocol, decision.merged.fields
    if protocol is None:
        return False
    own = (field for field in fields.values() if field.winner.origin.policy == key and _is_value(field))
    is_meant = any(has_meaning(policy, field.path, protocol, fields) for field in own)
    return is_meant and _builds_something(survey.world, policy, decision.merged.value, protocol, key.mesh)


def _builds_something(world: World, policy: Policy[Any], conf: Conf, protocol: Protocol, mesh: str) -> bool:
    """Whether a conf comes to anything at an inbound: what is empty, incomplete or switched off does not."""
    inbound = Inbound(_SOME_HOST, 1, _SOME_HOST, 2, "", protocol)
    with_conf, without = (
        built(Task(inbound, confs_of(policy, dict(resolved_data(world, mesh, of)))), policy) for of in (conf, {})
    )
    return with_conf != without


def _is_value(field: MergedField) -> bool:
    return field.value is not None and not isinstance(field.value, Mapping)


def _reason(item: PolicyItem) -> FindingReason:
    why = "proxies get the same configuration without it"
    if _switches_off(item.layer.conf):
        why = "what it switches off would be off without it"
    path = item.layer.path or item.origin.path
    return FindingReason("redundant", f"{NOTHING_SERVED}: {why}", path, "remove it, or leave it as a reminder")


def _switches_off(conf: Any) -> bool:
    """Whether some part of a conf is `disabled`."""
    if not isinstance(conf, Mapping):
        return False
    return any((name == _SWITCH and value is True) or _switches_off(value) for name, value in conf.items())
