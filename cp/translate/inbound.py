"""One inbound of a proxy: the effective confs for its clients, and the fragment built from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, TypeAlias

from cp.model.canonical import canonical_json
from cp.model.failure import failure
from cp.model.names import kri
from cp.policies import Policies, Policy
from cp.resources.limits import Room
from cp.resources.schema import decode
from cp.resources.world import World
from cp.rules import CombinedConf, PolicyItem, PolicyRules, TagCondition, includes
from cp.rules.legacy import LegacyClient
from cp.rules.merging import NOTHING, MergedConf
from cp.translate.effective import ConfWriters, Effective, Rules, defaults, has_hook, of_inbound, resolved
from cp.translate.failed import with_cause
from cp.translate.fragments import ClientConf, ClientConfs, Fragment, FragmentCache, Task
from generators.proxy import Inbound, MeshTls

LegacyClients: TypeAlias = Mapping[str, Sequence[LegacyClient]]
"""What legacy policies say of the clients of an inbound, by the kind of policy with a targetRef that says the same."""

IsRemoved: TypeAlias = Callable[[PolicyItem], bool]
"""Whether an item is left out, to find out what would be different without it."""

ConfOfClients: TypeAlias = tuple[Mapping[str, Any], MergedConf]
"""Conditions on clients (`cp.policies.ClientRule.match`), and what holds for those who meet them."""

ByClient: TypeAlias = Mapping[str, Sequence[ConfOfClients]]
"""What holds for some clients of an inbound, by the kind of the policy. Of several that fit the first counts."""


@dataclass(frozen=True, slots=True, eq=False)
class InboundResult:
    """One inbound of a proxy, its effective confs, and the fragment built from them."""

    inbound: Inbound
    effective: Effective
    """What holds for all clients. What holds for some alone is in `by_client`."""

    task: Task
    fragment: Fragment
    guard: InboundGuard | None = None
    """Who is let in; None if that could not be worked out."""

    by_client: ByClient = field(default_factory=dict)
    legacy: LegacyClients = field(default_factory=dict)
    """What legacy policies say of its clients, as far as it counts."""


@dataclass(frozen=True, slots=True)
class InboundGuard:
    """What keeps callers out of an inbound: TLS, and the policies that decide who may call at all."""

    tls: MeshTls | None
    is_permissive: bool
    judging: ClientConfs

    @classmethod
    def of(cls, inbound: Inbound, clients: ClientConfs, kinds: AbstractSet[str]) -> InboundGuard:
        return cls(inbound.tls, inbound.is_permissive, tuple(confs for confs in clients if confs[0] in kinds))


NO_GUARD: Final = InboundGuard(None, is_permissive=False, judging=())


class InboundStage:
    """From the rules of a proxy to its inbounds."""

    def __init__(self, policies: Policies, fragments: FragmentCache) -> None:
        self._fragments = fragments
        self._defaults = defaults(policies, "inbound_default")
        self._securing = [policy for policy in policies if has_hook(policy, "secure")]
        self._judging = frozenset(policy.kind.name for policy in policies if policy.judges_every_client)
        self._writers = ConfWriters(policies, ("cluster", "listener", "route", "finish"))

    def result(  # noqa: PLR0913  # all on which it depends
        self, world: World, mesh: str, rules: Rules, index: int, inbound: Inbound, *, room: Room
    ) -> InboundResult:
        """One inbound. Without it nobody is let in: what should be checked of clients is not known."""
        part = f"inbound {inbound.port}"
        try:
            result = self._result(world, mesh, rules, index, inbound, room=room)
        except Exception as error:  # noqa: BLE001  # whatever it is, all other inbounds are served
            guard = NO_GUARD if inbound.tls is None else None
            result = InboundResult(inbound, {}, Task(inbound), Fragment((), failure=failure(error, part)), guard)
        return replace(result, fragment=with_cause(result.fragment, part, rules, result.effective))

    def _result(  # noqa: PLR0913  # all on which it depends
        self, world: World, mesh: str, rules: Rules, index: int, inbound: Inbound, *, room: Room
    ) -> InboundResult:
        effective = of_inbound(self._defaults, rules, index)
        inbound = secured_by(self._securing, inbound, effective)
        has_tls = inbound.tls is not None
        legacy = _legacy_clients(rules, index, inbound.protocol)
        by_client = dict(self._by_client(rules, index, has_tls=has_tls))
        differing = dict(_different(rules, by_client, effective))
        heeded = self._heeded(rules, has_tls=has_tls)
        of_legacy = self._confs_of_legacy(world, mesh, legacy, has_tls=has_tls)
        of_clients = (*of_legacy, *_client_confs(world, mesh, heeded, index, differing))
        clients = self._asked(of_clients, has_tls=has_tls)
        task = Task(inbound, self._writers.confs(world, mesh, effective), clients=clients)
        self._fragments.take(room, task)
        guard = InboundGuard.of(inbound, clients, self._judging)
        of_each = {**self._legacy_by_client(legacy), **by_client}
        return InboundResult(inbound, effective, task, self._fragments.get(task), guard, of_each, legacy)

    def _heeded(self, rules: Rules, *, has_tls: bool) -> Rules:
        """Without TLS nobody is judged."""
        return rules if has_tls else rules.among(rules.keys() - self._judging)

    def _asked(self, confs: Iterable[tuple[str, tuple[ClientConf, ...]]], *, has_tls: bool) -> ClientConfs:
        """Those of policies that have something to do: one that judges every client has it wherever there is TLS."""
        judging = dict.fromkeys(self._judging, ()) if has_tls else {}
        return tuple(sorted({**judging, **dict(confs)}.items()))

    def _legacy_by_client(self, legacy: LegacyClients) -> Mapping[str, Sequence[ConfOfClients]]:
        of_kinds = ((kind, clients) for kind, clients in legacy.items() if kind not in self._judging)
        return {kind: tuple((client.match, client.conf) for client in clients) for kind, clients in of_kinds}

    def _confs_of_legacy(
        self, world: World, mesh: str, legacy: LegacyClients, *, has_tls: bool
    ) -> Iterator[tuple[str, tuple[ClientConf, ...]]]:
        """All clients of one policy share its conf, but who is judged is judged alone."""
        for kind, clients in legacy.items():
            if has_tls or kind not in self._judging:
                yield kind, tuple(_legacy_confs(world, mesh, clients, each_alone=kind in self._judging))

    def _by_client(self, rules: Rules, index: int, *, has_tls: bool) -> Iterator[tuple[str, tuple[ConfOfClients, ...]]]:
        for kind, of_kind in rules.items():
            default = self._defaults.get(kind)
            confs = () if of_kind.shape.side_by_side else _confs_in_order(of_kind, index, default, has_tls=has_tls)
            if in_order := tuple(confs):
                yield kind, in_order


def secured_by(policies: Iterable[Policy[Any]], inbound: Inbound, effective: Effective) -> Inbound:
    """An inbound as policies have callers speak with it."""
    for policy in policies:
        if (conf := effective.get(policy.kind.name)) is not None:
            inbound = policy.secure(decode(policy.conf, conf.value), inbound)
    return inbound


def _client_confs(
    world: World, mesh: str, rules: Rules, index: int, by_client: ByClient
) -> Iterator[tuple[str, tuple[ClientConf, ...]]]:
    """The confs for some clients, by the kinds of policies that say something of them."""
    for kind, of_kind in rules.items():
        if of_kind.shape.side_by_side and (confs := confs_side_by_side(world, mesh, of_kind, index)):
            yield kind, confs
    for kind, confs_in_order in by_client.items():
        if confs_in_order:
            yield kind, tuple(_client_conf(world, mesh, *of_clients) for of_clients in confs_in_order)


def _client_conf(world: World, mesh: str, clients: Mapping[str, Any], conf: MergedConf) -> ClientConf:
    return canonical_json(clients), resolved(world, mesh, conf), ""


def _says_something(kind_rules: PolicyRules, index: int) -> bool:
    """Whether a policy with a targetRef is about the clients of an inbound: then no legacy policy of the kind is."""
    return bool(kind_rules.inbound(index).rules or kind_rules.from_(index).tagged)


def _legacy_clients(rules: Rules, index: int, protocol: str) -> LegacyClients:
    """What legacy policies say of the clients of an inbound, as far as no policy with a targetRef does."""
    legacy = rules.legacy.clients(index, protocol)
    replaced = {kind for kind in legacy if kind in rules and _says_something(rules[kind], index)}
    return {kind: clients for kind, clients in legacy.items() if kind not in replaced}


def _legacy_confs(
    world: World, mesh: str, clients: Iterable[LegacyClient], *, each_alone: bool
) -> Iterator[ClientConf]:
    for (policy, conf), of_policy in groupby(clients, lambda client: (client.policy, client.conf)):
        matches = [client.match for client in of_policy]
        for match in matches if each_alone else [_one_of(matches)]:
            yield canonical_json(match), resolved(world, mesh, conf), kri(policy.identity)


def _one_of(matches: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The clients who meet one of several conditions, each asked once."""
    distinct = list({canonical_json(match): match for match in matches}.values())
    return {} if {} in distinct else distinct[0] if len(distinct) == 1 else {"any": distinct}


