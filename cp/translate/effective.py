"""Effective confs: what holds for a destination, an inbound or a whole proxy, over the defaults of each policy.

They keep the origins of their values. Inspection shows the same confs from which fragments are built.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from cp.model.memo import ByIdentity, Memo
from cp.model.names import Destination, Identity, Key
from cp.policies import Policies, Policy
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.rules import PolicyRules, at_gateway, build, effective
from cp.rules.legacy import NO_LEGACY, LegacyRules, legacy_rules
from cp.rules.matching import ByKind, match
from cp.rules.merging import NOTHING, Layer, MergedConf, Origin, merge, overlay
from cp.translate.fragments import Confs
from cp.translate.view import backend_refs

Effective: TypeAlias = Mapping[str, MergedConf]
"""The effective conf of each policy that says something, by its kind."""


def types_behind(kind: str, conf: MergedConf) -> tuple[str, ...]:
    """The types of the policies that say a conf of some kind: legacy policies come to confs of other kinds."""
    origins = (field.winner.origin for field in conf.fields.values())
    return tuple(dict.fromkeys(origin.policy.type for origin in origins if origin.part != BUILT_IN)) or (kind,)


class Rules(Mapping[str, PolicyRules]):
    """What the policies that select a proxy come to, by their kind; and what its legacy policies do."""

    def __init__(self, by_kind: Mapping[str, PolicyRules], legacy: LegacyRules = NO_LEGACY) -> None:
        self._by_kind = by_kind
        self.legacy = legacy

    def __getitem__(self, kind: str) -> PolicyRules:
        return self._by_kind[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_kind)

    def __len__(self) -> int:
        return len(self._by_kind)

    def among(self, kinds: Container[str]) -> Rules:
        """The rules of some kinds."""
        return Rules({kind: rules for kind, rules in self.items() if kind in kinds}, self.legacy.among(kinds))


BUILT_IN: Final = "built-in"
"""The `part` of the origin of a default."""


class CalledService(NamedTuple):
    """A destination, with the protocol by which it is called."""

    destination: Destination
    protocol: str
    is_outside: bool


def rules_of(world: World, dataplane: Resource) -> Rules:
    """The rules of a proxy. Proxies for which they come to the same get the same mapping."""
    legacy = legacy_rules(world, dataplane)
    return world.recall(_RulesOfProxies, (ByIdentity(match(world, dataplane)), legacy))


_RulesKey: TypeAlias = tuple[ByIdentity[ByKind], LegacyRules]


class _RulesOfProxies(Memo[World, _RulesKey, Rules]):
    """The rules of each set of matched policies."""

    def basis(self, source: World, key: _RulesKey) -> tuple[PolicyRules, ...]:
        return tuple(build(source, matched, source.kinds[kind]) for kind, matched in key[0].value.items())

    def work_out(self, source: World, key: _RulesKey) -> Rules:
        return Rules(dict(zip(key[0].value, self.basis(source, key), strict=True)), key[1])


def defaults(policies: Policies, side: Literal["outbound_default", "inbound_default"]) -> Effective:
    """What holds on a side of every proxy unless some policy says otherwise."""
    return {policy.kind.name: built_in(policy, conf) for policy in policies if (conf := getattr(policy, side))}


def built_in(policy: Policy[Any], *confs: Mapping[str, Any]) -> MergedConf:
    """A policy's own default as the most general conf of all, with an origin of its own."""
    kind = policy.kind.name
    origin = Origin(Key(kind, "", "default"), Identity(kind, "", "default"), BUILT_IN)
    return merge(tuple(Layer(dict(conf), origin) for conf in confs))


def of_destination(
    default: Effective,
    rules: Rules,
    called: CalledService,
    via: tuple[Identity, ...] = (),
    matches: str = "",
) -> Effective:
    """What holds for a destination, or for routes to it."""
    confs, destination = dict(default), called.destination
    _lay_legacy(confs, _legacy_of(rules, called))
    for kind_rules in rules.values():
        to_destination = kind_rules.shape.to
        conf = effective(kind_rules, destination, via, matches) if to_destination else _of_proxy(kind_rules)
        _lay(confs, kind_rules, conf)
    return confs


def _legacy_of(rules: Rules, called: CalledService | None) -> Mapping[str, MergedConf]:
    """What legacy policies say. They know services by their tags, and no real ones."""
    if called is None or called.destination.is_real:
        return rules.legacy.of_proxy
    service = called.destination.service
    of_service = rules.legacy.of_service(service, called.protocol)
    return {**of_service, **rules.legacy.of_service_outside(service)} if called.is_outside else of_service


