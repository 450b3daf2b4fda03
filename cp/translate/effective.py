"""Effective confs: what holds for a destination, an inbound or a whole proxy, over the defaults of each policy.

They keep the origins of their values. Inspection shows the same confs from which fragments are built.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

from cp.model.memo import ByIdentity, Memo
from cp.model.names import Destination, Identity, Key
from cp.policies import Policies, Policy
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules import PolicyRules, build, effective
from cp.rules.matching import ByKind, match
from cp.rules.merging import NOTHING, Layer, MergedConf, Origin, merge
from cp.translate.fragments import Confs
from cp.translate.view import backend_refs

Effective: TypeAlias = Mapping[str, MergedConf]
"""The effective conf of each policy that says something, by its kind."""

Rules: TypeAlias = Mapping[str, PolicyRules]
"""What the policies that select a proxy come to, by their kind."""

BUILT_IN: Final = "built-in"
"""The `part` of the origin of a default."""


def rules_of(world: World, dataplane: Resource) -> Rules:
    """The rules of a proxy. Proxies for which they come to the same get the same mapping."""
    return world.recall(_RulesOfProxies, ByIdentity(match(world, dataplane)))


class _RulesOfProxies(Memo[World, ByIdentity[ByKind], Rules]):
    """The rules of each set of matched policies."""

    def basis(self, source: World, key: ByIdentity[ByKind]) -> tuple[PolicyRules, ...]:
        return tuple(build(source, matched, source.kinds[kind]) for kind, matched in key.value.items())

    def work_out(self, source: World, key: ByIdentity[ByKind]) -> Rules:
        return dict(zip(key.value, self.basis(source, key), strict=True))


def defaults(policies: Policies, side: Literal["outbound_default", "inbound_default"]) -> Effective:
    """What holds on a side of every proxy unless some policy says otherwise."""
    return {policy.kind.name: built_in(policy, conf) for policy in policies if (conf := getattr(policy, side))}


def built_in(policy: Policy[Any], conf: Mapping[str, Any]) -> MergedConf:
    """A policy's own default as the most general conf of all, with an origin of its own."""
    kind = policy.kind.name
    origin = Origin(Key(kind, "", "default"), Identity(kind, "", "default"), BUILT_IN)
    return merge((Layer(dict(conf), origin),))


def of_destination(
    default: Effective, rules: Rules, destination: Destination, via: tuple[Identity, ...] = (), matches: str = ""
) -> Effective:
    """What holds for a destination, or for routes to it."""
    confs = dict(default)
    for kind_rules in rules.values():
        to_destination = kind_rules.shape.to
        conf = effective(kind_rules, destination, via, matches) if to_destination else _of_proxy(kind_rules)
        _lay(confs, kind_rules, conf)
    return confs


def of_inbound(default: Effective, rules: Rules, index: int) -> Effective:
    """What holds for an inbound, whoever calls."""
    confs = dict(default)
    for kind_rules in rules.values():
        conf = _of_proxy(kind_rules) if kind_rules.shape.single else _of_all_clients(kind_rules, index)
        _lay(confs, kind_rules, conf)
    return confs


def of_proxy(rules: Rules) -> Effective:
    """What holds for a proxy as a whole."""
    confs: dict[str, MergedConf] = {}
    for kind_rules in rules.values():
        if kind_rules.shape.single:
            _lay(confs, kind_rules, _of_proxy(kind_rules))
    return confs


def _lay(confs: dict[str, MergedConf], kind_rules: PolicyRules, conf: MergedConf) -> None:
    if conf is not NOTHING:
        kind = kind_rules.kind.name
        confs[kind] = kind_rules.lay((confs[kind], conf)) if kind in confs else conf


def _of_proxy(kind_rules: PolicyRules) -> MergedConf:
    return NOTHING if kind_rules.proxy is None else kind_rules.proxy.conf


def _of_all_clients(kind_rules: PolicyRules, index: int) -> MergedConf:
    """Rules that hold side by side come to no single conf."""
    if kind_rules.shape.side_by_side:
        return NOTHING
    for_all = kind_rules.inbound(index).for_all
    return NOTHING if for_all is None else for_all.conf


class ConfWriters:
    """The policies that fill in one of some hooks: only their confs become a part of a task."""

    def __init__(self, policies: Iterable[Policy[Any]], hooks: tuple[str, ...]) -> None:
        self._kinds = frozenset(policy.kind.name for policy in policies if has_hook(policy, *hooks))

    def confs(self, world: World, mesh: str, effective: Effective) -> Confs:
        kinds = self._kinds
        return tuple((kind, resolved(world, mesh, conf)) for kind, conf in sorted(effective.items()) if kind in kinds)


def resolved(world: World, mesh: str, conf: MergedConf) -> bytes:
    """A conf as it stands in a task, with what its references lead to in this World."""
    return backend_refs.resolved(world, mesh, conf.canonical)


def has_hook(policy: Policy[Any], *hooks: str) -> bool:
    """Whether a policy fills in one of these hooks."""
    return any(getattr(type(policy), hook) is not getattr(Policy, hook) for hook in hooks)
