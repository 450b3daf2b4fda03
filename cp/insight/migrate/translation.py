"""From legacy policies to policies with a targetRef that mean the same, kind by kind.

A kind is translated as a whole or not at all: policies with a targetRef and legacy ones of the same sort do not mix as
two legacy ones do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from cp.insight.migrate import gateway_routes, hostnames, inbounds, outbounds, routes
from cp.insight.migrate.documents import PolicyDraft, named
from cp.insight.migrate.facts import MeshFacts
from cp.insight.migrate.hostnames import VIRTUAL_OUTBOUND
from cp.insight.migrate.selection import MOST, MOST_ITEMS, TooManyPolicies, open_names, outbound_choices, tags_of
from cp.model.document import Document
from cp.model.names import Key
from cp.model.source import LEGACY_POLICIES
from cp.model.violation import Severity
from cp.model.wording import few
from cp.resources.engine import FIELD as ENGINE
from cp.resources.kinds import Kind, LegacySide
from cp.resources.parse import parse_written
from cp.resources.resource import Resource
from cp.resources.targets import ROUTE_KINDS
from cp.rules.legacy.limits import is_for_service_outside
from cp.rules.legacy.selectors import selectors_of

_TOO_MANY: Final = (
    f"they come to more than {MOST} policies with a targetRef, or {MOST_ITEMS} items: one for each value of a tag with "
    "`*`, and one for each service that is called; name the values, and the services"
)

_OF_TAGS: Final = (
    "they name what is called by tags, and a HostnameGenerator names MeshServices, which are called otherwise: other "
    "clusters, with other names over TLS, and without legacy policies"
)

_CHOOSING: Final[Mapping[LegacySide, str]] = MappingProxyType(
    {LegacySide.OUTBOUND: "sources", LegacySide.INBOUND: "destinations", LegacySide.PROXY: "selectors"}
)
"""The field by which policies choose proxies or their inbounds."""


@dataclass(frozen=True, slots=True)
class Translation:
    """All legacy policies of one kind in a mesh, and what takes their place."""

    kind: str
    policies: tuple[Resource, ...]
    documents: tuple[Document, ...] = ()
    origins: Mapping[Key, Key] = field(default_factory=dict)
    """The legacy policy of each document, by their keys."""

    notes: tuple[str, ...] = ()
    """What an operator should look at."""

    reason: str = ""
    """Why they stay as they are; empty where they are replaced."""

    lost: tuple[str, ...] = ()
    """What nothing can take the place of: the notes about it."""

    @property
    def is_done(self) -> bool:
        return not self.reason


def translations(facts: MeshFacts) -> Iterator[Translation]:
    """A translation for each kind of which the mesh has legacy policies and, if all can be made, for its engine."""
    of_kinds = list(_of_kinds(facts))
    yield from of_kinds
    mesh = facts.world.mesh(facts.mesh)
    # What has a name is called as before under either engine.
    is_last = all(translation.is_done for translation in of_kinds if translation.kind != VIRTUAL_OUTBOUND)
    if mesh is not None and mesh.data.get(ENGINE) == "Legacy" and is_last:
        document = replace(mesh.document, data={**mesh.document.data, ENGINE: "TargetRef"})
        yield Translation(mesh.type, (mesh,), (document,), {document.key: document.key})


def _of_kinds(facts: MeshFacts) -> Iterator[Translation]:
    for kind in facts.world.kinds.values():
        policies = tuple(facts.world.table(kind.name, facts.mesh)) if kind.name in LEGACY_POLICIES else ()
        if kind.name == VIRTUAL_OUTBOUND:
            yield from _names(policies)
        elif policies:
            yield valid_or_kept(facts, _translation(facts, kind, policies))


def _names(outbounds: Sequence[Resource]) -> Iterator[Translation]:
    """Names hold one by one: those that tags have anyhow need no successor, and no others have one."""
    kept = tuple(outbound for outbound in outbounds if not hostnames.is_so_anyhow(outbound))
    if dropped := tuple(outbound for outbound in outbounds if hostnames.is_so_anyhow(outbound)):
        yield Translation(VIRTUAL_OUTBOUND, dropped)
    if kept:
        reason = f"{_OF_TAGS}: {few([outbound.name for outbound in kept])}"
        yield Translation(VIRTUAL_OUTBOUND, kept, notes=tuple(hostnames.notes(kept)), reason=reason)


def _translation(facts: MeshFacts, kind: Kind, policies: tuple[Resource, ...]) -> Translation:
    if reason := _untranslatable(facts, kind, policies):
        hints = inbounds.notes_of_limits(facts, policies) if kind.name == "RateLimit" else ()
        return Translation(kind.name, policies, notes=tuple(hints), reason=reason)
    try:
        drafts, notes = _drafts(facts, kind, policies)
    except TooManyPolicies:
        return Translation(kind.name, policies, reason=_TOO_MANY)
    kinds = list(dict.fromkeys(draft.kind for draft in drafts))
    documents = [
        document
        for of_kind in kinds
        for document in named(facts.mesh, [draft for draft in drafts if draft.kind == of_kind], facts.taken)
    ]
    origins = {document.key: origin for document, origin in documents}
    if occupied := origins.keys() & facts.taken:
        named_so = ", ".join(sorted(key.name for key in occupied))
        return Translation(kind.name, policies, reason=f"their new names are those of other policies: {named_so}")
    lost = tuple(_lost(facts, kind, policies))
    new = tuple(document for document, _ in documents)
    return Translation(kind.name, policies, new, origins, (*lost, *notes), lost=lost)


def _lost(facts: MeshFacts, kind: Kind, policies: Sequence[Resource]) -> Iterator[str]:
    """Selectors for any value of tags that nobody carries now: a MeshSubset names a value, and there is none."""
    if kind.legacy is None:
        return
    field_name = _CHOOSING[kind.legacy.side]
    for policy in policies:
        for selector in selectors_of(policy.data, field_name):
            if (names := open_names(selector)) and not any(tags_of(selector, facts.carried)):
                tags = ", ".join(f"`{name}`" for name in names)
                reason = f"no Dataplane carries {tags}, and a MeshSubset is for a value"
                yield f"{kind.name} {policy.name}: nothing takes the place of {field_name} with any {tags}: {reason}"


def _untranslatable(facts: MeshFacts, kind: Kind, policies: Sequence[Resource]) -> str:
    if kind.name == "RateLimit":
        return _reason_of_limits(facts, policies)
    return ""


def _reason_of_limits(facts: MeshFacts, policies: Sequence[Resource]) -> str:
    if of_some := [policy.name for policy in policies if () not in inbounds.clients_of(policy)]:
        names = ", ".join(of_some)
        by_name = "`rules` know clients by what they show over TLS, and a RateLimit by the tags that they tell"
        return f"`from` of a MeshRateLimit is for all clients alone, and {names} is for some; {by_name}"
    if of_calls := [policy.name for policy in policies if is_for_service_outside(facts.world, policy)]:
        return f"no MeshRateLimit is for those who call an ExternalService, and {', '.join(of_calls)} is"
    return ""


def _drafts(facts: MeshFacts, kind: Kind, policies: Sequence[Resource]) -> tuple[list[PolicyDraft], list[str]]:
    match kind.name:
        case "TrafficPermission":
            return inbounds.permissions(facts, policies), []
        case "RateLimit":
            return inbounds.limits(facts, policies), []
        case "FaultInjection":
            return inbounds.faults(facts, policies), []
        case "MeshGatewayRoute":
            return gateway_routes.drafts(facts, policies), []
    if kind.legacy is not None and kind.legacy.side is LegacySide.PROXY:
        return [draft for to in _kinds_of(facts, policies) for draft in inbounds.of_proxies(facts, to, policies)], []
    choices = outbound_choices(policies, facts.carried)
    drafts: list[PolicyDraft] = []
    for to in outbounds.kinds_of(facts, choices):
        write = routes.drafts if to in ROUTE_KINDS else outbounds.drafts
        drafts += write(facts, to, choices)
    return drafts, list(routes.notes(choices)) if kind.name == "TrafficRoute" else []


def _kinds_of(facts: MeshFacts, policies: Sequence[Resource]) -> list[str]:
    confs = (conf for policy in policies for conf in outbounds.confs_of(facts, policy, "*"))
    return list(dict.fromkeys(conf.kind for conf in confs))


def valid_or_kept(facts: MeshFacts, translation: Translation) -> Translation:
    """The translation, unless a document in it is not valid: then the legacy policies stay."""
    for document in translation.documents:
        findings = parse_written(document, facts.world.kinds).findings()
        faults = [finding for finding in findings if finding.severity is Severity.ERROR]
        if faults:
            reason = f"what would take their place is not valid: {faults[0]}"
            kept_notes = tuple(note for note in translation.notes if note not in translation.lost)
            return Translation(translation.kind, translation.policies, notes=kept_notes, reason=reason)
    return translation
