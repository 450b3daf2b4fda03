"""What mTLS, or that there is none, means for a mesh: who may call, and whose calls cannot be understood."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from cp.identity.identities import identity_of
from cp.identity.security import security_of
from cp.insight.enforcement import parts_without_mtls
from cp.insight.lint.codes import NO_EFFECT, FindingReason, finding_about
from cp.insight.lint.survey import MeshSurvey
from cp.insight.lint.walk import ProxyInbound
from cp.insight.lint.wording import destination_name, origin_name
from cp.insight.permissions import Permission, permissions_at
from cp.model.memo import ByIdentity
from cp.model.names import Destination, Key
from cp.model.paths import step
from cp.model.violation import Finding
from cp.policies import Policy, Verdict
from cp.resources.client import is_grpc_client
from cp.resources.resource import Resource
from cp.resources.tls import CIPHERS, ENVOY_VERSIONS
from cp.resources.world import World
from cp.rules.build import PolicyRules
from cp.rules.legacy import LegacyRules, legacy_confs
from cp.rules.merging import Origin
from cp.translate.compiler import CompiledProxy
from cp.translate.effective import has_hook
from cp.translate.view.mtls import domains_of, has_certificate
from cp.translate.view.services import ports_behind
from generators.proxy import Backend, MeshTls

_Place: TypeAlias = tuple[Key, str]
"""A policy, and a path in it."""

_JudgedBy: TypeAlias = tuple[str, ByIdentity[PolicyRules | None], LegacyRules, int]
"""A kind of permissions, what they and legacy ones come to for a proxy, and one of its inbounds."""

_NEWEST_OLD: Final = frozenset({ENVOY_VERSIONS["TLS10"], ENVOY_VERSIONS["TLS11"]})
"""Versions of TLS that have none of the ciphers that callers speak."""

_NEWEST_WITH_CIPHERS: Final = ENVOY_VERSIONS["TLS12"]
"""The newest version of which ciphers can be chosen."""

_ALGORITHMS: Final = {"EC": "ECDSA", "RSA2048": "RSA"}


@dataclass(slots=True)
class _Occurrence:
    """Where one thing that a permission says holds."""

    permission: Permission
    denied_by: dict[Origin, Permission] = field(default_factory=dict)
    """Who denies all clients that it allows, inbound by inbound."""

    is_void: bool = True
    """Whether it changes nothing at any inbound."""


def off(survey: MeshSurvey) -> Iterator[Finding]:
    """Policies that need mTLS, in meshes that have none; of the judged ones the rule `idle` tells it."""
    for policy in survey.world:
        if policy.kind.policy is not None and policy not in survey.judged_set:
            for part in parts_without_mtls(survey.world, policy):
                text = f"{NO_EFFECT}: {part.sentence}"
                yield finding_about(policy, FindingReason("mtls-off", text, part.path or policy.kind.root, part.hint))


def nobody(survey: MeshSurvey) -> Iterator[Finding]:
    """Inbounds that nobody may call: those with the same permissions together."""
    groups: dict[tuple[str, frozenset[Key]], list[ProxyInbound]] = {}
    closed: dict[tuple[Permission, ...], bool] = {}
    for inbound, permissions in judged_inbounds(survey):
        if permissions not in closed:
            domains = trust_domains(survey, inbound)
            allowing = _allowing(permissions)
            closed[permissions] = all(denier_of(permission, permissions, domains) for permission in allowing)
        if closed[permissions]:
            policies = frozenset(permission.origin.policy for permission in permissions)
            groups.setdefault((inbound.dataplane.mesh, policies), []).append(inbound)
    for (name, policies), inbounds in groups.items():
        mesh = survey.world.mesh(name)
        is_without = not policies and not has_permissions(survey.world, name, judging(survey))
        if mesh is not None and is_without:
            yield finding_about(mesh, _nobody(inbounds, _authority_path(mesh)))
        else:
            yield finding_about(inbounds[0].dataplane, _nobody(inbounds, _path(inbounds[0])))


def has_permissions(world: World, mesh: str, kinds: Iterable[str]) -> bool:
    """Whether there is any permission in a mesh, of kinds that judge every client."""
    kinds = tuple(kinds)
    has_legacy = any(not confs.keys().isdisjoint(kinds) for _, confs in legacy_confs(world, mesh))
    return has_legacy or any(len(world.table(kind, mesh)) for kind in kinds)


def _nobody(inbounds: Sequence[ProxyInbound], path: str) -> FindingReason:
    where = _listed_inbounds(inbounds)
    over_tls = " over TLS" if all(inbound.reached.inbound.is_permissive for inbound in inbounds) else ""
    text = f"nobody may call {where}{over_tls}: with mTLS one has to be allowed, and no permission lets in anybody"
    return FindingReason("nobody-may-call", text, path, "write a MeshTrafficPermission that allows those who should")


def void(survey: MeshSurvey) -> Iterator[Finding]:
    """What permissions say and what changes nothing, as others deny the same clients or nobody is allowed anyway."""
    occurrences: dict[tuple[_Place, Verdict], _Occurrence] = {}
    distinct = {permissions: inbound for inbound, permissions in judged_inbounds(survey)}
    for permissions, inbound in distinct.items():
        domains = trust_domains(survey, inbound)
        allows = any(True for _ in _allowing(permissions))
        for permission in permissions:
            place = (permission.origin.policy, permission.path)
            occurrence = occurrences.setdefault((place, permission.verdict), _Occurrence(permission))
            if permission.verdict is Verdict.DENY:
                occurrence.is_void &= not allows
            elif denied_by := denier_of(permission, permissions, domains):
                occurrence.denied_by.setdefault(denied_by.origin, denied_by)
            else:
                occurrence.is_void = False
    for (_, verdict), occurrence in occurrences.items():
        policy = survey.world.get(occurrence.permission.origin.policy)
        if policy is not None and occurrence.is_void and verdict is not Verdict.SHADOW_DENY:
            yield finding_about(policy, _void(occurrence))


def _void(occurrence: _Occurrence) -> FindingReason:
    permission = occurrence.permission
    if permission.verdict is Verdict.DENY:
        text = "denies nobody who would be let in: at the inbounds that it is for no permission allows anybody"
        return FindingReason("redundant", text, permission.path, "remove it, or leave it as a reminder")
    by = ", ".join(origin_name(origin, denied_by.line) for origin, denied_by in occurrence.denied_by.items())
    text = f"lets nobody in: whom it allows is denied by {by}"
    return FindingReason("permission-void", text, permission.path, "remove it, or deny fewer clients there")


def in_plain_text(survey: MeshSurvey) -> Iterator[Finding]:
    """Meshes with permissions, and with inbounds that also take calls of which nobody knows who makes them."""
    by_mesh: dict[str, list[ProxyInbound]] = {}
    for inbound, permissions in judged_inbounds(survey):
        if permissions and inbound.reached.inbound.is_permissive:
            by_mesh.setdefault(inbound.dataplane.mesh, []).append(inbound)
    for name, inbounds in by_mesh.items():
        mesh = survey.world.mesh(name)
        if mesh is not None:
            text = f"whoever speaks plain text is asked for no permission at {_listed_inbounds(inbounds)}"
            hint = "ask for TLS (STRICT) once all callers speak it"
            yield finding_about(mesh, FindingReason("plain-text-unjudged", text, _authority_path(mesh), hint))


def refused(survey: MeshSurvey) -> Iterator[Finding]:
    """Callers that speak plain text with those who take TLS alone."""
    strict = {
        (inbound.dataplane.key, inbound.index)
        for inbound in _inbounds(survey)
        if inbound.takes_tls and not inbound.reached.inbound.is_permissive
    }
    by_class: dict[int, list[CompiledProxy]] = {}
    for proxy in survey.proxies if strict else ():
        by_class.setdefault(id(proxy.proxy_class), []).append(proxy)
    for of_class in by_class.values():
        proxies = [proxy for proxy in of_class if _is_sure(survey, proxy)]
        for destination in _in_plain_text(proxies[0]) if proxies else ():
            ports = ports_behind(survey.world, proxies[0].dataplane.mesh, destination)
            refusing = [port for port in ports if (port.dataplane.key, port.index) in strict]
            if refusing:
                yield finding_about(
                    proxies[0].dataplane, _refused(survey, proxies, destination, (len(refusing), len(ports)))
                )


def _is_sure(survey: MeshSurvey, proxy: CompiledProxy) -> bool:
    """Whether it is known how a proxy calls.

    Files alone say neither whether the callers of a mesh speak TLS already, nor whether a gRPC client finds
    certificates.
    """
    dataplane = proxy.dataplane
    security = security_of(survey.world, dataplane.mesh)
    may_not_yet = security is not None and not security.callers_use_tls and not security.bundles
    if not is_grpc_client(dataplane):
        return not may_not_yet
    if identity_of(survey.world, dataplane) is None or survey.clients.get(dataplane.key) is False:
        return True
    return dataplane.key in survey.clients and not may_not_yet


def _in_plain_text(proxy: CompiledProxy) -> Iterator[Destination]:
    """What a proxy calls inside the mesh without TLS."""
    is_grpc = proxy.proxy_class.caller.is_grpc
    called = {
        destination
        for result in proxy.proxy_class.outbounds.values()
        if result.outbound.names or not is_grpc
        for destination in (result.address.destination, *result.uses)
    }
    for backend in proxy.proxy_class.backends.values():
        site = backend.tasks[0].site
        if isinstance(site, Backend) and site.mesh_tls is None and not site.external and backend.destination in called:
            yield backend.destination


def _refused(
    survey: MeshSurvey, proxies: Sequence[CompiledProxy], destination: Destination, share: tuple[int, int]
) -> FindingReason:
    dataplane, (refusing, called) = proxies[0].dataplane, share
    inbounds = "all inbounds" if refusing == called else f"{refusing} of the {called} inbounds"
    and_more = f" (and {len(proxies) - 1} more that call the same)" if len(proxies) > 1 else ""
    why, hint = _why_in_plain_text(survey, dataplane)
    calls = "calls" if refusing == called else "some calls"
    text = f"{calls} to {destination_name(destination)} fail{and_more}: {why}, and {inbounds} of it take TLS alone"
    return FindingReason("plain-text-refused", text, "networking", hint)


def _why_in_plain_text(survey: MeshSurvey, dataplane: Resource) -> tuple[str, str]:
    permissive = "let those that are called take plain text too (Permissive)"
    if is_grpc_client(dataplane) and identity_of(survey.world, dataplane) is None:
        name = "a tag kuma.io/service under `networking.gateway`, or a MeshIdentity"
        return (
            "the gRPC client has no name to be certified, so it speaks plain text",
            f"{permissive}, or give it {name}",
        )
    if survey.clients.get(dataplane.key) is False:
        text = "the bootstrap of the gRPC client names no certificates, so it speaks plain text"
        return text, f"{permissive}, or give it certificates (koguma dp certificates)"
    if not has_certificate(survey.world, dataplane):
        return "the proxy has no certificate, so it speaks plain text", f"{permissive}, or give it an identity"
    security = security_of(survey.world, dataplane.mesh)
    if security is not None and not security.callers_use_tls:
        return "the callers of the mesh do not speak TLS yet", f"{permissive} until they do"
    return "not all who are called have certificates, so it speaks plain text", f"{permissive}, or certify all"


def ciphers(survey: MeshSurvey) -> Iterator[Finding]:
    """Versions and ciphers with which no call over TLS can be made."""
    seen: set[_Place] = set()
    for inbound in _inbounds(survey):
        tls, identity = inbound.reached.inbound.tls, identity_of(survey.world, inbound.dataplane)
        if tls is None or identity is None or (reason := _no_cipher(tls, _ALGORITHMS[identity.key])) is None:
            continue
        name, text = reason
        for policy, path in _written(survey, inbound, name):
            if (policy.key, path) not in seen:
                seen.add((policy.key, path))
                hint = "leave it out, and the best that both sides speak is taken"
                yield finding_about(policy, FindingReason("no-common-cipher", text, path, hint))


def _no_cipher(tls: MeshTls, algorithm: str) -> tuple[str, str] | None:
    """The field that leaves no cipher, and why; None if there is one."""
    if tls.newest in _NEWEST_OLD:
        return "tlsVersion.max", "no call over TLS can be made: callers speak ciphers of TLS 1.2 and newer alone"
    of_algorithm = {cipher for cipher in CIPHERS if f"-{algorithm}-" in cipher}
    if tls.newest != _NEWEST_WITH_CIPHERS or not tls.ciphers or of_algorithm.intersection(tls.ciphers):
        return None
    text = f"no call over TLS can be made: up to TLS 1.2, certificates with a key for {algorithm} need a cipher with it"
    return "tlsCiphers", text


def _written(survey: MeshSurvey, inbound: ProxyInbound, name: str) -> Iterator[tuple[Resource, str]]:
    """Who decides how callers speak with an inbound, and where a field of it is written."""
    for kind, conf in inbound.reached.effective.items():
        if has_hook(survey.policies[kind], "secure"):
            written, path = conf.written(name)
            policy = survey.world.get(written.winner.origin.policy)
            if policy is not None:
                yield policy, path


def _inbounds(survey: MeshSurvey) -> Iterator[ProxyInbound]:
    return (inbound for proxy in survey.proxies for inbound in survey.inbounds_of(proxy))


def judged_inbounds(survey: MeshSurvey) -> Iterator[tuple[ProxyInbound, tuple[Permission, ...]]]:
    """Each inbound that takes TLS, with what permissions say of those who call it."""
    remembered: dict[_JudgedBy, tuple[Permission, ...]] = {}
    for inbound in _inbounds(survey):
        if inbound.takes_tls and not inbound.has_failed:
            for kind in judging(survey):
                rules = inbound.rules.get(kind)
                key = (kind, ByIdentity(rules), inbound.rules.legacy, inbound.index)
                if key not in remembered:
                    legacy, mesh = inbound.reached.legacy.get(kind, ()), inbound.dataplane.mesh
                    remembered[key] = permissions_at(survey.policies[kind], rules, inbound.index, mesh, legacy)
                yield inbound, remembered[key]


def judging(survey: MeshSurvey) -> Sequence[str]:
    return judging_kinds(survey.policies)


def judging_kinds(policies: Mapping[str, Policy[Any]]) -> Sequence[str]:
    return [kind for kind, policy in policies.items() if policy.judges_every_client]


def trust_domains(survey: MeshSurvey, inbound: ProxyInbound) -> tuple[str, ...]:
    security = security_of(survey.world, inbound.dataplane.mesh)
    return () if security is None else domains_of(security, inbound.dataplane.mesh)


def _allowing(permissions: Sequence[Permission]) -> Iterator[Permission]:
    return (permission for permission in permissions if permission.verdict is Verdict.ALLOW)


def denier_of(permission: Permission, permissions: Sequence[Permission], domains: tuple[str, ...]) -> Permission | None:
    """Who surely denies all clients that a permission is for."""
    denying = (other for other in permissions if other.verdict is Verdict.DENY)
    return next((other for other in denying if other.covers(permission, domains)), None)


def _path(inbound: ProxyInbound) -> str:
    return step("networking.inbound", inbound.index)


def _listed_inbounds(inbounds: Sequence[ProxyInbound]) -> str:
    first = inbounds[0]
    name = f"{first.dataplane.name}:{first.reached.inbound.port}"
    return name if len(inbounds) == 1 else f"{name} and {len(inbounds) - 1} more inbounds"


def _authority_path(mesh: Resource) -> str:
    """Where a Mesh says who signs; nowhere if others do."""
    names: Mapping[str, object] = mesh.data.get("mtls") or {}
    return "mtls.enabledBackend" if names.get("enabledBackend") else ""
