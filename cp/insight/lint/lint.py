"""`lint`: asks every rule about a World, and orders the findings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from cp.insight.lint import (
    addresses,
    authorities,
    backends,
    blocked,
    clients,
    conditional,
    elsewhere,
    engines,
    external,
    failed,
    gateways,
    hidden,
    identities,
    idle,
    legacy,
    mtls,
    names,
    patches,
    protocols,
    proxies,
    references,
    routes,
    spiffe_ids,
    tagged,
    targets,
    unserved,
)
from cp.insight.lint.codes import CATALOGUE, NO_EFFECT, NO_EFFECT_OF_ITEM
from cp.insight.lint.survey import NO_CLIENTS, GrpcClients, MeshSurvey
from cp.model.checkpoint import Checkpoint, checked, never_stopped
from cp.model.failure import CODE, HINT, reason
from cp.model.violation import Finding, Severity
from cp.policies import Policies
from cp.resources.initial_policies import is_initial
from cp.resources.world import World

Rule: TypeAlias = Callable[[MeshSurvey], Iterator[Finding]]

RULES: Final[tuple[Rule, ...]] = (
    idle.idle,
    legacy.idle,
    legacy.unasked,
    failed.failed,
    failed.names,
    clients.too_many,
    targets.targets,
    backends.backends,
    backends.rewrites,
    references.references,
    routes.unreachable,
    routes.repeated,
    blocked.blocked,
    protocols.protocols,
    hidden.hidden,
    elsewhere.elsewhere,
    patches.patches,
    conditional.conditional,
    addresses.addresses,
    addresses.metrics,
    gateways.listeners,
    gateways.unreachable,
    gateways.without_routes,
    gateways.hostnames,
    gateways.preferred,
    gateways.ports,
    proxies.outbounds,
    proxies.services,
    external.services,
    engines.engines,
    external.uncalled,
    external.files,
    names.taken,
    authorities.authorities,
    authorities.trusted_beside,
    authorities.alike,
    identities.identities,
    identities.names,
    mtls.off,
    mtls.nobody,
    mtls.void,
    mtls.in_plain_text,
    mtls.refused,
    mtls.ciphers,
    tagged.unknown,
    tagged.denied_and_allowed,
    spiffe_ids.of_nobody,
    proxies.no_dataplanes,
)

_IDLE: Final = (NO_EFFECT, NO_EFFECT_OF_ITEM)
_OF_VALUES: Final = frozenset(
    {"backend-not-http", "hidden-by-route", "hostname-not-taken", "no-meaning", "routed-elsewhere", "unreachable-route"}
)
"""Findings about single values of an item."""

_ITEM: Final = re.compile(r"spec\.(to|from|rules)\[\d+\]")
_ORDER: Final = (Severity.ERROR, Severity.WARNING, Severity.INFO)


def lint(
    policies: Policies,
    world: World,
    checkpoint: Checkpoint = never_stopped,
    now: float | None = None,
    clients: GrpcClients = NO_CLIENTS,
) -> tuple[Finding, ...]:
    """Everything that is to be said of a World, the worst first, then by file and line."""
    survey = MeshSurvey(policies, world, checkpoint, now, clients)
    of_rules = (
        finding for rule in checked(RULES, checkpoint) for finding in checked(_judged(rule, survey), checkpoint)
    )
    findings = (*world.findings, *of_rules)
    findings = (*findings, *_judged(_unserved_beside(findings), survey))
    distinct = _advised_once(tuple(_once(findings)))
    return in_order(finding for finding in distinct if not _is_of_initial(world, finding))


def _unserved_beside(findings: Sequence[Finding]) -> Rule:
    """The last rule: it is about what all others tell nothing of."""

    def unserved_(survey: MeshSurvey) -> Iterator[Finding]:
        return unserved.unserved(survey, findings)

    return unserved_


def _once(findings: Sequence[Finding]) -> Iterator[Finding]:
    """The findings without those about single values of an item or policy that has no effect anyway."""
    without_effect = (finding for finding in findings if finding.message.startswith(_IDLE))
    idle = {(finding.resource, _part(finding)) for finding in without_effect}
    for finding in findings:
        parts = {(finding.resource, ""), (finding.resource, _item(finding))}
        if finding.code not in _OF_VALUES or finding.message.startswith(_IDLE) or idle.isdisjoint(parts):
            yield finding


def _advised_once(findings: Sequence[Finding]) -> Iterator[Finding]:
    """The findings without the advice to select Dataplanes, where that would lose the builtin gateways of a policy."""
    preferring = {finding.resource for finding in findings if finding.code == gateways.PREFER_GATEWAY}
    for finding in findings:
        is_of_target = (finding.code, finding.path) == ("deprecated", "spec.targetRef.kind")
        if not (is_of_target and finding.resource in preferring):
            yield finding


def _part(finding: Finding) -> str:
    """What a finding says to have no effect: an item, or all of a policy."""
    return "" if finding.message.startswith(NO_EFFECT) else _item(finding)


def _item(finding: Finding) -> str:
    item = _ITEM.match(finding.path)
    return "" if item is None else item[0]


def _is_of_initial(world: World, finding: Finding) -> bool:
    """Whether it is about a policy that a Mesh started with, and that nobody changed: nobody could write it better."""
    resource = None if finding.resource is None else world.get(finding.resource)
    return resource is not None and is_initial(resource.document)


def _judged(rule: Rule, survey: MeshSurvey) -> tuple[Finding, ...]:
    """The findings of a rule. A fault of ours in one rule is a finding too, and the other rules go on."""
    try:
        return tuple(rule(survey))
    except Exception as error:  # noqa: BLE001
        message = f"a fault of koguma in judging {rule.__name__}, of which nothing is told: {reason(error)}"
        return (Finding(CODE, CATALOGUE[CODE].severity, None, message, hint=HINT),)


def of_mesh(findings: Iterable[Finding], mesh: str) -> Iterator[Finding]:
    """Those about a mesh and what is in it; and about what is in no mesh, such as a file that cannot be read."""
    for finding in findings:
        key = finding.resource
        if key is None or (key.name if key.type == "Mesh" else key.mesh) in {"", mesh}:
            yield finding


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(dict.fromkeys(findings), key=_rank))


def _rank(finding: Finding) -> tuple[object, ...]:
    key = finding.resource
    named = ("", "", "") if key is None else (key.type, key.mesh, key.name)
    return (_ORDER.index(finding.severity), finding.file, finding.line, named, finding.path, finding.code)