def confs_side_by_side(
    world: World, mesh: str, kind_rules: PolicyRules, index: int, is_removed: IsRemoved | None = None
) -> tuple[ClientConf, ...]:
    """The confs that hold side by side on an inbound, each with its policy: of several the one with the last word."""
    short = kind_rules.kind.short
    return tuple(
        (canonical_json(clients), resolved(world, mesh, combined.conf), kri(combined.origins[-1].identity, short))
        for clients, combined in rules_side_by_side(kind_rules, index, is_removed)
    )


def rules_side_by_side(
    kind_rules: PolicyRules, index: int, is_removed: IsRemoved | None = None
) -> Iterator[tuple[Mapping[str, Any], CombinedConf]]:
    """The rules that hold side by side on an inbound, as they would be without some items.

    Items by tags come first, the strongest in front: they are not divided into groups of clients, as whoever judges a
    client can leave out those for whom a stronger item counts.
    """
    for tagged in reversed(kind_rules.from_(index).tagged):
        if is_removed is None or not is_removed(tagged.item):
            yield {"tags": dict(sorted(tagged.tags))}, kind_rules.combine((tagged.item,))
    for rule in kind_rules.inbound(index).rules:
        if is_removed is None or not is_removed(rule.item):
            yield rule.match or {}, rule.combined


