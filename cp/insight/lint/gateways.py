"""Builtin gateways: listeners that nobody can reach or that lead nowhere, routes that nobody takes, certificates.

What is said of a listener is said at its place in the MeshGateway. All proxies of a MeshGateway have the same
listeners, so one of them is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from cp.identity.authority import expiry_of
from cp.identity.certificates import names_of_server
from cp.insight.lint.addresses import inbound_addresses, shown_address
from cp.insight.lint.codes import FindingReason, finding_about
from cp.insight.lint.gateway_routes import (
    fitting_listeners,
    hostnames_not_taken,
    is_for_gateways,
    selected_listeners,
)
from cp.insight.lint.survey import MeshSurvey, items_of
from cp.model.hosts import ANY_HOST
from cp.model.paths import step
from cp.model.violation import Finding
from cp.resources.addresses import Address, address_of, admin_address
from cp.resources.resource import Resource
from cp.resources.targets import GATEWAY, HTTP_ROUTE, TCP_ROUTE
from cp.resources.world import World
from cp.rules.matching import match, top_of
from cp.rules.matching.profile import gateway_of, gateways_alike
from cp.translate.view.gateways import ServedListener, ServedPort, served_gateway

_LONG: Final = 30 * 86_400.0
_PART: Final = 0.2
"""Of the life of a certificate: one that is made for less than half a year is not told of from its first day."""

_CROSS_MESH: Final = "crossMesh"
PREFER_GATEWAY: Final = "prefer-gateway"
_BY_TAGS: Final = frozenset({"MeshSubset", "MeshService", "MeshServiceSubset"})


def listeners(survey: MeshSurvey) -> Iterator[Finding]:
    """Listeners that are not served, with the reason, and certificates that clients will not believe."""
    for gateway in survey.world.of_type(GATEWAY):
        yield from _not_served(survey.world, gateway)
        for port in served_gateway(survey.world, gateway).ports:
            for listener in port.listeners:
                yield from _certificates(gateway, listener, survey.now)


def unreachable(survey: MeshSurvey) -> Iterator[Finding]:
    """MeshGateways without a proxy, proxies without a MeshGateway, and those that several fit alike."""
    selecting: set[Resource] = set()
    for proxy in survey.proxies:
        if proxy.dataplane.spec.is_builtin_gateway:
            alike = gateways_alike(survey.world, proxy.dataplane)
            selecting |= set(alike)
            yield from _of_proxy(proxy.dataplane, alike)
    for gateway in survey.world.of_type(GATEWAY):
        if gateway not in selecting and gateway.mesh in survey.meshes:
            text = "configures no Dataplane, so nobody can reach its listeners"
            hint = "compare `selectors` with the tags under `networking.gateway` of Dataplanes of the type BUILTIN"
            yield finding_about(gateway, FindingReason("gateway-without-proxy", text, "selectors", hint))


def of_gateway(world: World, dataplane: Resource) -> Iterator[Finding]:
    """Why a builtin gateway listens at no port, or not for every listener of its MeshGateway."""
    if not dataplane.spec.is_builtin_gateway:
        return
    alike = gateways_alike(world, dataplane)
    yield from _of_proxy(dataplane, alike)
    for gateway in alike[:1]:
        yield from (finding for finding in world.findings_of(gateway.key) if finding.code == "not-enforced")
        yield from _not_served(world, gateway)


def without_routes(survey: MeshSurvey) -> Iterator[Finding]:
    """Listeners to which no route belongs."""
    for gateway, result in survey.gateways.items():
        by_listener = result.hosts_by_listener()
        for port in result.served.ports:
            for listener in port.listeners:
                hosts = by_listener.get(listener.index, ())
                if not any(host.route_rules or host.fragment.is_over_limit for host in hosts):
                    yield finding_about(gateway, _no_routes(port, listener))


def hostnames(survey: MeshSurvey) -> Iterator[Finding]:
    """Hostnames of routes that no listener takes, of items that have others too."""
    for policy in survey.world:
        fitting = fitting_listeners(policy, selected_listeners(survey, policy)) if is_for_gateways(policy) else []
        for item in items_of(policy) if fitting else ():
            lost = list(hostnames_not_taken(item, fitting))
            if len(lost) < len(item.layer.conf.get("hostnames") or ()) or policy not in survey.judged_set:
                yield from (finding_about(policy, reason) for reason in lost)


def preferred(survey: MeshSurvey) -> Iterator[Finding]:
    """Policies that select builtin gateways by tags, and not by their MeshGateway."""
    for policy, gateway in _first_gateways(survey).items():
        targets, kind = survey.policies[policy.type].targets, top_of(policy).kind
        if kind in _BY_TAGS and GATEWAY in (*targets.top, *targets.top_system):
            yield finding_about(policy, _prefer_gateway(survey, policy, kind, gateway))


def ports(survey: MeshSurvey) -> Iterator[Finding]:
    """Ports of gateways that an inbound or another gateway of the mesh has at the same address, or their own Envoy."""
    owners = {
        (proxy.dataplane.mesh, address): proxy.dataplane
        for proxy in survey.proxies
        for _, address in inbound_addresses(proxy.dataplane)
    }
    for proxy in survey.proxies:
        result, dataplane = proxy.proxy_class.gateway, proxy.dataplane
        for port in () if result is None else result.served.ports:
            address = address_of(dataplane.spec.net.address or "", port.port)
            owner = owners.setdefault((dataplane.mesh, address), dataplane)
            if owner is not dataplane:
                yield finding_about(dataplane, _of_two(owner, address))
            if address == admin_address(dataplane):
                yield finding_about(dataplane, _of_admin(address))


def _not_served(world: World, gateway: Resource) -> Iterator[Finding]:
    for fault in served_gateway(world, gateway).faults:
        if not fault.path.endswith(_CROSS_MESH):  # that is told as not enforced
            text = f"this listener is not served: {fault.message}"
            yield finding_about(gateway, FindingReason("listener-not-served", text, fault.path, fault.hint))


def _certificates(gateway: Resource, listener: ServedListener, now: float | None) -> Iterator[Finding]:
    for index, certificate in enumerate(listener.certificates):
        path = step(f"{step('conf.listeners', listener.index)}.tls.certificates", index)
        reasons = (
            _ending(certificate.certificate.text, now, path),
            _names(certificate.certificate.text, listener, path),
        )
        yield from (finding_about(gateway, reason) for reason in reasons if reason is not None)


def _ending(text: str, now: float | None, path: str) -> FindingReason | None:
    life = expiry_of(text)
    if life is None or now is None:
        return None
    begins, ends = life
    hint = "put a new certificate and its key in the place of this one: connections are not closed for it"
    if now >= ends:
        return FindingReason("certificate-ended", "this certificate has expired, and clients refuse it", path, hint)
    if now < ends - min(_LONG, (ends - begins) * _PART):
        return None
    days = int((ends - now) // 86_400)
    return FindingReason("certificate-ends", f"this certificate ends in {days} days", path, hint)


def _names(text: str, listener: ServedListener, path: str) -> FindingReason | None:
    names = names_of_server(text)
    if not names or listener.hostname == ANY_HOST or any(_is_for(name, listener.hostname) for name in names):
        return None
    shown = f"{', '.join(names[:3])}{' and others' if len(names) > 3 else ''}"  # noqa: PLR2004  # so many are enough
    reason = f"this certificate is for {shown}, and not for {listener.hostname}: clients refuse it"
    return FindingReason("certificate-for-others", reason, path, f"give one that is for {listener.hostname}")


def _is_for(name: str, hostname: str) -> bool:
    """Whether clients take a certificate's name for a hostname: a `*` stands for one part (RFC 6125, section 6.4.3)."""
    name = name.lower()
    return name == hostname or (name.startswith("*.") and hostname.partition(".")[2] == name[2:])


