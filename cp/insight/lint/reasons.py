"""Why an item of a policy has no effect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cp.insight.lint.codes import FindingReason
from cp.insight.lint.sites import AnySpot, ClientSite, PartSite, PolicySite, RouteTableSite, UnitOf, item_of, policy_of
from cp.insight.lint.survey import MeshSurvey, parts
from cp.insight.lint.targets import called, missing
from cp.insight.lint.walk import PASSTHROUGH, BlockedItem
from cp.model.names import Destination, Identity
from cp.model.paths import step
from cp.resources.resource import Resource
from cp.rules import PolicyItem
from cp.rules.item_index import is_outdated, resolve
from cp.rules.items import reference
from cp.rules.matching import top_of
from cp.rules.merging import MergedField, Origin, Removal, Setting
from cp.rules.targets import ROUTES, TargetTables
from cp.translate.effective import BUILT_IN

_FEW: Final = 3


@dataclass(slots=True)
class _Rivals:
    """Who sets what an item sets: otherwise, or the same."""

    unit_of: UnitOf
    """Whether items of the same policy count as rivals."""

    other: dict[str, dict[str, None]] = field(default_factory=dict)
    """By whom what is overridden."""

    same: dict[str, dict[str, None]] = field(default_factory=dict)

    def add(self, whose: str, paths: Iterable[str], *, is_same: bool) -> None:
        (self.same if is_same else self.other).setdefault(whose, {}).update(dict.fromkeys(paths))


def reason(scene: MeshSurvey, item: PolicyItem, *, as_whole: bool) -> FindingReason:
    """Why: as a part of a policy that has no effect as a whole, or by itself."""
    spots = scene.spots_of.get(item, ())
    if spots:
        return _elsewhere(item, spots, as_whole=as_whole) or _outdone(item, spots, as_whole=as_whole)
    blocked = [one for one in scene.blocked if one.item is item]
    if blocked:
        return because_blocked(item, blocked)
    if _is_beyond_clients(scene, item.policy):
        text = "it selects gRPC clients without a proxy, and they do nothing of what it says"
        return FindingReason("does-not-apply", text, item.origin.path, "write it for those that have a proxy")
    if item.policy.type == PASSTHROUGH:
        return _nothing_redirected(scene, item)
    return _of_target(scene, item) if item.origin.part == "to" else _no_inbound(scene, item)


def _is_beyond_clients(scene: MeshSurvey, policy: Resource) -> bool:
    """Whether all that it selects are gRPC clients without a proxy, which cannot do what it asks."""
    only_clients = bool(scene.selected.get(policy)) and policy not in scene.of_envoys
    return only_clients and not scene.policies[policy.type].is_for_grpc_clients


def because_blocked(item: PolicyItem, blocked: Sequence[BlockedItem]) -> FindingReason:
    """A route that decides nothing for its destination."""
    path, service = step(item.origin.path, "targetRef"), called(blocked[0].destination)
    if blocked[0].by:
        by = _listed(said(one) for one in blocked[0].by)
        hint = "say the same in a MeshHTTPRoute, or remove one of them"
        return FindingReason(
            "shadowed-route", f"for {service} the MeshHTTPRoute counts, and not this one: {by}", path, hint
        )
    hint = "if it speaks HTTP, say so in its port's `appProtocol`; else write a MeshTCPRoute"
    return FindingReason(
        "no-meaning", f"a {item.policy.type} has no meaning for {service}, which speaks tcp", path, hint
    )


def said(origin: Origin, line: int | None = None) -> str:
    """A policy as operators know it, with the place of its item, or a line of it."""
    if origin.part == BUILT_IN:
        return "the built-in default"
    place = f" ({origin.file}:{origin.line if line is None else line})" if origin.file else ""
    return f"{origin.policy.type} {origin.policy.name}{place}"


def _elsewhere(item: PolicyItem, spots: Sequence[AnySpot], *, as_whole: bool) -> FindingReason | None:
    """Where it is about what is not served of a destination, because calls go to others or come by others."""
    unit_of = policy_of if as_whole else item_of
    unit = unit_of(item.origin)
    parts = [
        spot.parts
        for spot in spots
        if isinstance(spot, PartSite) and spot.is_about_the_other_part(lambda one: unit_of(one.origin) == unit)
    ]
    if not parts:
        return None
    others = [spot for spot in spots if not isinstance(spot, PartSite)]
    rest = f"; for others {_outdone(item, others, as_whole=as_whole).text}" if others else ""
    text = "; ".join(dict.fromkeys(one.why for one in parts)) + rest
    return FindingReason("routed-elsewhere", text, step(item.origin.path, "targetRef"), parts[0].hint)


def _outdone(item: PolicyItem, spots: Sequence[AnySpot], *, as_whole: bool) -> FindingReason:
    rivals = _Rivals(policy_of if as_whole else item_of)
    for spot in _as_if_whole(spots):
        if isinstance(spot, RouteTableSite):
            _compare_rows(item, spot, rivals)
        elif isinstance(spot, ClientSite):
            _compare_first(item, spot, rivals)
        else:
            _compare(item, spot, rivals)
    path = item.layer.path
    if rivals.other:
        text = _overridden(rivals)
        if all(isinstance(spot, RouteTableSite) for spot in spots):
            text = f"stronger routes with the same matches take its place: {_listed(rivals.other)}"
        hint = "remove it, or write it for fewer proxies than what overrides it"
        return FindingReason("overridden", text, path, hint)
    by = f" ({_listed(rivals.same)} says so)" if rivals.same else ""
    return FindingReason(
        "redundant", f"what it says would hold without it{by}", path, "remove it, or leave it as a reminder"
    )


def _overridden(rivals: _Rivals) -> str:
    """Who overrides which fields. Of several rivals each does so at places of its own."""
    of_each = [f"{_fields(paths)} overridden by {whose}" for whose, paths in rivals.other.items()]
    if len(of_each) == 1 and not rivals.same:
        return f"{of_each[0]}, wherever it holds"
    rest = "; what else it says would hold without it" if rivals.same else ""
    more = f" and by {len(of_each) - _FEW} more" if len(of_each) > _FEW else ""
    return f"at one place or another {'; '.join(of_each[:_FEW])}{more}{rest}"


def _as_if_whole(spots: Iterable[AnySpot]) -> Iterator[PolicySite | RouteTableSite | ClientSite]:
    for spot in spots:
        if isinstance(spot, PartSite):
            yield from spot.spots
        else:
            yield spot


def _compare(item: PolicyItem, spot: PolicySite, rivals: _Rivals) -> None:
    for one in {**spot.merged.nulls, **spot.merged.removed, **spot.merged.fields}.values():
        values = (setting for setting in (one.winner, *one.losers) if setting.value is not None)
        mine = next((setting for setting in values if setting.origin == item.origin), None)
        null = next((removal for removal in one.removals if removal.null.origin == item.origin), None)
        if mine is not None:
            _add(rivals, one.path, mine, _rival(one, mine, rivals.unit_of))
        elif null is not None:
            _add(rivals, one.path, null.null, _over_null(null, rivals.unit_of))


def _add(rivals: _Rivals, path: str, mine: Setting, rival: Setting | None) -> None:
    if rival is not None:
        rivals.add(said(rival.origin, rival.line), [path], is_same=rival.value == mine.value)


def _over_null(removal: Removal, unit_of: UnitOf) -> Setting | None:
    """Who wins over a null; nobody, if it had nothing to take away."""
    over = removal.overridden_by if removal.removed else None
    return None if over is None or unit_of(over.origin) == unit_of(removal.null.origin) else over


def _rival(one: MergedField, mine: Setting, unit_of: UnitOf) -> Setting | None:
    """Who wins over a setting; of one that wins itself, who says the same."""
    own = unit_of(mine.origin)
    over = mine.removed_by or one.winner
    if unit_of(over.origin) != own:
        return over
    others = (setting for setting in one.losers if unit_of(setting.origin) != own)
    return next((setting for setting in others if setting.value == mine.value), None)


def _compare_rows(item: PolicyItem, spot: RouteTableSite, rivals: _Rivals) -> None:
    """A rule of a table is owned by the strongest of those with its matches."""
    conf: Mapping[str, Any] = item.layer.conf
    mine = [list(rule.get("matches") or ()) for rule in conf.get("rules", ())]
    for rule in spot.rules:
        if rule.origin != item.origin and (not mine or list(rule.matches) in mine):
            rivals.add(said(rule.origin), [], is_same=False)


def _compare_first(item: PolicyItem, spot: ClientSite, rivals: _Rivals) -> None:
    mine = item.layer.conf
    for one in spot.candidates:
        if item not in one.items:
            rivals.add(said(one.items[0].origin), mine, is_same=one.conf.value == mine)


def _of_target(scene: MeshSurvey, item: PolicyItem) -> FindingReason:
    path = step(item.origin.path, "targetRef")
    lacks = missing(scene.world, item)
    if lacks is not None:
        return lacks
    count = scene.selected[item.policy]
    whom = f"none of the {count} proxies that it selects" if count > 1 else "the proxy that it selects"
    if item.target.kind in ROUTES:
        verb = "has" if count > 1 else "does not have"
        why, hint = _why_no_route(scene, item)
        text = f"{whom} {verb} {item.target.kind} {item.target.name or 'with these labels'}: {why}"
        return FindingReason("route-not-there", text, path, hint)
    misunderstood = _for_real_services_alone(scene, item, path) or _of_another_place(scene, item, path)
    if misunderstood is not None:
        return misunderstood
    verb = "calls" if count > 1 else "does not call"
    what = "anybody" if item.target.kind == "Mesh" else f"{item.target.kind} {item.target.name or ''}".rstrip()
    return FindingReason(
        "not-called", f"{whom} {verb} {what}", path, "give a proxy an outbound for it, or remove the item"
    )


def _for_real_services_alone(scene: MeshSurvey, item: PolicyItem, path: str) -> FindingReason | None:
    """An item beside one for a route, where what it is for is called by its tag."""
    if is_outdated(item.policy):
        return _of_route_at_top(item)
    routes = [one.target for one in parts(item.policy) if one.origin.part == "to" and one.target.kind in ROUTES]
    tagged = [one for one in _called(scene, item.policy) if not one.is_real]
    if not routes or not any(item.target.kind == "Mesh" or one.service == item.target.name for one in tagged):
        return None
    text = (
        f"as the policy has an item for a {routes[0].kind}, its others are for real services alone, "
        "and what they are for is called by `kuma.io/service`"
    )
    return FindingReason("not-called", text, path, f"write what is for the {routes[0].kind} in a policy of its own")


def _of_route_at_top(item: PolicyItem) -> FindingReason:
    """A policy with a route at its top is for what is called by that route, and for nothing else."""
    name = top_of(item.policy).name
    text = f"it is for the calls that MeshHTTPRoute {name} takes, and no proxy that it selects has that route"
    path = f"{item.policy.kind.root}.targetRef"
    return FindingReason("route-not-there", text, path, "see what is said of the route, or name another one")


def _of_another_place(scene: MeshSurvey, item: PolicyItem, path: str) -> FindingReason | None:
    """An item for a service of another namespace or zone than the service of that name that is called."""
    meant = reference(item)
    if meant is None or not item.target.name:
        return None
    namesakes = (one.identity for one in _called(scene, item.policy) if one.identity is not None)
    called_ = next((one for one in namesakes if (one.type, one.name) == (item.target.kind, item.target.name)), None)
    if called_ is None:
        return None
    if _is_there(called_, meant.identity):
        text = f"of {item.target.kind} {_placed(called_)} the port {called_.section} is called, and not "
        return FindingReason(
            "not-called", text + meant.identity.section, path, "correct `sectionName`, or remove the item"
        )
    text = f"it is for {item.target.kind} {_placed(meant.identity)}, and what is called is the one {_place(called_)}"
    return FindingReason("not-called", text, path, _how_to_name(called_, meant.identity))


def _is_there(called_: Identity, meant: Identity) -> bool:
    return (called_.zone, called_.namespace) == (meant.zone, meant.namespace)


def _how_to_name(called_: Identity, meant: Identity) -> str:
    """A target can name a namespace, and no zone."""
    if called_.namespace and called_.zone == meant.zone:
        return f"write `namespace: {called_.namespace}` in the target, if that one is meant"
    return "choose the service by `labels`, or write the policy where the service is"


def _placed(identity: Identity) -> str:
    return f"{identity.name} {_place(identity)}"


def _place(identity: Identity) -> str:
    zone = f" of zone {identity.zone}" if identity.zone else ""
    return f"in the namespace {identity.namespace}{zone}" if identity.namespace else f"without a namespace{zone}"


def _called(scene: MeshSurvey, policy: Resource) -> Iterator[Destination]:
    """What the proxies call that a policy selects."""
    for outbounds in scene.outbounds:
        of_kind = outbounds.rules.get(policy.type)
        if of_kind is not None and any(one.policy is policy for one in of_kind.matched):
            yield from (entry.listening.destination for entry in outbounds.entries)


def _why_no_route(scene: MeshSurvey, item: PolicyItem) -> tuple[str, str]:
    """And what can be done about it."""
    routes = _routes(scene, item)
    if not any(scene.selected.get(route) for route in routes):
        return "the route selects no proxy at all", "correct the `targetRef` at the top of the route"
    if not any(_both(scene, item.policy, route) for route in routes):
        return "the route is for others", "give the policy and the route the same `targetRef` at the top"
    blocked = [one for one in scene.blocked if one.item.policy in routes]
    if blocked:
        why = because_blocked(blocked[0].item, blocked)
        return why.text, why.hint
    if not any(route.key in scene.effective for route in routes):
        return "the route itself has no effect", "see what is said of the route"
    return (
        "it is for a service that is not called from there",
        "select the proxies that call it, and not those that serve it",
    )


def _routes(scene: MeshSurvey, item: PolicyItem) -> tuple[Resource, ...]:
    to = reference(item)
    return () if to is None else resolve(TargetTables.of(scene.world, item.policy.mesh), to)


def _both(scene: MeshSurvey, one: Resource, other: Resource) -> bool:
    """Whether some proxy is selected by both."""
    chosen = ({found.policy for some in matched.values() for found in some} for matched, _ in scene.classes)
    return any({one, other} <= policies for policies in chosen)


def _no_inbound(scene: MeshSurvey, item: PolicyItem) -> FindingReason:
    count = scene.selected[item.policy]
    text = f"none of the {count} proxies that it selects has an inbound" if count > 1 else "its proxy has no inbound"
    return FindingReason("selects-no-inbound", text, item.origin.path, "select proxies that others call")


def _nothing_redirected(scene: MeshSurvey, item: PolicyItem) -> FindingReason:
    count = scene.selected[item.policy]
    who = f"none of the {count} proxies that it selects has" if count > 1 else "its proxy has no"
    text = f"{who} `networking.transparentProxying`, so calls to places outside of the mesh do not come by"
    hint = "give the Dataplane `transparentProxying` and redirect its traffic, or remove the policy"
    return FindingReason("not-redirected", text, item.origin.path, hint)


def _fields(paths: Iterable[str]) -> str:
    found = list(dict.fromkeys(paths))
    shown = ", ".join(f"`{path}`" for path in found[:_FEW])
    more = f" and {len(found) - _FEW} more" if len(found) > _FEW else ""
    return f"{shown}{more} {'is' if len(found) == 1 else 'are'}"


def _listed(names: Iterable[str]) -> str:
    found = list(dict.fromkeys(names))
    more = f" and {len(found) - _FEW} more" if len(found) > _FEW else ""
    return ", ".join(found[:_FEW]) + more
