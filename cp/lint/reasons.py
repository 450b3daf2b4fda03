"""Why an item of a policy has no effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cp.lint.codes import Reason
from cp.lint.scene import Scene
from cp.lint.spots import AnySpot, ClientSpot, Spot, TableSpot
from cp.lint.targets import called, missing
from cp.lint.walk import Blocked
from cp.merging import Field, Origin, Setting
from cp.model.yaml import step
from cp.resources.resource import Resource
from cp.rules import Item
from cp.rules.items import reference
from cp.rules.naming import resolve
from cp.rules.targets import ROUTES, Targets
from cp.stages import BUILT_IN

_FEW: Final = 3


@dataclass(slots=True)
class _Rivals:
    """Who sets what an item sets: otherwise, or the same."""

    other: dict[str, None] = field(default_factory=dict)
    same: dict[str, None] = field(default_factory=dict)
    paths: dict[str, None] = field(default_factory=dict)


def reason(scene: Scene, item: Item) -> Reason:
    spots = scene.spots_of.get(item, ())
    if spots:
        return _outdone(item, spots)
    blocked = [one for one in scene.blocked if one.item is item]
    if blocked:
        return because_blocked(item, blocked)
    return _of_target(scene, item) if item.origin.part == "to" else _no_inbound(scene, item)


def because_blocked(item: Item, blocked: Sequence[Blocked]) -> Reason:
    """A route that decides nothing for its destination."""
    path, service = step(item.origin.path, "targetRef"), called(blocked[0].destination)
    if blocked[0].by:
        by = _listed(said(one) for one in blocked[0].by)
        hint = "say the same in a MeshHTTPRoute, or remove one of them"
        return Reason("shadowed-route", f"for {service} the MeshHTTPRoute counts, and not this one: {by}", path, hint)
    hint = "if it speaks HTTP, say so in its port's `appProtocol`; else write a MeshTCPRoute"
    return Reason("no-meaning", f"a {item.policy.type} has no meaning for {service}, which speaks tcp", path, hint)


def said(origin: Origin, line: int | None = None) -> str:
    """A policy as operators know it, with the place of its item, or a line of it."""
    if origin.part == BUILT_IN:
        return "the built-in default"
    place = f" ({origin.file}:{origin.line if line is None else line})" if origin.file else ""
    return f"{origin.policy.type} {origin.policy.name}{place}"


def _outdone(item: Item, spots: Iterable[AnySpot]) -> Reason:
    rivals = _Rivals()
    for spot in spots:
        if isinstance(spot, TableSpot):
            _compare_rows(item, spot, rivals)
        elif isinstance(spot, ClientSpot):
            _compare_first(item, spot, rivals)
        else:
            _compare(item, spot, rivals)
    path = item.layer.path
    if rivals.other:
        whole = _fields(rivals.paths)
        text = f"{whole} overridden by {_listed(rivals.other)}, wherever the item holds"
        hint = "remove it, or write it for fewer proxies than what overrides it"
        return Reason("overridden", text, path, hint)
    by = f" ({_listed(rivals.same)} says so)" if rivals.same else ""
    return Reason("redundant", f"what it says would hold without it{by}", path, "remove it, or leave it as a reminder")


def _compare(item: Item, spot: Spot, rivals: _Rivals) -> None:
    for one in (*spot.merged.fields.values(), *spot.merged.removed.values()):
        settings = (one.winner, *one.losers)
        mine = next((setting for setting in settings if setting.origin == item.origin), None)
        if mine is None:
            continue
        rivals.paths[one.path] = None
        rival = _rival(one, mine, item)
        if rival is not None:
            whose = rivals.same if rival.value == mine.value else rivals.other
            whose[said(rival.origin, rival.line)] = None


def _compare_first(item: Item, spot: ClientSpot, rivals: _Rivals) -> None:
    mine = item.layer.conf
    rivals.paths |= dict.fromkeys(mine)
    for one in spot.candidates:
        if item not in one.items:
            whose = rivals.same if one.conf.value == mine else rivals.other
            whose[said(one.items[0].origin)] = None


def _rival(one: Field, mine: Setting, item: Item) -> Setting | None:
    """Who wins over a setting; of one that wins itself, who says the same."""
    if one.winner.origin.policy != item.policy.key:
        return one.winner
    others = (setting for setting in one.losers if setting.origin.policy != item.policy.key)
    return next((setting for setting in others if setting.value == mine.value), None)


def _compare_rows(item: Item, spot: TableSpot, rivals: _Rivals) -> None:
    """A rule of a table is owned by the strongest of those with its matches."""
    conf: Mapping[str, Any] = item.layer.conf
    mine = [list(rule.get("matches") or ()) for rule in conf.get("rules", ())]
    for rule in spot.rules:
        if rule.origin != item.origin and (not mine or list(rule.matches) in mine):
            rivals.other[said(rule.origin)] = None
    rivals.paths["rules"] = None


def _of_target(scene: Scene, item: Item) -> Reason:
    path = step(item.origin.path, "targetRef")
    lacks = missing(scene.world, item)
    if lacks is not None:
        return lacks
    count = scene.selected[item.policy]
    whom = f"none of the {count} proxies that it selects" if count > 1 else "the proxy that it selects"
    if item.target.kind in ROUTES:
        verb = "has" if count > 1 else "does not have"
        text = f"{whom} {verb} {item.target.kind} {item.target.name or 'with these labels'}"
        return Reason("route-not-there", text, path, _why_no_route(scene, item))
    verb = "calls" if count > 1 else "does not call"
    what = "anybody" if item.target.kind == "Mesh" else f"{item.target.kind} {item.target.name or ''}".rstrip()
    return Reason("not-called", f"{whom} {verb} {what}", path, "give a proxy an outbound for it, or remove the item")


def _why_no_route(scene: Scene, item: Item) -> str:
    routes = _routes(scene, item)
    if not any(scene.selected.get(route) for route in routes):
        return "the route selects no proxy: compare its own `targetRef`"
    if not any(_both(scene, item.policy, route) for route in routes):
        return "the route is for other proxies: give both the same `targetRef` at the top"
    blocked = [one for one in scene.blocked if one.item.policy in routes]
    if blocked:
        return because_blocked(blocked[0].item, blocked).text
    if not any(route.key in scene.effective for route in routes):
        return "the route itself has no effect"
    return "they do not call the service that the route is for"


def _routes(scene: Scene, item: Item) -> tuple[Resource, ...]:
    to = reference(item)
    return () if to is None else resolve(Targets.of(scene.world, item.policy.mesh), to)


def _both(scene: Scene, one: Resource, other: Resource) -> bool:
    """Whether some proxy is selected by both."""
    chosen = ({found.policy for some in matched.values() for found in some} for matched, _ in scene.classes)
    return any({one, other} <= policies for policies in chosen)


def _no_inbound(scene: Scene, item: Item) -> Reason:
    count = scene.selected[item.policy]
    text = f"none of the {count} proxies that it selects has an inbound" if count > 1 else "its proxy has no inbound"
    return Reason("selects-no-inbound", text, item.origin.path, "select proxies that others call")


def _fields(paths: Iterable[str]) -> str:
    found = list(dict.fromkeys(paths))
    shown = ", ".join(f"`{path}`" for path in found[:_FEW])
    more = f" and {len(found) - _FEW} more" if len(found) > _FEW else ""
    return f"{shown}{more} {'is' if len(found) == 1 else 'are'}"


def _listed(names: Iterable[str]) -> str:
    found = list(dict.fromkeys(names))
    more = f" and {len(found) - _FEW} more" if len(found) > _FEW else ""
    return ", ".join(found[:_FEW]) + more
