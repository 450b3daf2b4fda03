"""What a field does, asked of the generator itself: what is built with it is compared with what is built without it.

So no list has to say which field ends in a route, a listener or a cluster, and for which protocol it has a meaning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, Final, TypeAlias

from cp.model.canonical import canonical_json
from cp.policies import Policy
from cp.resources.caller import Caller
from cp.resources.schema import decode
from cp.rules.merging import Conf, alone, put, without
from cp.translate.backend import BackendResult
from cp.translate.fragments import Confs, Task
from cp.translate.fragments import build as fragment
from cp.translate.packing import PackedResource
from generators.proxy import Backend, Endpoints

MATCHES_NOTHING: Final = "has no effect: the proxy has nothing that `match` is about"
"""Of a change by a patch."""

_DURATION: Final = re.compile(r"([0-9.]+(ns|us|ms|s|m|h))+")
_LONG: Final = "4001s"
_LONGER: Final = "4002s"

Build: TypeAlias = Callable[[Conf], object]
"""What is built when a policy has some conf."""


class FieldEffect(Enum):
    """What a field does where it holds."""

    ACTS = "acts"
    SAME = "same"
    """It has a meaning there, and the outcome is the same without it."""

    WRITTEN_OVER = "written over"
    """It would act, and another policy writes something else in its place."""

    NONE = "none"


def effect(make: Build, conf: Conf, path: str) -> FieldEffect:
    if make(without(conf, path)) != make(conf):
        return FieldEffect.ACTS
    return FieldEffect.SAME if make(alone(conf, path)) != make({}) else FieldEffect.NONE


def with_another(conf: Conf, path: str) -> Conf:
    """A conf with another value of a field, or without it where no other value of its sort is known."""
    cut = without(conf, path)
    if cut == conf:
        return conf
    other = _another(_at(conf, path))
    return cut if other is None else put(conf, path, other)


def _at(conf: Conf, path: str) -> Any:
    """The value of a field outside of lists."""
    value: Any = conf
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _another(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str) and _DURATION.fullmatch(value):
        return _LONG if value != _LONG else _LONGER
    return None


def built(
    task: Task, policy: Policy[Any], is_compared: Callable[[PackedResource], bool] = lambda _: True
) -> list[bytes]:
    """What one policy alone builds for a task."""
    return [packed.body for packed in fragment(task, (policy,)) if is_compared(packed)]


def confs_of(policy: Policy[Any], conf: Conf) -> Confs:
    """The conf of one policy alone, as it stands in a task."""
    return ((policy.kind.name, canonical_json(conf)),)


def arranged_tasks(
    policy: Policy[Any], conf: Conf, tasks: tuple[Task, ...], endpoints: Endpoints, caller: Caller
) -> tuple[Task, ...]:
    """Return the tasks of a cluster and its endpoints, with the endpoints as a policy arranges them for some conf.

    An ExternalService has its endpoints in the cluster.
    """
    cluster, *of_endpoints = tasks
    arranged = policy.arrange(decode(policy.conf, conf), endpoints, caller)
    if of_endpoints:
        return (cluster, *(replace(task, site=arranged) for task in of_endpoints))
    if isinstance(cluster.site, Backend) and arranged.is_external:
        return (replace(cluster, site=replace(cluster.site, external=arranged.endpoints)),)
    return tasks


def of_cluster(policy: Policy[Any], upstream: BackendResult, endpoints: Endpoints, caller: Caller) -> Build:
    """What a policy builds of a cluster and its endpoints. The endpoints are those before `Policy.arrange`."""

    def make(conf: Conf) -> object:
        tasks = arranged_tasks(policy, conf, upstream.tasks, endpoints, caller)
        return [built(replace(task, confs=confs_of(policy, conf)), policy) for task in tasks]

    return make
