"""Policies and items without an effect, with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from cp.insight.enforcement import decides_reach
from cp.insight.lint.codes import NO_EFFECT, NO_EFFECT_OF_ITEM, FindingReason, finding_about
from cp.insight.lint.decisions import item_of
from cp.insight.lint.reasons import reason
from cp.insight.lint.survey import MeshSurvey, items_of
from cp.model.names import Key
from cp.model.violation import Finding
from cp.resources.resource import Resource
from cp.resources.targets import ROUTE_KINDS
from cp.rules import PolicyItem
from cp.rules.matching import is_shadow, top_of
from cp.translate.effective import has_hook

_REMOVE: Final = "remove it"
_NOBODY_BUT_ASKS: Final = "selects no proxy, and makes those that call others send their tags all the same"
_NOBODY_BUT_OFFERS: Final = "selects no proxy, and makes those that call others offer an older TLS all the same"
_BY_TAGS: Final = "compare it with the tags of inbounds"
_BY_GATEWAY: Final = "a builtin gateway is selected by its MeshGateway: write `kind: MeshGateway`"
_COMPARE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "name": "compare it with the names of Dataplanes, and `sectionName` with their inbounds",
        "Dataplane": "compare it with the labels of Dataplanes, and `sectionName` with their inbounds",
        "Mesh": "compare `proxyTypes` with the proxies that there are",
        "MeshSubset": _BY_TAGS,
        "MeshService": _BY_TAGS,
        "MeshServiceSubset": _BY_TAGS,
        "MeshGateway": "compare it with the MeshGateways, and those with the tags of gateways",
        "MeshHTTPRoute": "compare it with the routes that there are, and with the proxies that they are for",
    }
)
"""The hint where no proxy is selected, by the kind of the target."""


def idle(survey: MeshSurvey) -> Iterator[Finding]:
    """Policies without an effect; of the other policies the items without one."""
    for policy in survey.judged:
        if policy.key in survey.effects.effective:
            yield from _asks_only(survey, policy)
            yield from _items(survey, policy)
        else:
            yield finding_about(policy, _of_policy(survey, policy))


def _of_policy(survey: MeshSurvey, policy: Resource) -> FindingReason:
    if is_shadow(policy):
        hint = "remove the label to put it into force"
        return FindingReason("shadow", f"{NO_EFFECT}, as its label says: it is only looked at", "labels", hint)
    if not survey.selected.get(policy):
        return _selects_nobody(survey, policy)
    reasons = [reason(survey, item, as_whole=True) for item in items_of(policy)]
    codes = {item_reason.code for item_reason in reasons}
    if not reasons:
        return FindingReason("no-effect", f"{NO_EFFECT}: it says nothing", policy.kind.root, _REMOVE)
    first = reasons[0] if len(codes) == 1 else FindingReason("no-effect", "", policy.kind.root, _REMOVE)
    return replace(first, text=f"{NO_EFFECT}: {_joined(item_reason.text for item_reason in reasons)}")


def _items(survey: MeshSurvey, policy: Resource) -> Iterator[Finding]:
    """The items without an effect, if there are several: of a single one the policy tells enough."""
    all_items = items_of(policy)
    for item in all_items if len(all_items) > 1 and policy.key not in survey.effects.needed else ():
        if item_of(item.origin) not in survey.effects.effective_items and not _asks(survey, item):
            why = reason(survey, item, as_whole=False)
            text = why.text if _is_the_only_route(item, all_items) else f"{NO_EFFECT_OF_ITEM}: {why.text}"
            yield finding_about(policy, replace(why, text=text))


def _asks(survey: MeshSurvey, item: PolicyItem) -> bool:
    """Whether it changes what proxies tell about themselves, although it changes no conf."""
    policy = item.policy
    may_ask = item.origin.part != "to" and survey.effects.may_ask(policy)
    return may_ask and not survey.recompilation.is_served_the_same_without(policy, item)


def _is_the_only_route(item: PolicyItem, all_items: Iterable[PolicyItem]) -> bool:
    """A policy that names a route in `to` is not for services by tag: without that item the others would be."""
    return item.target.kind in ROUTE_KINDS and not any(
        candidate.target.kind in ROUTE_KINDS for candidate in all_items if candidate is not item
    )


def _asks_only(survey: MeshSurvey, policy: Resource) -> Iterator[Finding]:
    """Of a policy that selects no proxy and changes what proxies send all the same."""
    is_about_itself = not decides_reach(survey.world, policy.type)
    if is_about_itself and policy.key in survey.effects.asking and not survey.selected.get(policy):
        is_about_tls = has_hook(survey.policies[policy.type], "secure")
        yield finding_about(
            policy, _selects_nobody(survey, policy, _NOBODY_BUT_OFFERS if is_about_tls else _NOBODY_BUT_ASKS)
        )


def _selects_nobody(survey: MeshSurvey, policy: Resource, consequence: str = NO_EFFECT) -> FindingReason:
    target = top_of(policy)
    tags = " ".join(f"{name}={value}" for name, value in sorted((target.tags or target.labels or {}).items()))
    whom = " ".join(part for part in (target.kind, target.name or "", tags) if part)
    total = survey.proxy_counts[policy.mesh]
    text = f"{consequence}: it is for {whom}, and of the {total} proxies of the mesh none is"
    named = "name" if target.name and target.kind == "Dataplane" else target.kind
    is_gateway = named == "name" and _is_gateway(survey, policy.mesh, target.name or "")
    hint = _BY_GATEWAY if is_gateway else _COMPARE[named]
    return FindingReason("selects-no-proxy", text, f"{policy.kind.root}.targetRef", hint)


def _is_gateway(survey: MeshSurvey, mesh: str, name: str) -> bool:
    dataplane = survey.world.get(Key("Dataplane", mesh, name))
    return dataplane is not None and bool(dataplane.spec.is_builtin_gateway)


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))
