"""Sections of a conf that have no meaning for the protocol that is spoken wherever they hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from cp.insight.lint.codes import FindingReason, finding_about
from cp.insight.lint.decisions import ClientDecision, ConfDecision, DestinationDecision
from cp.insight.lint.gateway_decisions import GatewayDecision
from cp.insight.lint.survey import MeshSurvey
from cp.insight.lint.wording import destination_name, where_protocol_is_said
from cp.insight.meaning import acts_alone, section_of
from cp.model.names import Key
from cp.model.violation import Finding
from cp.policies import Policy
from cp.rules.merging import Setting
from cp.translate.effective import BUILT_IN

_Item: TypeAlias = tuple[Key, str, int]


@dataclass(slots=True)
class _SetSection:
    """A section that an item sets, with one decision in which it holds."""

    setting: Setting
    decision: ConfDecision | ClientDecision
    has_meaning: bool = False
    """Whether it has a meaning in any of the decisions in which it holds."""


@dataclass(slots=True)
class _SetFields:
    """The fields of one item that hold in some decision."""

    policy: Policy[Any]
    is_general: bool
    """Whether the item is for services, or clients, of every protocol: then not each section has to have a meaning."""

    sections: dict[str, _SetSection] = field(default_factory=dict)
    acts_without_sections: bool = False
    """Whether it also sets a field that has a meaning for every protocol."""

    @property
    def without_meaning(self) -> Iterator[tuple[str, _SetSection]]:
        has_meaning = self.acts_without_sections or any(section.has_meaning for section in self.sections.values())
        if not (self.is_general and has_meaning):
            yield from ((name, section) for name, section in self.sections.items() if not section.has_meaning)


def protocols(survey: MeshSurvey) -> Iterator[Finding]:
    """Sections that an item sets and that have a meaning in none of the decisions in which they hold."""
    fields_of: dict[_Item, _SetFields] = {}
    for decision in _decisions(survey):
        policy = survey.policies[decision.kind.name]
        if decision.protocol is not None and policy.section_protocols:
            _add_fields(policy, decision, fields_of)
    for (key, _, _), fields in fields_of.items():
        resource = survey.world.get(key)
        if resource is not None:
            reasons = (_reason(fields.policy, name, section) for name, section in fields.without_meaning)
            yield from (finding_about(resource, reason) for reason in reasons)


def _decisions(survey: MeshSurvey) -> Iterator[ConfDecision | ClientDecision]:
    for decision in survey.decisions:
        if isinstance(decision, DestinationDecision):
            yield from decision.decisions
        elif isinstance(decision, ConfDecision | ClientDecision):
            yield decision


def _add_fields(
    policy: Policy[Any], decision: ConfDecision | ClientDecision, fields_of: dict[_Item, _SetFields]
) -> None:
    for path, merged_field in decision.merged.fields.items():
        winner = merged_field.winner
        if winner.origin.part == BUILT_IN:
            continue
        is_general = winner.origin.part != "to" or winner.origin.level == "mesh"
        item = (winner.origin.policy, winner.origin.part, winner.origin.index)
        fields = fields_of.setdefault(item, _SetFields(policy, is_general))
        name = section_of(policy, path)
        if name is None:
            fields.acts_without_sections |= acts_alone(policy, path)
        else:
            section = fields.sections.setdefault(name, _SetSection(winner, decision))
            section.has_meaning |= decision.protocol in policy.section_protocols[name]


def _reason(policy: Policy[Any], name: str, section: _SetSection) -> FindingReason:
    decision = section.decision
    whom = _whom(decision)
    text = f"`{name}` has no meaning where {decision.protocol} is spoken, as with {whom}; and it holds nowhere else"
    spoken = " or ".join(sorted(policy.section_protocols[name]))
    where = "the tag `kuma.io/protocol` of the inbound"
    if isinstance(decision, GatewayDecision):
        where = "`protocol` of the listener"
    elif decision.destination is not None:
        where = where_protocol_is_said(decision.destination)
    return FindingReason(
        "no-meaning", text, _section_path(section.setting.path, name), f"if {spoken} is spoken, say so in {where}"
    )


def _whom(decision: ConfDecision | ClientDecision) -> str:
    if decision.destination is not None:
        return destination_name(decision.destination)
    return decision.place if isinstance(decision, GatewayDecision) else "the inbounds of its proxies"


def _section_path(path: str, name: str) -> str:
    """The path of a section in the document, from that of a field in it."""
    head, separator, _ = path.partition(f".{name}")
    return f"{head}{separator}"
