"""Legacy policies that hold nowhere, with the reason."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Final

from cp.insight.legacy import (
    MTLS_OFF,
    NOT_CALLED,
    OUTRANKED,
    OVERRIDDEN,
    SILENT,
    UNFITTING,
    UNREACHED,
    LegacyPlace,
    LegacyPlaces,
    gateway_route_places,
)
from cp.insight.lint.codes import FindingReason, finding_about
from cp.insight.lint.survey import MeshSurvey
from cp.model.memo import ByIdentity
from cp.model.paths import entry
from cp.model.violation import Finding
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.kinds import LegacySide
from cp.resources.resource import Resource
from cp.rules.legacy import LegacyMatch, legacy_matches, side_of
from cp.rules.legacy.gateway_routes import GATEWAY_ROUTE
from cp.rules.legacy.limits import RATE_LIMIT, is_for_service_outside
from cp.rules.legacy.selectors import ANY, selectors_of
from cp.rules.legacy.withheld import PERMISSION, decides, withholds
from cp.translate.proxy_class import ProxyClass

_NOWHERE: Final = "holds nowhere"
_CODES: Final = {
    OUTRANKED: "overridden",
    OVERRIDDEN: "overridden",
    NOT_CALLED: "not-called",
    MTLS_OFF: "mtls-off",
    SILENT: "no-effect",
    UNFITTING: "no-meaning",
    UNREACHED: "unreachable-route",
}
_HINTS: Final = {
    "overridden": "remove it",
    "not-called": "compare its `destinations` with the tags of outbounds",
    "mtls-off": "turn mTLS on, or remove it",
    "no-effect": "remove it",
    "no-meaning": "write one for the other protocol, or select other listeners by their tags",
    "unreachable-route": "compare its `hostnames` with those of the listeners and of other routes, or remove it",
}
_CHOOSE: Final = {
    LegacySide.OUTBOUND: ("sources", "selects-no-proxy"),
    LegacySide.INBOUND: ("destinations", "selects-no-inbound"),
    LegacySide.PROXY: ("selectors", "selects-no-proxy"),
}
_NAME_VALUES: Final = "name the values that it may have, each in a source of its own; or leave the tag out"
_FEW: Final = 3


def idle(survey: MeshSurvey) -> Iterator[Finding]:
    """Legacy policies that hold for no service, no inbound and no proxy."""
    failed = {key.mesh for key, failures in survey.failures.items() if failures}
    places = _places(survey, failed)
    for policy in survey.world:
        if not _is_legacy(policy) or policy.mesh not in survey.meshes - failed:
            continue
        of_policy = places.get(policy, [])
        if not any(place.holds for place in of_policy) and not _is_for_service_outside(survey, policy):
            yield finding_about(policy, _why(survey, policy, of_policy))


def unasked(survey: MeshSurvey) -> Iterator[Finding]:
    """Tags of clients with any value: it looks as if a client needed the tag, and it does not (record 0073)."""
    for policy in survey.world:
        if policy.kind.legacy is None or side_of(policy) is not LegacySide.INBOUND or policy.mesh not in survey.meshes:
            continue
        for index, selector in enumerate(selectors_of(policy.data, "sources")):
            for tag in (tag for tag, value in selector.items() if value == ANY and tag != SERVICE_TAG):
                text = f"`{tag}: *` asks nothing of the clients of an inbound: it is for those without the tag, too"
                path = f"sources[{index}].match{entry(tag)}"
                yield finding_about(policy, FindingReason("does-not-apply", text, path, _NAME_VALUES))


def _places(survey: MeshSurvey, failed: Container[str]) -> dict[Resource, list[LegacyPlace]]:
    """What each policy is for, on all proxies but those of some meshes; on those of a class the same is told once."""
    places_of: dict[Resource, list[LegacyPlace]] = {}
    places = LegacyPlaces(survey.policies, survey.world)
    seen: set[tuple[ByIdentity[ProxyClass], ByIdentity[tuple[LegacyMatch, ...]]]] = set()
    for proxy in (proxy for proxy in survey.proxies if proxy.dataplane.mesh not in failed):
        of_class = (ByIdentity(proxy.proxy_class), ByIdentity(legacy_matches(survey.world, proxy.dataplane)))
        for place in () if of_class in seen else places.of_calls(proxy):
            places_of.setdefault(place.policy, []).append(place)
        of_gateway = () if of_class in seen else gateway_route_places(survey.world, proxy)
        for place in (*places.of_itself(proxy), *of_gateway):
            places_of.setdefault(place.policy, []).append(place)
        seen.add(of_class)
    return places_of


def _is_legacy(policy: Resource) -> bool:
    return policy.kind.legacy is not None or policy.type == GATEWAY_ROUTE


def _is_for_service_outside(survey: MeshSurvey, policy: Resource) -> bool:
    """Whether it says who may call an ExternalService, or how often."""
    if policy.type == RATE_LIMIT:
        return is_for_service_outside(survey.world, policy)
    if policy.type != PERMISSION or not withholds(survey.world, policy.mesh):
        return False
    return decides(survey.world, policy)


def _why(survey: MeshSurvey, policy: Resource, places: list[LegacyPlace]) -> FindingReason:
    if not places:
        return _selects_nothing(survey, policy)
    places = [place for place in places if place.fault != NOT_CALLED] or places
    codes = {_CODES[place.fault] for place in places}
    code = codes.pop() if len(codes) == 1 else "no-effect"
    reasons = list(dict.fromkeys(_reason(place) for place in places))
    more = f"; and {len(reasons) - _FEW} more" if len(reasons) > _FEW else ""
    return FindingReason(code, f"{_NOWHERE}: {'; '.join(reasons[:_FEW])}{more}", "", _HINTS[code])


def _reason(place: LegacyPlace) -> str:
    if place.fault == NOT_CALLED:
        return "no proxy that it selects calls a service by tag that it is for"
    return f"{place.where}: {place.reason}" if place.fault != MTLS_OFF else place.reason


def _selects_nothing(survey: MeshSurvey, policy: Resource) -> FindingReason:
    if policy.type == GATEWAY_ROUTE:
        text = f"{_NOWHERE}: its `selectors` choose no listener that is served"
        hint = "compare them with the tags of Dataplanes, of MeshGateways and of their listeners"
        return FindingReason("selects-no-proxy", text, "selectors", hint)
    field, code = _CHOOSE[side_of(policy)]
    total = survey.proxy_counts[policy.mesh]
    whom = "no inbound of the" if field == "destinations" else "none of the"
    text = f"{_NOWHERE}: its `{field}` choose {whom} {total} proxies of the mesh"
    return FindingReason(code, text, field, "compare them with the tags of Dataplanes")
