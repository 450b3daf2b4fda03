"""The items of policies, ready to be sorted, looked up and merged. The items of one policy are made once."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from weakref import ReferenceType, ref

from cp.model.names import Identity
from cp.model.paths import step
from cp.model.target import RANK, REAL, TargetRef
from cp.resources.dataplane import SERVICE_TAG
from cp.resources.kinds import PolicyShape
from cp.resources.resource import Resource
from cp.resources.targets import HTTP_ROUTE, TCP_ROUTE
from cp.rules.matching import target_of, top_of
from cp.rules.matching.order import Strength, attributes, gateway_tags, names, role
from cp.rules.merging import Conf, Layer, MergeOptions, Origin

_OLD_SERVICE_NAME: Final = re.compile(r"([^_]+)_([^_]+)_svc(?:_([0-9]+))?")

Tags = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True, eq=False)
class PolicyItem:
    """One item of a policy: the same object for as long as the policy does not change.

    The policy keeps its items, so an item refers to it weakly: an edited policy is freed at once, without the collector
    of garbage, which looks at old objects seldom.
    """

    reference_to_policy: ReferenceType[Resource]
    index: int
    target: TargetRef
    layer: Layer
    order: Strength
    """Compared among items for real resources: the smaller is the stronger.

    See docs/concepts/matching-and-merging.md#who-wins.
    """

    order_at_gateway: Strength
    """The same at a listener of a gateway: there the tags of a target count before names (record 0068)."""

    shape: PolicyShape
    matches: tuple[Mapping[str, Any], ...] = ()
    """The connections that an item of `rules` is for; empty for all connections and for other items."""

    for_whole: PolicyItem | None = None
    """The same item at the level of services, for services without the port in an old name (`a_ns_svc_8080`)."""

    @property
    def policy(self) -> Resource:
        """The policy, which a World or rules have to keep. Raises `ReferenceError` if none does."""
        policy = self.reference_to_policy()
        if policy is None:
            raise ReferenceError(f"nothing keeps {self.origin.policy}, the policy of this item")
        return policy

    def is_of(self, policies: Container[Resource]) -> bool:
        """Return True if the policy is one of these."""
        return self.reference_to_policy() in policies

    @property
    def origin(self) -> Origin:
        return self.layer.origin


@dataclass(frozen=True, slots=True)
class PolicyItems:
    """All items of one policy."""

    to: tuple[PolicyItem, ...] = ()
    from_: tuple[PolicyItem, ...] = ()
    rules: tuple[PolicyItem, ...] = ()
    """The items for inbounds: those of `rules` or, if there are none and it means the same, those of `from`."""

    default: tuple[PolicyItem, ...] = ()
    """The one item of a policy without lists."""


@dataclass(frozen=True, slots=True)
class ItemReference:
    """The real resources that a target refers to: one by its identity, or all that have these labels."""

    identity: Identity
    """It has no name where labels choose. Its section is a name or a number, as it is written."""

    labels: tuple[tuple[str, str], ...] = ()

    or_whole: bool = False
    """Whether a service without such a section is meant as a whole."""


def items(policy: Resource) -> PolicyItems:
    return policy.derived(_items)


def shape_of(policy: Resource) -> PolicyShape:
    return policy.kind.policy or PolicyShape()


def recipe(shape: PolicyShape) -> MergeOptions:
    return MergeOptions(shape.merge_by_key, shape.group_by, shape.finish)


def _items(policy: Resource) -> PolicyItems:
    shape = shape_of(policy)
    from_ = tuple(_of_part(policy, "from"))
    rules = tuple(_of_part(policy, "rules"))
    if not rules and shape.from_as_rules:
        rules = from_
    single = shape.single and "default" in policy.data
    default = (_item(policy, policy.data, ItemPlace("default", 0, policy.kind.root)),) if single else ()
    return PolicyItems(tuple(_of_part(policy, "to")), from_, rules, default)


@dataclass(frozen=True, slots=True)
class ItemPlace:
    """The position of an item in its policy."""

    part: str
    index: int
    path: str


def _of_part(policy: Resource, part: str) -> Iterator[PolicyItem]:
    for index, data in enumerate(policy.data.get(part) or ()):
        yield _item(policy, data, ItemPlace(part, index, step(step(policy.kind.root, part), index)))


def _item(policy: Resource, data: Conf, place: ItemPlace) -> PolicyItem:
    target = target_of(data.get("targetRef") if place.part in {"to", "from"} else None)
    level = _level(policy, target) if place.part == "to" else ""
    origin = Origin(policy.key, policy.identity, place.part, place.index, level, place.path, policy.source)
    conf = shape_of(policy).conf_of(data)
    layer = Layer(conf, origin, _path_of_conf(data, conf, place.path), data)
    matches = tuple(data.get("matches") or ()) if place.part == "rules" else ()
    order = _order(policy, target, place.index)
    made = PolicyItem(
        ref(policy), place.index, target, layer, order, _order_at_gateway(policy, order), shape_of(policy), matches
    )
    if level != "section" or target.section_name:
        return made
    whole = replace(layer, origin=replace(origin, level="service"))
    return replace(made, for_whole=replace(made, layer=whole))


def _path_of_conf(item: Conf, conf: Conf, path: str) -> str:
    """The path of the conf: `default` of the item, the first rule of the item, or the item itself."""
    rules = item.get("rules")
    if isinstance(rules, list) and rules and conf is rules[0]:
        return step(step(path, "rules"), 0)
    return step(path, "default") if "default" in item else path


def _level(policy: Resource, target: TargetRef) -> str:
    """The level of a `to` item. A policy that names a route at its top is about that route, whatever its items name."""
    if HTTP_ROUTE in {target.kind, top_of(policy).kind} or target.kind == TCP_ROUTE:
        return "route"
    if target.kind == "Mesh":
        return "mesh"
    old = _old_name(target)
    return "section" if target.section_name or (old is not None and old[3]) else "service"


def _order_at_gateway(policy: Resource, order: Strength) -> Strength:
    top = top_of(policy)
    first = attributes(policy, top)
    return (*first, -gateway_tags(top), *order[len(first) :])


def _order(policy: Resource, target: TargetRef, index: int) -> Strength:
    section = int(target.kind == "MeshService" and bool(target.section_name))
    top = top_of(policy)
    of_target = (-RANK.get(target.kind, 0), -section)
    return (
        *attributes(policy, top),
        role(policy),
        *of_target,
        names(policy)[0],
        -gateway_tags(top),
        policy.name,
        -index,
    )


def reference(item: PolicyItem) -> ItemReference | None:
    """The real resources that the target of a `to` item means; None for targets that only know tags.

    See docs/concepts/matching-and-merging.md#what-a-target-names.
    """
    target, policy = item.target, item.policy
    if target.kind not in REAL:
        return None
    section = target.section_name or ""
    old = _old_name(target)
    if old is not None:
        labels = {"kuma.io/display-name": old[1], "k8s.kuma.io/namespace": old[2]}
        return ItemReference(
            Identity(target.kind, policy.mesh, "", section=old[3] or ""), tuple(labels.items()), or_whole=True
        )
    if target.labels:
        return ItemReference(Identity(target.kind, policy.mesh, "", section=section), tuple(target.labels.items()))
    namespace = target.namespace or policy.namespace
    return ItemReference(Identity(target.kind, policy.mesh, target.name or "", policy.zone, namespace, section))


def _old_name(target: TargetRef) -> re.Match[str] | None:
    """The parts of a name such as `a_ns_svc_8080`, which means a service by its name and namespace, and a port."""
    if target.kind != "MeshService" or target.section_name:
        return None
    return _OLD_SERVICE_NAME.fullmatch(target.name or "")


def tags_of(item: PolicyItem) -> Tags | None:
    """The tags by which a target chooses; None for targets that only know real resources.

    See docs/concepts/rules-by-tags.md#which-items.
    """
    match item.target.kind:
        case "Mesh" | "MeshGateway":
            return frozenset()
        case "MeshSubset":
            return frozenset((item.target.tags or {}).items())
        case "MeshService":
            return frozenset({(SERVICE_TAG, item.target.name or "")})
        case "MeshServiceSubset":
            return frozenset({(SERVICE_TAG, item.target.name or ""), *(item.target.tags or {}).items()})
    return None