def _confs_in_order(
    kind_rules: PolicyRules, index: int, default: MergedConf | None, *, has_tls: bool
) -> Iterator[ConfOfClients]:
    """Who is meant by `rules` shows it over TLS alone. The last of these is for all clients that none is for."""
    if kind_rules.shape.from_ and not kind_rules.shape.from_as_rules:
        for subset in kind_rules.from_(index).rules:
            yield _tags(subset.matchers), subset.combined.conf
    inbound_rules = kind_rules.inbound(index)
    if has_tls and (for_some := inbound_rules.for_some):
        yield from (
            (clients_conf.match, _over(default, kind_rules, clients_conf.combined.conf)) for clients_conf in for_some
        )
        yield from (({}, combined.conf) for combined in (inbound_rules.for_all,) if combined is not None)


def _over(default: MergedConf | None, kind_rules: PolicyRules, conf: MergedConf) -> MergedConf:
    """The conf of some clients over the default of its policy, where it leaves fields open."""
    return conf if default is None else kind_rules.lay((default, conf))


def _different(
    rules: Rules, by_client: ByClient, effective: Effective
) -> Iterator[tuple[str, Sequence[ConfOfClients]]]:
    """Without those that say nothing else than what holds otherwise, as far as clients can differ in it."""
    for kind, confs in by_client.items():
        fields = rules[kind].shape.fields_of_clients if kind in rules else ()
        yield kind, _differing_in(fields, confs, effective.get(kind, NOTHING)) if fields else confs


def _differing_in(
    fields: Iterable[str], confs: Iterable[ConfOfClients], for_all: MergedConf
) -> Sequence[ConfOfClients]:
    different: list[ConfOfClients] = []
    for match, conf in reversed([of_clients for of_clients in confs if of_clients[0]]):
        otherwise = next((other for wider, other in different if includes(wider, match)), for_all)
        if any(_value(conf, field) != _value(otherwise, field) for field in fields):
            different.insert(0, (match, conf))
    return different


def _value(conf: MergedConf, path: str) -> Any:
    value: Any = conf.value
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _tags(conditions: Iterable[TagCondition]) -> Mapping[str, Any]:
    wanted = {condition.key: condition.value for condition in conditions if not condition.is_not}
    unwanted = [[condition.key, condition.value] for condition in conditions if condition.is_not]
    return {"tags": wanted, "not": unwanted}
