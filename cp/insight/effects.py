"""What a field does, asked of the generator itself: what is built with it is compared with what is built without it.

So no list has to say which field ends in a route, a listener or a cluster, and for which protocol it has a meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any, TypeAlias

from cp.model.canonical import canonical_json
from cp.policies import Policy
from cp.resources.caller import Caller
from cp.resources.schema import decode
from cp.rules.merging import Conf, alone, without
from cp.translate.backend import BackendResult
from cp.translate.fragments import Confs, Task
from cp.translate.fragments import build as fragment
from cp.translate.packing import PackedResource
from generators.proxy import Endpoints

Build: TypeAlias = Callable[[Conf], object]
"""What is built when a policy has some conf."""


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


def built(
    task: Task, policy: Policy[Any], is_compared: Callable[[PackedResource], bool] = lambda _: True
) -> list[bytes]:
    """What one policy alone builds for a task."""
    return [packed.body for packed in fragment(task, (policy,)) if is_compared(packed)]


def confs_of(policy: Policy[Any], conf: Conf) -> Confs:
    """The conf of one policy alone, as it stands in a task."""
    return ((policy.kind.name, canonical_json(conf)),)


def of_cluster(policy: Policy[Any], upstream: BackendResult, endpoints: Endpoints, caller: Caller) -> Build:
    """What a policy builds of a cluster and its endpoints. The endpoints are those before `Policy.arrange`."""
    cluster, *served = upstream.tasks

    def make(conf: Conf) -> object:
        tasks = [replace(cluster, confs=confs_of(policy, conf))]
        if served:
            arranged = policy.arrange(decode(policy.conf, conf), endpoints, caller)
            tasks.append(Task(arranged, confs_of(policy, conf)))
        return [built(task, policy) for task in tasks]

    return make
