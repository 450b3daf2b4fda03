"""What a field does, asked of the generator itself: what is built with it is compared with what is built without it.

So no list has to say which field ends in a route, a listener or a cluster, and for which protocol it has a meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any, Final, TypeAlias

from cp.model.canonical import canonical_json
from cp.policies import Policy
from cp.resources.caller import Caller
from cp.resources.schema import decode
from cp.rules.merging import Conf, alone, without
from cp.translate.backend import BackendResult
from cp.translate.fragments import Task
from cp.translate.fragments import build as fragment
from cp.translate.inbound import InboundResult
from cp.translate.outbound import OutboundResult
from cp.translate.packing import ROUTES, PackedResource
from generators.proxy import Endpoints, Outbound, Route

Build: TypeAlias = Callable[[Conf], object]
"""What is built when a policy has some conf."""

_ROUTE: Final = "explained"


class FieldEffect(Enum):
    """What a field does where it holds."""

    ACTS = "acts"
    SAME = "same"
    """It has a meaning there, and the outcome is the same without it."""

    NONE = "none"


def effect(make: Build, conf: Conf, path: str) -> FieldEffect:
    if make(without(conf, path)) != make(conf):
        return FieldEffect.ACTS
    return FieldEffect.SAME if make(alone(conf, path)) != make({}) else FieldEffect.NONE


def of_own_row(policy: Policy[Any], entry: OutboundResult, row: Route, of_whole: Conf) -> Build:
    """What a policy builds of one row of a route table that has a conf of its own."""
    site = _with_one_row(entry.outbound, row)
    whole = _confs(policy, of_whole)
    return lambda conf: _built(Task(site, whole, ((_ROUTE, _confs(policy, conf)),)), policy)


def of_row(policy: Policy[Any], entry: OutboundResult, row: Route) -> Build:
    """What a policy builds of a row that has the conf of its listener."""
    site = _with_one_row(entry.outbound, row)
    return lambda conf: _built(Task(site, _confs(policy, conf)), policy, lambda packed: packed.type_url == ROUTES)


def of_listener(policy: Policy[Any], entry: OutboundResult, row: Route, of_row: Conf | None) -> Build:
    """What a policy builds of a listener without its rows. A TCP listener has none."""
    site = _with_one_row(entry.outbound, row)
    own = () if of_row is None else ((_ROUTE, _confs(policy, of_row)),)
    return lambda conf: _built(Task(site, _confs(policy, conf), own), policy, lambda packed: packed.type_url != ROUTES)


def of_cluster(policy: Policy[Any], upstream: BackendResult, endpoints: Endpoints, caller: Caller) -> Build:
    """What a policy builds of a cluster and its endpoints. The endpoints are those before `Policy.arrange`."""
    cluster, *served = upstream.tasks

    def make(conf: Conf) -> object:
        tasks = [replace(cluster, confs=_confs(policy, conf))]
        if served:
            arranged = policy.arrange(decode(policy.conf, conf), endpoints, caller)
            tasks.append(Task(arranged, _confs(policy, conf)))
        return [_built(task, policy) for task in tasks]

    return make


def of_inbound(policy: Policy[Any], reached: InboundResult) -> Build:
    return lambda conf: _built(Task(reached.inbound, _confs(policy, conf)), policy)


def _built(
    task: Task, policy: Policy[Any], is_compared: Callable[[PackedResource], bool] = lambda _: True
) -> list[bytes]:
    return [packed.body for packed in fragment(task, (policy,)) if is_compared(packed)]


def _with_one_row(outbound: Outbound, row: Route) -> Outbound:
    """The outbound with one row, under a name of its own, so that no other row gets its conf."""
    return replace(outbound, routes=(replace(row, owner=_ROUTE),))


def _confs(policy: Policy[Any], conf: Conf) -> tuple[tuple[str, bytes], ...]:
    return ((policy.kind.name, canonical_json(conf)),)
