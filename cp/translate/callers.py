"""Callers: what of a proxy its endpoints and outbound listeners can depend on, because some policy asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final
from weakref import WeakKeyDictionary, ref

from cp.policies import Policy
from cp.resources.caller import Caller, CallerTls, caller_of
from cp.resources.resource import Resource
from cp.resources.schema import decode
from cp.resources.world import World
from cp.rules.legacy import legacy_confs, tells_clients_apart
from cp.rules.legacy.withheld import withheld, withholds
from cp.rules.merging import MergedConf
from cp.translate.effective import has_hook
from cp.translate.view.mtls import caller_tls, tls_of_caller
from cp.translate.view.services import NOTHING_WITHHELD
from cp.translate.view.sidecars import sidecar_fields

_TAGS: Final = "tags"
"""The field of a sidecar that tells the tags of a proxy to those whom it calls."""


@dataclass(frozen=True, slots=True, eq=False)
class _Questions:
    """What the policies of a mesh together want to know of a caller, in one World, and the callers by that."""

    world: ref[World]
    looks_at: frozenset[str]
    """Tags, by their names."""

    asks: frozenset[str]
    """Facts that listeners tell."""

    tls: CallerTls | None
    withholds: bool
    """Whether there are ExternalServices that need a permission."""

    callers: WeakKeyDictionary[Resource, Caller]


class Callers:
    """The caller that each dataplane is, kept for as long as the dataplane and the questions are the same."""

    def __init__(self, policies: Iterable[Policy[Any]]) -> None:
        self._asking = [policy for policy in policies if has_hook(policy, "caller_tags", "sidecar_fields")]
        self._telling = [policy for policy in self._asking if has_hook(policy, "fields_of_caller")]
        self._questions: dict[str, _Questions] = {}

    def caller(self, world: World, dataplane: Resource, *, is_certified_client: bool = False) -> Caller:
        """`is_certified_client`: the dataplane is a gRPC client without a proxy whose library finds certificates."""
        questions = self._questions_of(world, dataplane.mesh)
        caller = questions.callers.get(dataplane)
        tls = tls_of_caller(world, dataplane, questions.tls, is_certified_client=is_certified_client)
        if caller is None:
            caller = caller_of(dataplane, questions.looks_at)
            if not caller.is_grpc:  # which has no listener that could say anything about it
                caller = replace(caller, sidecar_fields=sidecar_fields(dataplane, questions.asks))
        if caller.tls != tls:
            caller = replace(caller, tls=tls)
        services = withheld(world, dataplane) if questions.withholds else NOTHING_WITHHELD
        if caller.withheld != services:
            caller = replace(caller, withheld=services)
        questions.callers[dataplane] = caller
        return caller

    def _questions_of(self, world: World, mesh: str) -> _Questions:
        """What is asked in a mesh. As long as that is the same, so are the callers that are known already."""
        before = self._questions.get(mesh)
        if before is not None and before.world() is world:
            return before
        looks_at, asks = self._answers(world, mesh, "caller_tags"), self._answers(world, mesh, "sidecar_fields")
        asks = asks.union(self._asked_by_legacy(world, mesh))
        tls = caller_tls(world, mesh)
        is_same = before is not None and (before.looks_at, before.asks, before.tls) == (looks_at, asks, tls)
        callers = before.callers if before is not None and is_same else WeakKeyDictionary()
        questions = self._questions[mesh] = _Questions(ref(world), looks_at, asks, tls, withholds(world, mesh), callers)
        return questions

    def _answers(self, world: World, mesh: str, hook: str) -> frozenset[str]:
        """What all policies of a mesh together answer to a question about their documents."""
        asking = (policy for policy in self._asking if has_hook(policy, hook))
        tables = ((policy, world.table(policy.kind.name, mesh)) for policy in asking)
        return frozenset[str]().union(*(table.derived(getattr(policy, hook)) for policy, table in tables))

    def _asked_by_legacy(self, world: World, mesh: str) -> Iterator[str]:
        """The fields that listeners tell because of legacy policies."""
        for policy, confs in legacy_confs(world, mesh):
            if tells_clients_apart(policy):
                yield _TAGS
            for telling in self._telling:
                if (conf := confs.get(telling.kind.name)) is not None:
                    yield from _fields_of_caller(telling, conf)


def _fields_of_caller(telling: Policy[Any], conf: MergedConf) -> Iterable[str]:
    """A conf that cannot be read fails where it is to hold, and not here: this is asked for every proxy of a mesh."""
    try:
        return tuple(telling.fields_of_caller(decode(telling.conf, conf.value)))
    except Exception:  # noqa: BLE001  # whatever it is, it is one policy's
        return ()
