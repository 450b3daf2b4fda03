"""Policies of which values hold and change nothing that proxies are served.

Whether values hold is seen from what was merged, and that is what findings about policies without an effect go by. But
Envoy may be built the same for two confs: a check that is switched off is as one that nobody switched on. So of the
policies of which nothing else is told, it is asked whether the mesh would be served the same without them. To compile
the mesh once more for each policy would take long. For most of them a single difference is found quickly: in the
fragments of a destination, or because some value holds for an inbound. Only for the others all is compiled once more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeAlias

from cp.insight.lint.codes import NO_EFFECT, NOTHING_SERVED, FindingReason, found
from cp.insight.lint.sites import AnySite, ClientSite, PartSite, PolicySite, RouteTableSite, policy_of
from cp.insight.lint.survey import MeshSurvey, items_of
from cp.insight.lint.walk import HTTP_ROUTE
from cp.insight.meaning import has_meaning
from cp.model.checkpoint import checked
from cp.model.names import Key
from cp.model.violation import Finding
from cp.policies import Policy
from cp.resources.resource import Resource
from cp.rules import PolicyItem
from cp.rules.merging import MergedField

_SWITCH: Final = "disabled"

_NOT_ABOUT_EFFECTS: Final = frozenset({"deprecated"})
"""Codes of findings about how something is written, and not about what comes of it."""

_SilentItems: TypeAlias = Mapping[Resource, tuple[PolicyItem, ...]]


def unserved(survey: MeshSurvey, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Items of which no finding tells anything yet, of policies without which all would be served the same."""
    silent = _silent_items(survey, findings)
    changing = _quickly_found_changing(survey, {policy.key for policy in silent})
    for policy, items in checked(silent.items(), survey.checkpoint):
        if policy.key not in changing and survey.is_served_the_same_without(policy):
            yield from (found(policy, _reason(item)) for item in items)


def _silent_items(survey: MeshSurvey, findings: Iterable[Finding]) -> _SilentItems:
    """The items of which nothing is told, of policies of which something holds."""
    paths: dict[Key | None, list[str]] = {}
    for finding in findings:
        if finding.code not in _NOT_ABOUT_EFFECTS:
            is_about_policy = finding.message.startswith(NO_EFFECT)
            paths.setdefault(finding.resource, []).append("" if is_about_policy else finding.path)
    policies = (policy for policy in survey.judged if policy.key in survey.effective)
    silent = {policy: tuple(_untold(policy, paths.get(policy.key, ()))) for policy in policies}
    return {policy: items for policy, items in silent.items() if items}


def _untold(policy: Resource, paths: Collection[str]) -> Iterator[PolicyItem]:
    for item in items_of(policy):
        own = item.layer.path if item.origin.part == "default" else item.origin.path
        if not any(not path or path.startswith(own) for path in paths):
            yield item


def _quickly_found_changing(survey: MeshSurvey, keys: AbstractSet[Key]) -> set[Key]:
    """Those of these policies that surely change what is served."""
    changing: set[Key] = set()
    for site in checked((*survey.sites, *survey.destinations), survey.checkpoint):
        here = {item.policy.key for item in site.items} & keys - changing
        changing |= {
            key for key in checked(here, survey.checkpoint) if _is_change(survey.policies[site.kind.name], site, key)
        }
    return changing


def _is_change(policy: Policy[Any], site: AnySite, key: Key) -> bool:
    """Whether what is served at one site would surely be different without a policy."""
    if isinstance(site, PartSite):
        return site.is_served_differently_without(lambda item: item.policy.key == key)
    if isinstance(site, RouteTableSite):
        # Rows of HTTP carry the name of their route. A row of TCP is like a connection without any route.
        return site.kind.name == HTTP_ROUTE and key in site.surely_effective(policy_of)
    return site.destination is None and _sets_something(policy, site, key)


def _sets_something(policy: Policy[Any], site: PolicySite | ClientSite, key: Key) -> bool:
    """Whether a policy sets a value that says something at an inbound. Of whole proxies it is not seen so easily."""
    protocol, fields = site.protocol, site.merged.fields
    if protocol is None:
        return False
    own = (field for field in fields.values() if field.winner.origin.policy == key and _is_value(field))
    return any(has_meaning(policy, field.path, protocol, fields) for field in own)


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