def of_inbound(default: Effective, rules: Rules, index: int) -> Effective:
    """What holds for an inbound, whoever calls."""
    confs = dict(default)
    _lay_legacy(confs, rules.legacy.of_proxy)
    for kind_rules in rules.values():
        conf = _of_proxy(kind_rules) if kind_rules.shape.single else _of_all_clients(kind_rules, index)
        _lay(confs, kind_rules, conf)
    return confs


def of_proxy(rules: Rules) -> Effective:
    """What holds for a proxy as a whole."""
    confs: dict[str, MergedConf] = {}
    _lay_legacy(confs, rules.legacy.of_proxy)
    for kind_rules in rules.values():
        if kind_rules.shape.single:
            _lay(confs, kind_rules, _of_proxy(kind_rules))
    return confs


def _lay_legacy(confs: dict[str, MergedConf], legacy: Mapping[str, MergedConf]) -> None:
    """What legacy policies say lies over defaults, and under what policies with a targetRef say."""
    for kind, conf in legacy.items():
        confs[kind] = overlay((confs[kind], conf)) if kind in confs else conf


def _lay(confs: dict[str, MergedConf], kind_rules: PolicyRules, conf: MergedConf) -> None:
    if conf is not NOTHING:
        kind = kind_rules.kind.name
        confs[kind] = kind_rules.lay((confs[kind], conf)) if kind in confs else conf


def _of_proxy(kind_rules: PolicyRules) -> MergedConf:
    return NOTHING if kind_rules.proxy is None else kind_rules.proxy.conf


def _of_all_clients(kind_rules: PolicyRules, index: int | None) -> MergedConf:
    """Rules that hold side by side come to no single conf."""
    if kind_rules.shape.side_by_side:
        return NOTHING
    for_all = kind_rules.inbound(index).for_all
    return NOTHING if for_all is None else for_all.conf


def gateway_defaults(policies: Policies) -> Effective:
    """What holds for all that a gateway calls, unless some policy says otherwise."""
    layers = (
        (policy, [conf for conf in (policy.outbound_default, policy.gateway_default) if conf]) for policy in policies
    )
    return {policy.kind.name: built_in(policy, *confs) for policy, confs in layers if confs}


def entrance_defaults(policies: Policies) -> Effective:
    """What holds for the clients of every gateway, unless some policy says otherwise."""
    return {policy.kind.name: built_in(policy, conf) for policy in policies if (conf := policy.entrance_default)}


def at_listener(
    default: Effective,
    rules: Rules,
    service: CalledService | None = None,
    via: tuple[Identity, ...] = (),
) -> Effective:
    """What holds on a gateway for calls by some routes or, without any, for all calls that come by a listener.

    `rules` are those at the listener. Routes to one service have under their own confs those of the service.
    """
    confs = dict(default)
    _lay_legacy(confs, _legacy_of(rules, service))
    for kind_rules in rules.values():
        called = None if service is None else service.destination
        conf = at_gateway(kind_rules, via, called) if kind_rules.shape.to else _of_proxy(kind_rules)
        _lay(confs, kind_rules, conf)
    return confs


def at_entrance(default: Effective, rules: Rules) -> Effective:
    """What holds for the clients of a gateway who come by some listeners; `rules` are those there."""
    confs = dict(default)
    for kind_rules in rules.values():
        if kind_rules.shape.from_ or kind_rules.shape.rules:
            _lay(confs, kind_rules, _of_all_clients(kind_rules, None))
    return confs


class ConfWriters:
    """The policies that fill in one of some hooks: only their confs become a part of a task."""

    def __init__(self, policies: Iterable[Policy[Any]], hooks: tuple[str, ...]) -> None:
        self._kinds = frozenset(policy.kind.name for policy in policies if has_hook(policy, *hooks))

    def confs(self, world: World, mesh: str, effective: Effective) -> Confs:
        kinds = self._kinds
        return tuple((kind, resolved(world, mesh, conf)) for kind, conf in sorted(effective.items()) if kind in kinds)

    def among(self, confs: Confs) -> Confs:
        """Those of some confs that are of one of these policies."""
        return tuple(conf for conf in confs if conf[0] in self._kinds)


def resolved(world: World, mesh: str, conf: MergedConf) -> bytes:
    """A conf as it stands in a task, with what its references lead to in this World."""
    return backend_refs.resolved(world, mesh, conf.canonical)


def has_hook(policy: Policy[Any], *hooks: str) -> bool:
    """Whether a policy fills in one of these hooks."""
    return any(getattr(type(policy), hook) is not getattr(Policy, hook) for hook in hooks)
