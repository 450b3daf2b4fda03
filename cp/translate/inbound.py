"""One inbound of a proxy: the effective confs for its clients, and the fragment built from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cp.model.canonical import canonical_json
from cp.model.failure import failure
from cp.policies import Policies
from cp.resources.world import World
from cp.rules import PolicyRules, TagCondition
from cp.rules.merging import MergedConf
from cp.translate.effective import ConfWriters, Effective, Rules, defaults, of_inbound, resolved
from cp.translate.failed import with_cause
from cp.translate.fragments import Fragment, FragmentCache, Task
from generators.proxy import Inbound


@dataclass(frozen=True, slots=True, eq=False)
class InboundResult:
    """One inbound of a proxy, its effective confs, and the fragment built from them."""

    inbound: Inbound
    effective: Effective
    """What holds for all clients. The confs for some clients alone are in the task (`Task.clients`)."""

    task: Task
    fragment: Fragment


class InboundStage:
    """From the rules of a proxy to its inbounds."""

    def __init__(self, policies: Policies, fragments: FragmentCache) -> None:
        self._fragments = fragments
        self._defaults = defaults(policies, "inbound_default")
        self._writers = ConfWriters(policies, ("cluster", "listener", "route", "finish"))

    def result(self, world: World, mesh: str, rules: Rules, index: int, inbound: Inbound) -> InboundResult:
        """One inbound. Without it nobody is let in: what should be checked of clients is not known."""
        part = f"inbound {inbound.port}"
        try:
            result = self._result(world, mesh, rules, index, inbound)
        except Exception as error:  # noqa: BLE001  # whatever it is, all other inbounds are served
            result = InboundResult(inbound, {}, Task(inbound), Fragment((), failure=failure(error, part)))
        return replace(result, fragment=with_cause(result.fragment, part, rules, result.effective))

    def _result(self, world: World, mesh: str, rules: Rules, index: int, inbound: Inbound) -> InboundResult:
        effective = of_inbound(self._defaults, rules, index)
        clients = tuple(
            (kind, confs)
            for kind, kind_rules in sorted(rules.items())
            if (confs := _confs_of_clients(world, mesh, kind_rules, index))
        )
        task = Task(inbound, self._writers.confs(world, mesh, effective), clients=clients)
        return InboundResult(inbound, effective, task, self._fragments.get(task))


def _confs_of_clients(world: World, mesh: str, kind_rules: PolicyRules, index: int) -> tuple[tuple[bytes, bytes], ...]:
    """Which clients get which conf on an inbound, where that is not the same for all."""
    return tuple(
        (canonical_json(clients), resolved(world, mesh, conf)) for clients, conf in _clients(kind_rules, index)
    )


def _clients(kind_rules: PolicyRules, index: int) -> Iterator[tuple[Mapping[str, Any], MergedConf]]:
    if kind_rules.shape.from_ and not kind_rules.shape.from_as_rules:
        for subset in kind_rules.from_(index).rules:
            yield _tags(subset.matchers), subset.combined.conf
    inbound_rules = kind_rules.inbound(index)
    if for_some := inbound_rules.with_matches:
        yield from ((rule.match or {}, rule.combined.conf) for rule in for_some)
        yield from (({}, combined.conf) for combined in (inbound_rules.for_all,) if combined is not None)


def _tags(conditions: Iterable[TagCondition]) -> Mapping[str, Any]:
    wanted = {condition.key: condition.value for condition in conditions if not condition.is_not}
    unwanted = [[condition.key, condition.value] for condition in conditions if condition.is_not]
    return {"tags": wanted, "not": unwanted}