def _of_proxy(dataplane: Resource, alike: tuple[Resource, ...]) -> Iterator[Finding]:
    path = "networking.gateway"
    if not alike:
        text = "is a builtin gateway, and no MeshGateway selects it: it listens at no port"
        hint = "compare its `tags` with the `selectors` of the MeshGateways"
        yield finding_about(dataplane, FindingReason("proxy-without-gateway", text, path, hint))
    elif len(alike) > 1:
        listed = ", ".join(gateway.name for gateway in alike)
        text = f"the MeshGateways {listed} select it alike, and {alike[0].name} configures it"
        hint = "give the selector of the one that is meant another tag, or remove the others"
        yield finding_about(dataplane, FindingReason("gateways-alike", text, path, hint))


def _of_two(owner: Resource, address: Address) -> FindingReason:
    text = f"Dataplane {owner.name} has {shown_address(address)} too: calls for either reach either"
    hint = "remove the Dataplane that is gone, or correct its address"
    if not owner.spec.is_builtin_gateway:
        hint = f"{hint}; on one machine, give the listener or the inbound another port"
    return FindingReason("address-shared", text, "networking.gateway", hint)


def _of_admin(address: Address) -> FindingReason:
    text = f"its Envoy has {shown_address(address)} for itself, and does not open the listener of the MeshGateway there"
    return FindingReason("address-taken", text, "networking.admin.port", "give one of the two another port")


def _no_routes(port: ServedPort, listener: ServedListener) -> FindingReason:
    effect = "every request is answered with 404" if port.is_http else "every connection is closed"
    kind = HTTP_ROUTE if port.is_http else TCP_ROUTE
    hint = f"write a {kind} with this MeshGateway as its `targetRef`, and compare its `tags` and `hostnames`"
    return FindingReason("no-routes", f"has no route: {effect}", step("conf.listeners", listener.index), hint)


def _prefer_gateway(survey: MeshSurvey, policy: Resource, kind: str, gateway: Resource) -> FindingReason:
    """The advice for a policy by tags. It stands for that to select Dataplanes, which would lose the gateway."""
    text = f"selects proxies of MeshGateway {gateway.name} by a {kind}, which is deprecated and knows no listeners"
    hint = f"write `kind: MeshGateway` with `name: {gateway.display_name}`, and `tags` for some listeners"
    if _selects_others(survey, policy):
        remaining = "`kind: Dataplane` with `labels` for the other proxies that it selects"
        hint = f"{hint}; and, in a policy of its own, {remaining}"
    return FindingReason(PREFER_GATEWAY, text, "spec.targetRef", hint)


def _selects_others(survey: MeshSurvey, policy: Resource) -> bool:
    """Whether a policy selects proxies that are no builtin gateways."""
    return any(
        matched.policy is policy
        for proxy in survey.proxies
        if not proxy.dataplane.spec.is_builtin_gateway
        for matched in match(survey.world, proxy.dataplane).get(policy.type, ())
    )


def _first_gateways(survey: MeshSurvey) -> Mapping[Resource, Resource]:
    """The policies that select a builtin gateway, each with the first MeshGateway of which it selects a proxy."""
    gateways: dict[Resource, Resource] = {}
    for proxy in survey.proxies:
        gateway = gateway_of(survey.world, proxy.dataplane)
        if gateway is not None:
            of_kinds = match(survey.world, proxy.dataplane).values()
            gateways |= {
                matched.policy: gateway for of_kind in of_kinds for matched in of_kind if matched.policy not in gateways
            }
    return gateways
