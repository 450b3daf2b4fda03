"""Callers: what of a proxy its endpoints and outbound listeners can depend on, because some policy asks for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary, ref

from cp.policies import Policy
from cp.resources.caller import Caller, CallerTls, caller_of
from cp.resources.resource import Resource
from cp.resources.world import World
from cp.translate.effective import has_hook
from cp.translate.view.mtls import caller_tls, tls_of_caller
from cp.translate.view.sidecars import sidecar_fields


@dataclass(frozen=True, slots=True, eq=False)
class _Questions:
    """What the policies of a mesh together want to know of a caller, in one World, and the callers by that."""

    world: ref[World]
    looks_at: frozenset[str]
    """Tags, by their names."""

    asks: frozenset[str]
    """Facts that listeners tell."""

    tls: CallerTls | None

    callers: WeakKeyDictionary[Resource, Caller]


class Callers:
    """The caller that each dataplane is, kept for as long as the dataplane and the questions are the same."""

    def __init__(self, policies: Iterable[Policy[Any]]) -> None:
        self._asking = [policy for policy in policies if has_hook(policy, "caller_tags", "sidecar_fields")]
        self._questions: dict[str, _Questions] = {}

    def caller(self, world: World, dataplane: Resource) -> Caller:
        questions = self._questions_of(world, dataplane.mesh)
        caller, tls = questions.callers.get(dataplane), tls_of_caller(world, dataplane, questions.tls)
        if caller is None:
            caller = caller_of(dataplane, questions.looks_at)
            if not caller.is_grpc:  # which has no listener that could say anything about it
                caller = replace(caller, sidecar_fields=sidecar_fields(dataplane, questions.asks))
        if not caller.is_grpc and caller.tls != tls:  # a gRPC client has no certificate
            caller = replace(caller, tls=tls)
        questions.callers[dataplane] = caller
        return caller

    def _questions_of(self, world: World, mesh: str) -> _Questions:
        """What is asked in a mesh. As long as that is the same, so are the callers that are known already."""
        before = self._questions.get(mesh)
        if before is not None and before.world() is world:
            return before
        looks_at, asks = self._answers(world, mesh, "caller_tags"), self._answers(world, mesh, "sidecar_fields")
        tls = caller_tls(world, mesh)
        is_same = before is not None and (before.looks_at, before.asks, before.tls) == (looks_at, asks, tls)
        callers = before.callers if before is not None and is_same else WeakKeyDictionary()
        questions = self._questions[mesh] = _Questions(ref(world), looks_at, asks, tls, callers)
        return questions

    def _answers(self, world: World, mesh: str, hook: str) -> frozenset[str]:
        """What all policies of a mesh together answer to a question about their documents."""
        asking = (policy for policy in self._asking if has_hook(policy, hook))
        tables = ((policy, world.table(policy.kind.name, mesh)) for policy in asking)
        return frozenset[str]().union(*(table.derived(getattr(policy, hook)) for policy, table in tables))
