"""What a field does, asked of the generator itself: what is built with it is compared with what is built without it.

So no list has to say which field ends in a route, a listener or a cluster, and for which protocol it has a meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, Final, TypeAlias

import msgspec

from cp.fragments import Task
from cp.fragments import build as fragment
from cp.merging import Conf
from cp.model.paths import step
from cp.policies import Policy
from cp.resources.caller import Caller
from cp.resources.schema import decode
from cp.snapshot import ROUTES, Packed
from cp.stages import Entry, Reached, Upstream
from generators.proxy import Endpoints, Outbound, Route

Build: TypeAlias = Callable[[Conf], object]
"""What is built when a policy has some conf."""

_ROUTE: Final = "explained"
_GONE: Final = object()
_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class Effect(Enum):
    """What a field does at some place."""

    ACTS = "acts"
    SAME = "same"
    """It has a meaning there, and the outcome is the same without it."""

    NONE = "none"


def effect(make: Build, conf: Conf, path: str) -> Effect:
    if make(_without(conf, path)) != make(conf):
        return Effect.ACTS
    return Effect.SAME if make(_alone(conf, path)) != make({}) else Effect.NONE


def of_own_row(policy: Policy[Any], entry: Entry, row: Route, of_whole: Conf) -> Build:
    """What a policy makes of one row of a route table for which something of its own holds."""
    site = _with_one_row(entry.outbound, row)
    whole = _confs(policy, of_whole)
    return lambda conf: _built(Task(site, whole, ((_ROUTE, _confs(policy, conf)),)), policy)


def of_row(policy: Policy[Any], entry: Entry, row: Route) -> Build:
    """What a policy makes of a row for which holds what holds for the whole listener."""
    site = _with_one_row(entry.outbound, row)
    return lambda conf: _built(Task(site, _confs(policy, conf)), policy, lambda packed: packed.type_url == ROUTES)


def of_listener(policy: Policy[Any], entry: Entry, row: Route, of_row: Conf | None) -> Build:
    """What a policy makes of a listener beside its rows. A TCP listener is all there is."""
    site = _with_one_row(entry.outbound, row)
    own = () if of_row is None else ((_ROUTE, _confs(policy, of_row)),)
    return lambda conf: _built(Task(site, _confs(policy, conf), own), policy, lambda packed: packed.type_url != ROUTES)


def of_cluster(policy: Policy[Any], upstream: Upstream, endpoints: Endpoints, caller: Caller) -> Build:
    """What a policy makes of a cluster and of its endpoints, given as they are before anybody arranges them."""
    cluster, *served = upstream.tasks

    def make(conf: Conf) -> object:
        tasks = [replace(cluster, confs=_confs(policy, conf))]
        if served:
            arranged = policy.arrange(decode(policy.conf, conf), endpoints, caller)
            tasks.append(Task(arranged, _confs(policy, conf)))
        return [_built(task, policy) for task in tasks]

    return make


def of_inbound(policy: Policy[Any], reached: Reached) -> Build:
    return lambda conf: _built(Task(reached.inbound, _confs(policy, conf)), policy)


def _built(task: Task, policy: Policy[Any], wanted: Callable[[Packed], bool] = lambda _: True) -> list[bytes]:
    return [packed.body for packed in fragment(task, (policy,)) if wanted(packed)]


def _with_one_row(outbound: Outbound, row: Route) -> Outbound:
    """Under a name of its own, so that the conf of the route is nobody else's."""
    return replace(outbound, routes=(replace(row, owner=_ROUTE),))


def _confs(policy: Policy[Any], conf: Conf) -> tuple[tuple[str, bytes], ...]:
    return ((policy.kind.name, _encode(conf)),)


def _without(conf: Conf, target: str) -> Conf:
    """A conf as if nobody had set one field: what becomes empty by that is not there either."""
    return _or_nothing(_cut(conf, "", target))


def _cut(value: Any, path: str, target: str) -> Any:
    if path == target:
        return _GONE
    if not _leads_to(path, target):
        return value
    return _kept(value, path, lambda inner, at: _cut(inner, at, target))


def _alone(conf: Conf, target: str) -> Conf:
    """A conf as if somebody had set one field, and nobody any other."""
    return _or_nothing(_only(conf, "", target))


def _only(value: Any, path: str, target: str) -> Any:
    if path == target:
        return value
    return _kept(value, path, lambda inner, at: _only(inner, at, target)) if _leads_to(path, target) else _GONE


def _kept(value: Any, path: str, keep: Callable[[Any, str], Any]) -> Any:
    if isinstance(value, Mapping):
        fields = {name: keep(inner, step(path, name)) for name, inner in value.items()}
        return {name: inner for name, inner in fields.items() if inner is not _GONE} or _GONE
    if isinstance(value, list):
        return [one for at, inner in enumerate(value) if (one := keep(inner, step(path, at))) is not _GONE] or _GONE
    return value


def _leads_to(path: str, target: str) -> bool:
    return not path or target.startswith((f"{path}.", f"{path}["))


def _or_nothing(found: Any) -> Conf:
    """A policy that says nothing is still there: what it does of its own accord is no field's doing."""
    return {} if found is _GONE else found
