"""One inbound of a proxy: the effective confs for its clients, and the fragment built from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from cp.model.canonical import canonical_json
from cp.model.failure import failure
from cp.model.names import kri
from cp.policies import Policies, Policy
from cp.resources.schema import decode
from cp.resources.world import World
from cp.rules import CombinedConf, PolicyItem, PolicyRules, TagCondition
from cp.translate.effective import ConfWriters, Effective, Rules, defaults, has_hook, of_inbound, resolved
from cp.translate.failed import with_cause
from cp.translate.fragments import ClientConf, ClientConfs, Fragment, FragmentCache, Task
from generators.proxy import Inbound, MeshTls

IsRemoved: TypeAlias = Callable[[PolicyItem], bool]
"""Whether an item is left out, to find out what would be different without it."""


@dataclass(frozen=True, slots=True, eq=False)
class InboundResult:
    """One inbound of a proxy, its effective confs, and the fragment built from them."""

    inbound: Inbound
    effective: Effective
    """What holds for all clients. The confs for some clients alone are in the task (`Task.clients`)."""

    task: Task
    fragment: Fragment
    guard: InboundGuard | None = None
    """Who is let in; None if that could not be worked out."""


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
        self._admitting = [policy for policy in policies if has_hook(policy, "admit")]
        self._judging = frozenset(policy.kind.name for policy in policies if policy.judges_every_client)
        self._writers = ConfWriters(policies, ("cluster", "listener", "route", "finish"))

    def result(self, world: World, mesh: str, rules: Rules, index: int, inbound: Inbound) -> InboundResult:
        """One inbound. Without it nobody is let in: what should be checked of clients is not known."""
        part = f"inbound {inbound.port}"
        try:
            result = self._result(world, mesh, rules, index, inbound)
        except Exception as error:  # noqa: BLE001  # whatever it is, all other inbounds are served
            guard = NO_GUARD if inbound.tls is None else None
            result = InboundResult(inbound, {}, Task(inbound), Fragment((), failure=failure(error, part)), guard)
        return replace(result, fragment=with_cause(result.fragment, part, rules, result.effective))

    def _result(self, world: World, mesh: str, rules: Rules, index: int, inbound: Inbound) -> InboundResult:
        effective = of_inbound(self._defaults, rules, index)
        inbound = admitted(self._admitting, inbound, effective)
        clients = tuple(self._clients(world, mesh, rules, index, inbound))
        task = Task(inbound, self._writers.confs(world, mesh, effective), clients=clients)
        guard = InboundGuard.of(inbound, clients, self._judging)
        return InboundResult(inbound, effective, task, self._fragments.get(task), guard)

    def _clients(
        self, world: World, mesh: str, rules: Rules, index: int, inbound: Inbound
    ) -> Iterator[tuple[str, tuple[ClientConf, ...]]]:
        """The confs for some clients, by policy. One that judges every client is asked on each inbound with TLS."""
        has_tls = inbound.tls is not None
        judging = self._judging if has_tls else frozenset[str]()
        for kind in sorted(judging.union(rules) - self._judging.difference(judging)):
            confs = _confs_of_clients(world, mesh, rules[kind], index, has_tls=has_tls) if kind in rules else ()
            if confs or kind in judging:
                yield kind, confs


def admitted(policies: Iterable[Policy[Any]], inbound: Inbound, effective: Effective) -> Inbound:
    """An inbound as policies have callers speak with it."""
    for policy in policies:
        if (conf := effective.get(policy.kind.name)) is not None:
            inbound = policy.admit(decode(policy.conf, conf.value), inbound)
    return inbound


def _confs_of_clients(
    world: World, mesh: str, kind_rules: PolicyRules, index: int, *, has_tls: bool
) -> tuple[ClientConf, ...]:
    """Which clients get which conf on an inbound, where that is not the same for all."""
    if kind_rules.shape.side_by_side:
        return confs_side_by_side(world, mesh, kind_rules, index)
    return tuple(
        (canonical_json(clients), resolved(world, mesh, combined.conf), "")
        for clients, combined in _clients(kind_rules, index, has_tls=has_tls)
    )


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


def _clients(kind_rules: PolicyRules, index: int, *, has_tls: bool) -> Iterator[tuple[Mapping[str, Any], CombinedConf]]:
    """Who is meant by `rules` shows it over TLS alone."""
    if kind_rules.shape.from_ and not kind_rules.shape.from_as_rules:
        for subset in kind_rules.from_(index).rules:
            yield _tags(subset.matchers), subset.combined
    inbound_rules = kind_rules.inbound(index)
    if has_tls and (for_some := inbound_rules.with_matches):
        yield from ((rule.match or {}, rule.combined) for rule in for_some)
        yield from (({}, combined) for combined in (inbound_rules.for_all,) if combined is not None)


def _tags(conditions: Iterable[TagCondition]) -> Mapping[str, Any]:
    wanted = {condition.key: condition.value for condition in conditions if not condition.is_not}
    unwanted = [[condition.key, condition.value] for condition in conditions if condition.is_not]
    return {"tags": wanted, "not": unwanted}
